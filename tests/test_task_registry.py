"""Settings of a task are checked before anything is loaded."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.base import TaskConfig, TaskError
from tasks.gsm8k import Gsm8k
from tasks.registry import TASKS, make_task


def test_a_task_is_made_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": "#### 1"}))
    task = make_task(TaskConfig(name="gsm8k", source=str(path), shots=0), embedded_default=True)
    assert isinstance(task, Gsm8k)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gsm8"}, "task 'gsm8' is unknown, allowed: gsm8k, math, math500, mbpp"),
        ({"limit": 0}, "task.limit=0 is not allowed: an integer >= 1"),
        ({"limit": -3}, "limit=-3 is not allowed: an integer >= 1"),
        ({"limit": True}, "limit=True is not allowed"),
        ({"shots": -1}, "task.shots=-1 is not allowed: an integer >= 0"),
        ({"source": ""}, "task.source is empty, allowed: auto, embedded, hub or a path"),
        ({"shots_style": "random"}, "task.shots_style='random' is unknown, allowed: keyed, lm_eval"),
        (
            {"prompt_style": "cat"},
            "task.prompt_style='cat' is unknown, allowed: auto, chat, plain, lm_eval, lm_eval_cot",
        ),
        ({"scorer": "mine"}, "task.scorer='mine' is unknown, allowed: lopa_bench, lopa_bench_strict, lm_eval_strict"),
    ],
)
def test_a_wrong_setting_is_named_with_the_allowed_ones(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        make_task(TaskConfig(**settings), embedded_default=True)


def test_importing_the_registry_loads_nothing_heavy() -> None:
    heavy = ["torch", "datasets", "sympy", "math_verify", "transformers", "lopa_bench", "pyarrow"]
    code = f"import sys, tasks.registry, tasks.gsm8k; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_task_has_its_yaml() -> None:
    import yaml

    folder = Path(__file__).parents[1] / "conf" / "task"
    for name in ("gsm8k", "math", "math500"):
        settings = yaml.safe_load((folder / f"{name}.yaml").read_text())
        assert name in TASKS
        assert TaskConfig(**settings) == TaskConfig(name=name)
