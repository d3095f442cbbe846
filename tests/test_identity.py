"""Two runs are the same run exactly if nothing that changes a row differs between them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from decoders.config import DecoderConfig
from lopa_bench.errors import CheckpointError
from lopa_bench.plan.identity import CHANGES_NO_ROW, Identity, identify
from lopa_bench.plan.plan import Plan, make_plan
from lopa_bench.run.runner import run
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.model import ModelSettings
from tasks.base import Task
from tasks.types import Problem, Prompt, Score, Source, TaskConfig

PROBLEMS = [Problem("p-0", "one?", "1", {"n": 1}), Problem("p-1", "two?", "2", {"n": 2})]


class Mine(Task):
    def __init__(self, scorer: str | None = None) -> None:
        self.name, self.scorer, self.stop = "mine", scorer or "equal", ("\n",)
        self.source, self.problems = Source("file", "mine", "5" * 64, 2), PROBLEMS

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.question, ({"role": "user", "content": problem.question},))

    def score(self, problem: Problem, completion: str) -> Score:
        return Score(completion == problem.gold, "ok")


def tiny_config(tiny_model: Path) -> Config:
    return Config(
        decoder=DecoderConfig(name="lopa", k=2, gen_length=16, block_size=8, attention="full"),
        task=TaskConfig(source="embedded", limit=3),
        model=ModelSettings(name="tiny", path=str(tiny_model), max_length=512),
        backend=LocalSettings(device="cpu"),
    )


def served_config(config: Config) -> Config:
    return replace(config, backend=ServerSettings(name="openai", url="http://127.0.0.1:1"))


@pytest.fixture
def config(tiny_model: Path) -> Config:
    return tiny_config(tiny_model)


@pytest.fixture
def served(config: Config) -> Config:
    return served_config(config)


def identified(config: Config, task: Task | None = None, prompt: str = "") -> Identity:
    """Of a run of two problems, whatever the settings say."""
    task = task or Mine(config.task.scorer)
    return identify(config, task, [(problem, Prompt(prompt or problem.question)) for problem in task.problems])


def key(config: Config, task: Task | None = None, prompt: str = "") -> str:
    return identified(config, task, prompt).key


OTHER: Mapping[str, Any] = {  # each setting with a value that is not its default
    "decoder.name": "d2f", "decoder.target": "nowhere:THING", "decoder.base": "greedy", "decoder.gen_length": 32,
    "decoder.block_size": 4, "decoder.attention": "block_causal", "decoder.cache": "exact", "decoder.fill": "budget",
    "decoder.grid": "absolute", "decoder.store": "forward", "decoder.sub_block_size": 2, "decoder.denoising_steps": 2,
    "decoder.buffer_size": 2,
    "decoder.tokens_per_step": 2, "decoder.steps": 4, "decoder.empty_steps": "run", "decoder.factor": 0.5,
    "decoder.first_position": "rule", "decoder.tau_conf": 0.8, "decoder.tau_add": 0.2, "decoder.tau_act": 0.9,
    "decoder.forced": "global", "decoder.confidence": "margin", "decoder.fill_confidence": "prob", "decoder.k": 3,
    "decoder.prefix_look": 3, "decoder.after_look": 4, "decoder.warmup_steps": 1, "decoder.eager": True,
    "decoder.eos_penalty": 3.0, "decoder.early_stop": True, "decoder.cache_delay": 2, "decoder.refresh_interval": 4,
    "decoder.floor": 0.1, "decoder.complete": "verify", "decoder.select": "gate",
    "decoder.gate": 0.3, "decoder.confirm": 0.4, "decoder.confirm_best": True,
    "decoder.gamma": 0.2, "decoder.delta": 0.3, "decoder.tau_entropy": 0.4, "decoder.tau_kl": 0.02,
    "decoder.kl_steps": 3, "decoder.behind_end": "wait",
    "decoder.tau_run": 0.3, "decoder.tau_edit": 0.7, "decoder.tau_back": 0.7, "decoder.max_post_edit": 3,
    "decoder.capped": "end", "decoder.penalty": 1.5,
    "decoder.decode_tail": True, "decoder.mask_logit": "keep",
    "decoder.top_p": 0.9, "decoder.top_k": 5, "decoder.alg_temp": 0.1, "decoder.cfg_scale": 1.0,
    "decoder.logits_eos_inf": True, "decoder.confidence_eos_eot_inf": True,
    "decoder.temperature": 0.5, "decoder.score.kind": "mixed", "decoder.score.target": "nowhere:SCORE",
    "decoder.score.bottom": 0.5, "decoder.score.window": 3, "decoder.score.creation_weight": 0.1,
    "decoder.score.alpha": 0.1, "decoder.own": {"mine": 1},
    "task.name": "math", "task.target": "nowhere:Task", "task.source": "hub", "task.limit": 2,
    "task.rows": "1-2", "task.shots": 1,
    "task.shots_style": "lm_eval", "task.prompt_style": "plain", "task.revision": "v1", "task.scorer": "strict",
    "task.samples": 2,
    "model.name": "other", "model.revision": "v1", "model.lora": "ADAPTER", "model.lora_revision": "v1",
    "model.path": "COPY", "model.layout": "dream", "model.dtype": "bfloat16", "model.max_length": 256,
    "model.gen_length": 9, "model.block_size": 9, "model.attention": "block_causal", "model.grid": "absolute",
    "model.add_bos": True,
    "model.chat_template_kwargs": {"enable_thinking": False}, "model.toy": True, "model.end_ids": [7],
    "model.quantize": "w8a8",
    "run.seed": 1, "run.batch": 2, "run.warmup": 0, "run.shard": "0/2", "run.devices": "2",
    "run.same_devices": True,
    "run.stall_s": 60.0,
    "run.preset": "lopa_dream", "run.out": "elsewhere", "run.progress": False, "run.json": "never",
    "backend.name": "another", "backend.device": "cuda:1", "backend.threads": 3,
    "backend.attention": "fused", "backend.compile": "compile",
    "backend.prefix_reuse": "exact", "backend.branch_ranks": 2, "backend.tensor_ranks": 2,
    "backend.branch_protocol": "single_phase",
    "backend.branch_check": True, "backend.link": "gloo", "backend.rank_timeout_s": 3.0,
    "backend.url": "http://127.0.0.1:2", "backend.launch": True, "backend.command": ["serve"], "backend.args": ["-x"],
    "backend.env": {"A": "b"}, "backend.startup_s": 1.0, "backend.model_name": "m", "backend.algorithm": "fast",
    "backend.api": "chat", "backend.prompt": "text", "backend.body": {"top_p": 0.5}, "backend.stop": True,
    "backend.stream": True, "backend.stream_usage": False, "backend.flush_cache": True, "backend.key_env": "KEY",
    "backend.timeout_s": 1.0, "backend.retries": 1, "backend.backoff_s": 1.0, "backend.concurrency": 2,
    "backend.rate": 1.0, "backend.slo_s": 1.0, "backend.slo_ttft_s": 1.0,
    "tracker": None, "objective": None, "resume": False, "fail_fast": True, "keep_model": True, "against": "decoder:ar",
}  # fmt: skip


def settings_of(owner: Any, prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name."""
    for field in fields(owner):
        value = getattr(owner, field.name)
        if is_dataclass(value) and field.name not in ("tracker", "objective"):
            yield from settings_of(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def names() -> list[tuple[str, str]]:
    """Every setting there is, with the fixture whose configuration has it."""
    local = [("config", name) for name in settings_of(Config(backend=LocalSettings()))]
    return local + [("served", name) for name in settings_of(Config(backend=ServerSettings())) if "backend." in name]


def changed(config: Config, name: str, value: Any) -> None:
    *owners, last = name.split(".")
    owner: Any = config
    for part in owners:
        owner = getattr(owner, part)
    before = getattr(owner, last)
    assert value != before, f"{name} is {value} already"
    setattr(owner, last, value)


def test_every_setting_has_another_value_to_be_tried_with() -> None:
    """A new setting counts by itself; here it gets the value that shows it, or in CHANGES_NO_ROW the reason why not."""
    there = {name for _, name in names()}
    assert there == set(OTHER)
    assert set(CHANGES_NO_ROW) <= there
    assert all(CHANGES_NO_ROW.values())


@pytest.mark.parametrize(("fixture", "name"), names())
def test_every_setting_that_can_change_a_row_changes_the_key(
    fixture: str, name: str, tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config: Config = request.getfixturevalue(fixture)
    before = key(config)
    value = OTHER[name]
    if value in ("ADAPTER", "COPY"):
        shutil.copytree(tiny_model, tmp_path / value)
        shutil.copy(tiny_model / "model.safetensors", tmp_path / value / "adapter_model.safetensors")
        value = str(tmp_path / value)
    changed(config, name, value)
    assert (key(config) != before) == (name not in CHANGES_NO_ROW)


@pytest.mark.parametrize(
    ("fixture", "name"),
    [
        *(("config", name) for name in ("run.batch", "run.warmup", "backend.threads", "backend.compile")),
        *(("served", name) for name in ("backend.concurrency", "backend.rate", "backend.flush_cache")),
    ],
)
def test_what_changes_times_alone_makes_another_run(fixture: str, name: str, request: pytest.FixtureRequest) -> None:
    """Speeds are results, too; nobody may call such a setting one that changes no row."""
    config: Config = request.getfixturevalue(fixture)
    before = key(config)
    changed(config, name, OTHER[name])
    assert key(config) != before


def test_the_address_of_a_launched_server_is_of_the_moment(served: Config) -> None:
    backend = served.backend
    assert isinstance(backend, ServerSettings)
    backend.launch, backend.command = True, ["serve"]
    before = key(served)
    backend.url = "http://127.0.0.1:2"
    assert key(served) == before


def test_a_default_said_aloud_is_the_same_run(config: Config) -> None:
    def planned() -> str:
        return make_plan(config, {}).identity.key

    before = planned()
    config.decoder.base = "d2f"
    assert planned() == before
    config.decoder.k = 3
    assert planned() != before


def test_auto_means_embedded_problems_for_embedded_models_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def make(_: TaskConfig, embedded_default: bool) -> Task:
        asked.append(embedded_default)
        raise InterruptedError

    monkeypatch.setattr("lopa_bench.plan.plan.make_task", make)
    for path in (config.model.path, "embedded:mini"):
        config.model.path = path
        with pytest.raises(InterruptedError):
            make_plan(config, {})
    assert asked == [False, True]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer_config.json"])
def test_a_file_that_changes_between_its_checksum_and_the_load_is_refused(
    name: str, config: Config, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    config.model.path = str(folder)
    config.run.out = str(tmp_path / "out")

    @contextmanager
    def loaded(plan: Plan, run_folder: Path) -> Iterator[None]:
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        yield

    monkeypatch.setattr("lopa_bench.engines.opening.open_engine", loaded)
    with pytest.raises(CheckpointError, match=r"copy were changed while they were loaded; allowed: the same command"):
        run(config, {})
    assert not list((tmp_path / "out").rglob("*.parquet"))
