"""What the settings of a run lead to: files, libraries, code and problems that make it another run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lopa_bench.plan import identity
from lopa_bench.plan.identity import code_sha256, identify
from lopa_bench.settings.config import Config
from lopa_bench.system import libraries
from tasks.types import Prompt
from tests.test_identity import PROBLEMS, Mine, identified, key, served_config, tiny_config


@pytest.fixture
def config(tiny_model: Path) -> Config:
    return tiny_config(tiny_model)


@pytest.fixture
def served(config: Config) -> Config:
    return served_config(config)


def test_other_bytes_of_weights_adapter_tokenizer_and_template_are_other_runs(
    config: Config, tiny_model: Path, tmp_path: Path
) -> None:
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    shutil.copytree(tiny_model, model)
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"one")
    (adapter / "adapter_config.json").write_text('{"r": 8}')
    config.model.path, config.model.lora = str(model), str(adapter)
    keys = [key(config)]
    for path, content in (
        (model / "model.safetensors", (model / "model.safetensors").read_bytes() + b"\0"),
        (adapter / "adapter_model.safetensors", b"two"),
        (adapter / "adapter_config.json", b'{"r": 9}'),
        (model / "chat_template.jinja", b"{{ messages[0].content }}"),
        (model / "tokenizer_config.json", b"{}"),
        (model / "generation_config.json", b'{"eos_token_id": 1}'),
    ):
        path.write_bytes(content)
        keys.append(key(config))
    assert len(set(keys)) == len(keys)
    assert identified(config).weights_sha256 != identified(replace_lora(config, None)).weights_sha256


def replace_lora(config: Config, lora: str | None) -> Config:
    return replace(config, model=replace(config.model, lora=lora))


def test_a_servers_prompts_are_made_with_the_template_here_unless_it_is_a_chat(
    served: Config, tiny_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    served.model.path = str(model)
    chat = replace(served, backend=replace(served.backend, api="chat"))
    before = key(served), key(chat)
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert key(served) != before[0]
    assert key(chat) == before[1]


@pytest.mark.parametrize("library", ["torch", "transformers", "tokenizers", "numpy", "my-grader"])
def test_another_version_of_a_library_is_another_run(
    library: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, real = Mine(), libraries.version
    task.libraries = ("my-grader",)
    monkeypatch.setattr(libraries, "version", lambda name: "1" if name == "my-grader" else real(name))
    before = key(config, task)
    monkeypatch.setattr(
        libraries, "version", lambda name: "9" if name == library else real(name) if name != "my-grader" else "1"
    )
    assert key(config, task) != before


def test_another_python_and_another_release_are_other_runs(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key(config)}
    monkeypatch.setattr(identity, "product_version", lambda: "9.9.9")
    keys.add(key(config))
    monkeypatch.setattr("sys.version_info", (3, 99, 0))
    keys.add(key(config))
    assert len(keys) == 3


@pytest.mark.parametrize(
    "file",
    [
        "decoders/loop.py", "decoders/parts/fills.py", "tasks/gsm8k/answers.py", "tasks/sandbox/suites.py",
        "lopa_bench/engines/masked.py", "lopa_bench/backends/server/http.py", "lopa_bench/models/checkpoint/loader.py",
        "lopa_bench/run/completion.py", "lopa_bench/run/replies.py", "lopa_bench/run/rows.py",
        "lopa_bench/plan/units.py",
    ],
)  # fmt: skip
def test_a_changed_line_of_what_decides_a_row_is_another_run(
    file: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = identity.ROOT
    for part in identity.CODE:
        source, target = root / part, tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    before = code_sha256.__wrapped__()
    with (tmp_path / file).open("a") as code:
        code.write("\n")
    after = code_sha256.__wrapped__()
    assert after != before
    monkeypatch.setattr(identity, "code_sha256", lambda: after)
    changed_code = key(config)
    monkeypatch.setattr(identity, "code_sha256", lambda: before)
    assert key(config) != changed_code


def test_problems_count_by_id_gold_prompt_and_turns(config: Config) -> None:
    task = Mine()
    keys = [key(config, task), key(config, task, prompt="another?")]
    for problem in (
        replace(PROBLEMS[0], gold="7"),
        replace(PROBLEMS[0], id="p-7"),
    ):
        task.problems = [problem, PROBLEMS[1]]
        keys.append(key(config, task))
    task.problems = PROBLEMS[::-1]
    keys.append(key(config, task))
    turns = [(problem, Mine().prompt(problem)) for problem in PROBLEMS]
    keys.append(identify(config, Mine(), turns).key)
    assert len(set(keys)) == len(keys)


def test_a_task_counts_by_its_source_scorer_and_stop_strings(config: Config) -> None:
    task = Mine()
    keys = [key(config, task)]
    task.source = replace(task.source, sha256="6" * 64)
    keys.append(key(config, task))
    task.scorer = "other"
    keys.append(key(config, task))
    task.stop = ("\n", "x")
    keys.append(key(config, task))
    assert len(set(keys)) == len(keys)


def test_the_rows_of_a_task_of_ones_own_count_whatever_its_source_says(config: Config) -> None:
    task = Mine()
    config.task.target = "nowhere:Mine"
    before = key(config, task)
    task.problems = [replace(PROBLEMS[0], row={"n": 9}), PROBLEMS[1]]
    assert key(config, task) != before


def test_shards_of_a_run_share_a_key_of_their_own(config: Config) -> None:
    whole = identified(config)
    config.run.shard = "0/2"
    first = identify(config, Mine(), [(PROBLEMS[0], Prompt("one?"))])
    config.run.shard = "1/2"
    second = identify(config, Mine(), [(PROBLEMS[1], Prompt("two?"))])
    assert len({whole.key, first.key, second.key}) == 3
    assert whole.union_key == first.union_key == second.union_key
    config.run.seed = 1
    assert identify(config, Mine(), [(PROBLEMS[1], Prompt("two?"))]).union_key != whole.union_key
