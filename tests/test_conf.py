"""Every choice of the configuration composes and is valid; wrong overrides fail fast and clearly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from decoders import UNMASKED, make_decoder, resolve_settings
from lopa_bench.backends.config import BackendError
from lopa_bench.config import Config, register, validate

CONF = Path(__file__).parents[1] / "conf"


def composed(*overrides: str) -> Config:
    register()
    with initialize_config_module("conf", version_base="1.3"):
        config = OmegaConf.to_object(compose("config", list(overrides)))
    assert isinstance(config, Config)
    return config


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


CAUSAL = ("causal", "mini_ar", "qwen3_8b")
MASKED = [name for name in choices("decoder") if name not in UNMASKED]
FITTING = [(name, model) for name in MASKED for model in choices("model") if model not in CAUSAL]
FITTING += [("ar", model) for model in CAUSAL] + [
    ("served", model) for model in choices("model") if model not in CAUSAL
]


def _pair(decoder: str, model: str) -> Config:
    extra = ["model.path=embedded:mini"] if model in ("dream", "llada", "causal") else []
    backend = ["backend=sglang", "backend.launch=true"] if decoder == "served" else []
    return composed(f"decoder={decoder}", f"model={model}", *extra, *backend)


@pytest.mark.parametrize("name", choices("decoder"))
def test_every_decoder_file_is_valid_with_every_model_that_it_can_run(name: str) -> None:
    for model in choices("model"):
        config = _pair(name, model)
        if (name, model) in FITTING:
            validate(config)
            assert resolve_settings(config.decoder).name == name
        else:
            with pytest.raises(BackendError, match="allowed"):
                validate(config)


def test_an_autoregressive_model_brings_its_decoder_unless_one_is_asked_for() -> None:
    assert composed("model=qwen3_8b").decoder.name == "ar"
    assert composed("backend=sglang", "model=qwen3_8b", "task=gsm8k").decoder.name == "ar"
    assert composed("model=qwen3_8b", "decoder=served").decoder.name == "served"
    assert composed("model=qwen3_8b").model.chat_template_kwargs == {"enable_thinking": False}


@pytest.mark.parametrize("name", choices("backend"))
def test_every_backend_file_is_valid(name: str) -> None:
    if name == "local":
        validate(composed())
        return
    validate(composed(f"backend={name}", "model=mini_ar", "backend.url=http://127.0.0.1:30000"))
    if name != "openai":
        validate(composed(f"backend={name}", "model=mini_ar", "backend.launch=true"))


@pytest.mark.parametrize("name", choices("task"))
def test_every_task_file_is_valid(name: str) -> None:
    validate(composed(f"task={name}"))


def test_with_one_model_k_0_of_lopa_is_its_base_by_default() -> None:
    """The files of the bases and lopa's own agree on what the fill rule reads, on the embedded model."""
    for base in ("greedy", "fast_dllm", "d2f", "llada"):
        plain = make_decoder(composed(f"decoder={base}").decoder).config
        lopa = make_decoder(composed("decoder=lopa", f"decoder.base={base}", "decoder.k=0").decoder).config
        for name in ("fill", "attention", "cache", "block_size", "tau_conf", "tau_add", "tau_act", "forced", "steps"):
            assert getattr(plain, name) == getattr(lopa, name), (base, name)
        assert lopa.fill_confidence == plain.fill_confidence


WRONG = [
    (["decoder.k=-1"], "decoder.k=-1 is not allowed; allowed: from 0 to 1024"),
    (["decoder.k=two"], "decoder.k=two is not allowed; allowed: an integer from 0 to 1024, or auto"),
    (["task=gsm9k"], "task=gsm9k is unknown; allowed: gsm8k"),
    (["decoder.tau_conf=1.5"], "decoder.tau_conf=1.5 is not allowed; allowed: from 0 to 1"),
    (["decoder.block_size=0"], "decoder.block_size=0 is not allowed; allowed: from 1 to 65536"),
    (["decoder.tau_conf=abc"], "decoder.tau_conf: Value 'abc' of type 'str' could not be converted to Float"),
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
    (["backend=vllm", "model=mini_ar", "backend.url=http://a:1", "backend.rate=0"], "allowed: numbers above 0"),
    (["backend=sglang", "backend.url=http://a:1"], "decoder=lopa cannot run on backend=sglang"),
    (["decoder=ar"], "decoder=ar needs an autoregressive model; allowed: model=mini_ar"),
    (["model=mini_ar", "decoder=lopa"], "model=mini_ar is autoregressive: decoder=lopa cannot run it"),
    (["decoder=served"], "decoder=served needs a server"),
    (["model=mini_ar", "run.batch=4"], "run.batch=4 is not allowed with decoder=ar; allowed: 1"),
    (["model=mini_ar", "+decoder.tau_conf=0.5"], "decoder.tau_conf=0.5 has no meaning for decoder=ar"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG)
def test_a_wrong_override_is_one_message_and_status_2(overrides: list[str], message: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lopa_bench", *overrides]
    environment = {key: value for key, value in os.environ.items() if key != "HYDRA_FULL_ERROR"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
