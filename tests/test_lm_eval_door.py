"""The class that lm-eval calls, on a stand-in for lm-eval: every request gets its own text, from as few runs and loads
as there can be.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lopa_bench.errors import ConfigError
from lopa_bench.models import loaded
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import open_run

DOOR = "lopa_bench.lm_eval.model"


class LM:
    """As lm-eval's base class: what was answered can be kept."""

    def __init__(self) -> None:
        self.cached: list[str] = []
        self.cache_hook = SimpleNamespace(add_partial=lambda kind, arguments, text: self.cached.append(text))


@dataclass
class Instance:
    """A request as lm-eval makes it."""

    task_name: str
    doc_id: int
    args: tuple[str, Any]
    idx: int = 0


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    stand_in = {
        "lm_eval": {},
        "lm_eval.api": {},
        "lm_eval.api.model": {"LM": LM},
        "lm_eval.api.registry": {"register_model": lambda name: lambda made: made},
    }
    for name, members in stand_in.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, DOOR, raising=False)
    yield importlib.import_module(DOOR).LopaBench
    sys.modules.pop(DOOR, None)


@pytest.fixture
def words(settings: list[str], tmp_path: Path) -> list[str]:
    ours = [word for word in settings if not word.startswith(("task.", "decoder.gen_length"))]
    return [*ours, "model.gen_length=32", f"run.out={tmp_path}", "run.progress=false"]


def test_every_request_has_its_text_in_order_and_the_model_is_loaded_once(
    door: Any, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Any] = []
    read = loaded.load_model
    monkeypatch.setattr(loaded, "load_model", lambda *given, **named: loads.append(1) or read(*given, **named))
    lm = door(config=words, batch_size=2, likelihood="monte_carlo", mc_num=2)
    drawn = {"do_sample": True, "temperature": 1.0, "max_gen_toks": 16, "until": []}
    short = {"do_sample": False, "max_gen_toks": 8, "until": ["e", "zz"]}
    twice = Instance("a", 0, ("How many?", drawn))
    asked = [Instance("b", 0, ("How many?", short)), twice, twice, Instance("b", 1, ("And now?", short))]
    texts = lm.generate_until(asked)
    ((bound, _),) = lm.loglikelihood([Instance("c", 0, ("How many?", " two"))])
    assert bound < 0
    assert len(loads) == 1
    runs = {one.task: open_run(one.folder) for one in lm.done}
    assert {task: run.settings["gen_length"] for task, run in runs.items()} == {"a": 16, "b": 8}
    assert {task: (run.settings["temperature"], run.batch) for task, run in runs.items()} == {"a": (1, 2), "b": (0, 2)}
    rows = {
        (task, row["problem_id"], row["sample_index"]): row["completion"]
        for task, run in runs.items()
        for row in read_samples(run.folder).to_pylist()
    }
    cut = [rows["b", f"b-{number}", 0].split("e")[0].split("zz")[0] for number in (0, 1)]
    assert texts == [cut[0], rows["a", "a-0", 0], rows["a", "a-0", 1], cut[1]]
    assert texts[1] != texts[2]  # a seed each
    assert sorted(lm.cached[:-1]) == sorted(texts)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": "auto"}, "--batch_size auto is not allowed"),
        ({"batch_size": 8, "config": "run.batch=4"}, "run.batch=4 in config and --batch_size=8 contradict"),
        ({"device": "cuda:0", "config": "backend.device=cpu"}, "backend.device=cpu in config and --device=cuda:0"),
        ({"pretrained": "x"}, "--model_args pretrained is unknown"),
        ({"config": "decoder.kk=1"}, "kk"),
        ({"mc_num": 8}, "mc_num=8 is read with likelihood=monte_carlo only"),
    ],
)
def test_what_it_cannot_follow_is_refused_before_anything_is_asked(
    door: Any, given: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message) as error:
        door(**given)
    assert isinstance(error.value, ConfigError) or "kk" in message


def test_one_of_several_processes_is_refused(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="every process would answer every request"):
        door()
