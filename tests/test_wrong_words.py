"""A wrong word on the command line is one message: what is no setting, what is no value, what was probably meant."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args, get_origin

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf

from lopa_bench.console.explain import explain
from lopa_bench.settings.arguments import check
from lopa_bench.settings.backend import ServerSettings
from lopa_bench.settings.config import Config, register
from lopa_bench.settings.known import known
from lopa_bench.settings.validate import validate
from tests.test_conf import CONF

SERVED = ("backend=openai", "model=mini_ar", "backend.url=http://a:1")
WRONG = [
    (["decoder.k=-1"], "decoder.k=-1 is not allowed; allowed: an integer from 0 to 1024"),
    (["decoder.k=two"], "decoder.k=two is not allowed; allowed: an integer from 0 to 1024, or auto"),
    (["task=gsm9k"], "task=gsm9k is unknown; allowed: gsm8k"),
    (["decoder.tau_conf=1.5"], "decoder.tau_conf=1.5 is not allowed; allowed: a finite number from 0 to 1"),
    (["decoder.block_size=0"], "decoder.block_size=0 is not allowed; allowed: an integer from 1 to 65536"),
    (["decoder.tau_conf=abc"], "decoder.tau_conf=abc is not allowed; allowed: a finite number from 0 to 1, or null"),
    (["decoder.kk=3"], "decoder.kk is no setting; allowed here: name,"),
    (["decoder=greedy", "decoder.tau_conf=0.5"], "decoder.tau_conf=0.5 has no meaning for decoder=greedy"),
    (["model=dream"], "model.path is not set"),
    (["backend.prefix_reuse=exact", "decoder.attention=full"], "needs decoder.attention=block_causal"),
    (["decoder.gen_length=1024"], "leaves no room for a prompt"),
    (["backend=sglan"], "backend=sglan is unknown; allowed: lmdeploy, local, openai, sglang, transformers_serve, vllm"),
    (["backend=openai", "model=mini_ar"], "backend.url is not set; allowed: http://HOST:PORT of a running server, or"),
    (["backend=openai", "model=mini_ar", "backend.url=localhost:1"], "backend.url=localhost:1 is not allowed"),
    (["backend=openai", "model=mini_ar", "backend.launch=true"], "backend.launch=true needs backend.command"),
    (["backend=vllm", "model=mini_ar", "backend.launch=true", "backend.args=['{prt}']"], "{prt} is unknown; allowed:"),
    (["backend=vllm", "model=mini_ar", "backend.url=http://a:1", "backend.api=generate"], "allowed: completions, chat"),
    (
        ["backend=vllm", "model=mini_ar", "backend.url=http://a:1", "backend.rate=0"],
        "allowed: a finite number above 0, or null",
    ),
    ([*SERVED, "backend.timeout_s=inf"], "backend.timeout_s=inf is not allowed; allowed: a finite number above 0"),
    ([*SERVED, "+backend.body.top_p=nan"], "backend.body.top_p=nan is not allowed; allowed: finite numbers"),
    (
        [*SERVED, "backend.name=local"],
        "backend.name=local is not allowed; allowed: sglang or openai with these settings",
    ),
    (["backend.name=sglang"], "backend.name=sglang is not allowed; allowed: local with these settings"),
    (["backend.device=cuda:x"], "backend.device=cuda:x is not allowed; allowed: auto, cpu, cuda, mps, npu"),
    (["backend=sglang", "backend.url=http://a:1"], "decoder=lopa cannot run on backend=sglang"),
    (["decoder=ar"], "decoder=ar needs an autoregressive model; allowed: model=mini_ar"),
    (["model=mini_ar", "decoder=lopa"], "model=mini_ar is autoregressive: decoder=lopa cannot run it"),
    (["decoder=served"], "decoder=served needs a server"),
    (["model=mini_ar", "run.batch=4"], "run.batch=4 is not allowed with decoder=ar; allowed: 1"),
    (["model=mini_ar", "+decoder.tau_conf=0.5"], "decoder.tau_conf=0.5 has no meaning for decoder=ar"),
]


MISSPELT = [
    (["decoder.kk=3"], "decoder.k=3"),
    (["-m", "decoder.kk=0,1"], "decoder.k=0,1"),
    (["k=8"], "decoder.k=8"),
    (["limit=3"], "task.limit=3"),
    (["taks.limit=3"], "task.limit=3"),
    (["run.limit=3"], "task.limit=3"),
    (["decoder/k=3"], "decoder.k=3"),
    (["decoder.score.kindd=mean"], "decoder.score.kind=mean"),
    (["--k", "8"], "decoder.k=8"),
    (["--k=8"], "decoder.k=8"),
    (["--decoder.k=8"], "decoder.k=8"),
    (["--tau-conf", "0.8"], "decoder.tau_conf=0.8"),
    (["--multirn"], "--multirun"),
    (["lss"], "ls"),
    (["shwo", "x"], "show"),
    (["lopa"], "decoder=lopa"),
    (["gsm8k", "decoder=d2f"], "task=gsm8k"),
    (["task=gsm8"], "task=gsm8k"),
    (["decoder=lopaa"], "decoder=lopa or decoder=llada"),
    (["model=Mini"], "model=mini or model=mini_ar"),
    (["backend=vlm"], "backend=vllm"),
    (["+experiment=ablation/kk"], "experiment=ablation/k or experiment=ablation/floor or experiment=ablation/fallback"),
    (["+experiment=papr/k"], "experiment=paper/k or experiment=paper/code"),
    (["run.preset=efective"], "run.preset=effective"),
]


def message(*arguments: str) -> str | None:
    """What a command line with these words says before anything is loaded; None if all is right."""
    try:
        check(arguments)
        config = OmegaConf.to_object(composed_words([word for word in arguments if not word.startswith("-")]))
        assert isinstance(config, Config)
        validate(config)
    except Exception as error:
        return explain(error, arguments)
    return None


def composed_words(words: list[str]) -> DictConfig:
    """Composing takes long: plain settings are set on what was composed before, as Hydra would."""
    plain = [
        word for word in words if re.match(r"[a-z_]+(\.\w+)*=(?!.*[,(])", word) and word.partition("=")[0] in known()
    ]
    later = [word for word in plain if not OmegaConf.is_config(_default().get(word.partition("=")[0]))]
    config = copy.deepcopy(_default(*(word for word in words if word not in later)))
    for override in OverridesParser.create().parse_overrides(later):
        OmegaConf.update(config, override.key_or_group, override.value())
    return config


@lru_cache
def _default(*words: str) -> DictConfig:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(words))


@pytest.mark.parametrize(("arguments", "near"), MISSPELT)
def test_a_wrong_spelling_is_told_the_right_one(arguments: list[str], near: str) -> None:
    text = message(*arguments)
    assert text
    assert text.startswith("error: ")
    assert text.endswith(f"; did you mean {near}?")
    assert "\n" not in text


WRONG_VALUES = [
    ("run.seed=9223372036854775808", "an integer from 0 to 9223372036854775807"),
    ("run.seed=null", "an integer from 0 to 9223372036854775807"),
    ("run.seed=1.5", "an integer from 0 to 9223372036854775807"),
    ("run.seed=true", "an integer from 0 to 9223372036854775807"),
    ("run.batch=0", "an integer from 1 to 65536"),
    ("run.batch=1e3", "an integer from 1 to 65536"),
    ("run.batch=nan", "an integer from 1 to 65536"),
    ("run.batch=99999999999999999999", "an integer from 1 to 65536"),
    ("run.warmup=-1", "an integer from 0 to 65536"),
    ("decoder.k=1.5", "an integer from 0 to 1024, or auto"),
    ("decoder.k=[1]", "an integer from 0 to 1024, or auto"),
    ("decoder.k=null", "an integer from 0 to 1024, or auto"),
    ("decoder.tau_conf=nan", "a finite number from 0 to 1, or null"),
    ("decoder.tau_conf=[0.5]", "a finite number from 0 to 1, or null"),
    ("decoder.mask_logit=3", "exclude, keep"),
    ("model.end_ids=[]", "a list of ids of 0 and above, or null"),
    ("model.end_ids=[-1]", "a list of ids of 0 and above, or null"),
    ("model.end_ids=3", "a list, or null"),
    ("model.name=null", "text"),
    ("model.name=[a]", "text"),
    ("model.name={a:1}", "text"),
    ("model.max_length=1", "an integer from 2 to 16777216"),
    ("model.chat_template_kwargs=3", "a mapping"),
    ("task.limit=0", "an integer from 1 to 9223372036854775807, or null"),
    ("task.limit=1.5", "an integer from 1 to 9223372036854775807, or null"),
    ("objective.accuracy=1.5", "a finite number from 0 to 1, or null"),
    ("objective.accuracy=nan", "a finite number from 0 to 1, or null"),
    ("tracker.group=[a]", "text, or null"),
    ("run.out=null", "text"),
    ("resume=2", "true or false"),
    ("resume=perhaps", "true or false"),
    ("fail_fast=null", "true or false"),
    (
        "decoder=null",
        "ar, d2f, d3llm, diffusion_gemma, dream, eb, entropy, fast_dllm, fast_dllm_v2, frechet, greedy, "
        "joint_threshold, joint_threshold_hub, klass, llada, llada2, lopa, multibd, saber, sdar, served, wino",
    ),
    ("model.name=a,b", "one value (\"model.name='a,b'\" if it has a comma), or -m model.name=a,b for a job each"),
    (
        "decoder.k=0,2",
        "one value (an integer from 0 to 1024, or auto; a number has a point, no comma), or -m decoder.k=0,2 "
        "for a job each",
    ),
    ("+decoder.k=3", "decoder.k=3"),
    ("backend.threads=99999999999999999999", "integers up to 9223372036854775807"),
]


@pytest.mark.parametrize(("word", "allowed"), WRONG_VALUES)
def test_a_wrong_value_is_told_with_its_key_and_what_is_allowed(word: str, allowed: str) -> None:
    text = message(word)
    assert text
    assert text.startswith(f"error: {word} ")
    assert text.endswith(f"; allowed: {allowed}")
    assert "\n" not in text


@pytest.mark.parametrize("key", ["model.name", "run.out", "tracker.project", "model.lora", "task.scorer"])
def test_an_empty_text_is_no_value(key: str) -> None:
    assert (message(f"{key}=") or "").startswith(f"error: {key} is empty; allowed: text")


@pytest.mark.parametrize("key", ["run.out", "tracker.uri", "model.path", "model.lora"])
def test_the_home_of_nobody_is_no_path(key: str) -> None:
    assert (message(f"{key}='~nobody-here/x'") or "").startswith(f"error: {key}=~nobody-here/x is ")


@pytest.mark.parametrize("word", ["model.name=数", "model.name=(a", "decoder.k==3", "run.seed=٣"])
def test_what_cannot_be_read_is_told_how_to_quote(word: str) -> None:
    text = message(word) or ""
    assert text.startswith(f"error: {word} cannot be read as NAME=VALUE; ")
    assert "quotes" in text


@pytest.mark.parametrize(
    "word", ["model.name='数'", "model.name='a[/b]'", "model.name=true", "resume=off", "run.seed=0"]
)
def test_what_is_right_is_let_through(word: str) -> None:
    assert message(word) is None


def test_entries_of_a_mapping_may_have_any_name() -> None:
    arguments = ["backend=vllm", "model=mini_ar", "+backend.body.top_k=3", "+backend.env.A=b"]
    assert message(*arguments, "+model.chat_template_kwargs.thinking=true") is None


def test_an_entry_that_a_mapping_has_not_is_told_how_to_add_it() -> None:
    text = message("backend=vllm", "model=mini_ar", "backend.body.top_k=3")
    assert text == "error: backend.body.top_k is not there yet; allowed: +backend.body.top_k=3, which adds it"


def test_a_choice_of_a_folder_lists_the_whole_folder_and_the_others_in_short() -> None:
    text = message("+experiment=ablation/kk") or ""
    for path in (CONF / "experiment" / "ablation").glob("*.yaml"):
        assert f"ablation/{path.stem}" in text
    assert "table4/d2f_dream_base_s10_gsm8k and 71 more in table4" in text


@pytest.mark.parametrize(
    ("argument", "folder"),
    [("+experiment=table4/kk", "experiment/table4"), ("decoder=kk", "decoder"), ("model=kk", "model")],
)
def test_a_choice_that_there_is_not_is_told_all_that_stand_where_it_was_looked_for(argument: str, folder: str) -> None:
    allowed = (message(argument) or "").partition("allowed: ")[2]
    names = {path.stem for path in (CONF / folder).glob("*.yaml")}
    assert names <= {name.rpartition("/")[2] for name in re.split(r"[,; ]+", allowed)}


def test_a_choice_of_a_folder_of_ones_own_is_among_those_that_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "decoder").mkdir()
    (tmp_path / "decoder" / "leftmost.yaml").write_text("name: leftmost\n")
    error = MissingConfigException("", "decoder/leftmos", ["greedy"])
    text = explain(error, ["--config-dir", str(tmp_path), "decoder=leftmos"]) or ""
    assert text.endswith("; did you mean decoder=leftmost?")
    check(["--config-dir", str(tmp_path), "decoder=leftmost"])


def test_a_setting_of_another_backend_is_told_which_reads_it() -> None:
    start = "error: backend.url is no setting of this backend; it is read by backend=openai, sglang, vllm"
    assert (message("backend.url=http://x") or "").startswith(start)
    text = message("backend=vllm", "model=mini_ar", "backend.device=cpu") or ""
    assert text.startswith("error: backend.device is no setting of this backend; it is read by backend=local")


@pytest.mark.parametrize(("word", "allowed"), [("~decoder", "decoder={ar,d2f,"), ("~run.seed", "run.seed=VALUE")])
def test_nothing_that_a_run_needs_can_be_taken_away(word: str, allowed: str) -> None:
    assert (message(word) or "").startswith(
        f"error: {word} is not allowed: a run needs every setting; allowed: {allowed}"
    )


def test_an_interpolation_of_nothing_names_the_setting_that_has_it() -> None:
    assert (message("model.name=${x}") or "").startswith("error: model.name=${x}: interpolation key 'x' not found")


def test_every_setting_with_a_value_of_a_wrong_kind_is_one_sentence_with_its_name() -> None:
    """No key of any backend is forgotten: a list is wrong for all but lists, and a text for those."""
    for key, kind in known().items():
        if "." not in key or key == "backend.name":
            continue
        where = ["backend=vllm", "model=mini_ar"] if key in SERVER else []
        several = is_dataclass(kind) or any(get_origin(part) in (list, dict) for part in (kind, *get_args(kind)))
        word = f"{key}=3" if several else f"{key}=[{{a:1}}]"
        text = message(*where, word) or ""
        assert text.startswith(f"error: {word} is not allowed; allowed: "), text
        assert "\n" not in text
        assert "Optional" not in text


SERVER = {f"backend.{field.name}" for field in fields(ServerSettings)}


@pytest.mark.parametrize(("overrides", "start"), WRONG)
def test_a_wrong_override_is_one_message(overrides: list[str], start: str) -> None:
    text = message(*overrides) or ""
    assert text.startswith("error: ")
    assert start in text
    assert "\n" not in text


@pytest.mark.parametrize("overrides", [["decoder.kk=3"], ["--k", "8"], ["run.seed=9223372036854775808"]])
def test_a_wrong_override_ends_with_status_2_and_leaves_nothing_behind(overrides: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lopa_bench", *overrides]
    environment = {key: value for key, value in os.environ.items() if key != "HYDRA_FULL_ERROR"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{message(*overrides)}\n"
    assert list(tmp_path.iterdir()) == []
