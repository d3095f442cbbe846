"""A setting that nothing would read is refused with what would read it."""

from __future__ import annotations

import re

import pytest
from omegaconf import OmegaConf

from lopa_bench.errors import ConfigError
from lopa_bench.settings.config import Config
from lopa_bench.settings.unread import check_read, check_read_alone
from tests.test_wrong_words import SERVED, composed_words, message

UNREAD = [
    (
        ["model.lora_revision=abc"],
        "model.lora_revision=abc has no meaning here: it is read with a Hub",
    ),
    (["model.revision=main"], "model.revision=main has no meaning here: it is read with a Hub id as model.path"),
    (["objective.accuracy=0.5"], "it is read with objective.maximise"),
    (["tracker.group=a"], "tracker.group=a has no meaning here: it is read with tracker=wandb"),
    (["tracker.mode=online"], "it is read with tracker=wandb"),
    (["tracker.project=a"], "it is read with tracker=wandb"),
    ([*SERVED, "keep_model=true"], "keep_model=true has no meaning here: it is read with a model that"),
    *(
        (["keep_model=true", more], "keep_model=true has no meaning here")
        for more in (
            "run.devices=2",
            "backend.branch_ranks=2",
            "tracker=wandb",
            "decoder.target=mine:D",
            "decoder.score.target=mine:S",
            "task.target=mine:T",
        )
    ),
    ([*SERVED, "backend.args=[--tp]"], "it is read with backend.launch=true"),
    ([*SERVED, "+backend.env.A=b"], "it is read with backend.launch=true"),
    (
        [*SERVED, "backend.startup_s=9"],
        "backend.startup_s=9.0 has no meaning here: it is read with",
    ),
    ([*SERVED, "backend.stream_usage=false"], "backend.stream_usage=false has no meaning here: it is read with"),
    ([*SERVED, "backend.retries=0", "backend.backoff_s=3"], "it is read with backend.retries above 0"),
    ([*SERVED, "backend.algorithm=x"], "it is read with decoder=served"),
]
READ = [
    ["model=dream", "model.path=owner/name", "model.revision=main"],
    ["model=dream", "model.path=owner/name", "model.lora=owner/other", "model.lora_revision=main"],
    ["keep_model=true"],
    ["keep_model=true", "model=mini_ar", "decoder=ar", "backend.device=cuda:1", "run.batch=1"],
    ["objective.maximise=tpf", "objective.accuracy=0.5"],
    ["tracker=wandb", "tracker.group=a", "tracker.mode=online", "tracker.project=a"],
    [*SERVED, "backend.stream=true", "backend.stream_usage=false", "backend.backoff_s=3"],
    ["backend=vllm", "model=mini_ar", "backend.launch=true", "backend.args=[--tp]", "backend.startup_s=9"],
    *([f"model={name}"] for name in ("mini", "mini_ar", "qwen3_8b", "d2f_dream", "dream_instruct")),
]


@pytest.mark.parametrize(("overrides", "text"), UNREAD)
def test_a_setting_that_nothing_reads_is_refused_with_what_would_read_it(overrides: list[str], text: str) -> None:
    config = OmegaConf.to_object(composed_words(overrides))
    assert isinstance(config, Config)
    with pytest.raises(ConfigError, match=re.escape(text)):
        check_read(config)


@pytest.mark.parametrize("overrides", READ, ids=str)
def test_a_setting_that_is_read_is_let_through(overrides: list[str]) -> None:
    config = OmegaConf.to_object(composed_words(overrides))
    assert isinstance(config, Config)
    check_read(config)


@pytest.mark.parametrize("word", ["fail_fast=true", "keep_model=true", "against=k:0", "objective.maximise=tpf"])
def test_what_only_a_sweep_reads_is_refused_for_a_single_run(word: str) -> None:
    config = OmegaConf.to_object(composed_words([word]))
    assert isinstance(config, Config)
    with pytest.raises(ConfigError, match=f"{word} has no meaning for a single run: it is read by a sweep"):
        check_read_alone(config)
    check_read(config)


SHARED = ["backend.branch_ranks=2", "decoder.k=2"]
SINGLE = [*SHARED, "backend.branch_protocol=single_phase", "decoder.attention=block_causal"]
NOT_SHARED = [
    (["backend.branch_ranks=2", "decoder=ar", "model=mini_ar"], "decoder=ar, which has no branches; allowed: 1"),
    ([*SHARED, "decoder.base=klass"], "decoder.fill=stable, which compares whole distributions"),
    ([*SINGLE[:-1], "decoder.attention=full"], "decoder.attention=full: what is kept has seen what branches differ in"),
    ([*SINGLE, "decoder.cache=none"], "decoder.cache=none, which keeps more than finished blocks or nothing"),
    ([*SINGLE, "decoder.select=exact"], "decoder.select=exact: a drafted row may finish a block that the others"),
    ([*SINGLE, "decoder.base=joint_threshold"], "decoder.fill=joint_threshold: a block is kept as one branch has it"),
]


@pytest.mark.parametrize(("overrides", "text"), NOT_SHARED)
def test_what_ranks_cannot_share_is_refused_with_the_reason(overrides: list[str], text: str) -> None:
    told = message(*overrides)
    assert told is not None
    assert text in told
    assert "allowed" in told


@pytest.mark.parametrize("overrides", [SINGLE, [*SINGLE, "decoder.base=joint_threshold", "decoder.k=0"]])
def test_rows_that_finish_the_same_blocks_need_one_phase(overrides: list[str]) -> None:
    assert message(*overrides) is None
