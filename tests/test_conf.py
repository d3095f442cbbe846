"""Every choice of the configuration composes and is valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from decoders import make_decoder, resolve_settings
from decoders.config import DecoderError
from lopa_bench.errors import BackendError
from lopa_bench.settings.config import Config, register
from lopa_bench.settings.model import LAYOUTS
from lopa_bench.settings.unread import check_read
from lopa_bench.settings.validate import validate

CONF = Path(__file__).parents[1] / "conf"


def composed(*overrides: str) -> Config:
    register()
    with initialize_config_module("conf", version_base="1.3"):
        config = OmegaConf.to_object(compose("config", list(overrides)))
    assert isinstance(config, Config)
    return config


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


MODELS = {name: yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text()) for name in choices("model")}
MODELS = {name: facts.get("model", facts) for name, facts in MODELS.items()}
KINDS = {tuple(facts.get(key) for key in ("layout", "grid", "attention")): name for name, facts in MODELS.items()}
CAUSAL = ("causal", "mini_ar", "qwen3_8b")
ON_THE_GRID = [name for name, facts in MODELS.items() if facts.get("grid") == "absolute"]


def fits(decoder: str, model: str) -> bool:
    if model in CAUSAL or decoder == "ar":
        return model in CAUSAL and decoder == "ar"
    if "diffusion_gemma" in (decoder, model):
        return model == "diffusion_gemma" and decoder in ("diffusion_gemma", "served")
    return not (decoder == "dream" and model in ON_THE_GRID)  # it has no blocks to count


def _pair(decoder: str, model: str) -> Config:
    extra = ["model.path=embedded:mini"] if model in ("dream", "llada", "causal") else []
    backend = ["backend=sglang", "backend.launch=true"] if decoder == "served" else []
    return composed(f"decoder={decoder}", f"model={model}", *extra, *backend)


@pytest.mark.parametrize("name", choices("decoder"))
def test_every_decoder_file_is_valid_with_every_kind_of_model_that_it_can_run(name: str) -> None:
    for model in KINDS.values():
        config = _pair(name, model)
        if fits(name, model):
            validate(config)
            assert resolve_settings(config.decoder).name == name.removesuffix("_hub")
        else:
            with pytest.raises((BackendError, DecoderError), match="allowed"):
                validate(config)


def test_every_model_file_is_valid_says_what_it_is_and_pins_nothing_unverified() -> None:
    for name in set(MODELS) - set(KINDS.values()):
        config = _pair("ar" if name in CAUSAL else "lopa", name)
        validate(config)
        check_read(config)
    for name, facts in MODELS.items():
        assert facts["name"] == name
        text = (CONF / "model" / f"{name}.yaml").read_text()
        if name not in ("dream", "llada", "mini", *CAUSAL):
            assert facts["layout"] in (*LAYOUTS, "diffusion_gemma"), name
            assert (facts["revision"], facts["path"].count("/")) == (None, 1), name
            assert all(f"# {word}" in text for word in ("Ids: ", "Logits: ", "Licence: ")), name


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


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("run.seed=-1", "from 0 to 9223372036854775807"),
        ("run.seed=9223372036854775808", "from 0 to 9223372036854775807"),
        ("run.batch=65537", "from 1 to 65536"),
        ("run.warmup=-1", "from 0 to 65536"),
        ("task.samples=0", "from 1 to 65536"),
        ("task.samples=9223372036854775808", "from 1 to 65536"),
        ("model.max_length=1", "from 2 to 16777216"),
        ("backend.threads=0", "from 1 to 4096"),
        ("backend.threads=5000", "from 1 to 4096"),
    ],
)
def test_a_whole_number_has_a_first_and_a_last_allowed_value(override: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"^{override} is not allowed; allowed: an integer {allowed}(, or null)?$"):
        validate(composed(override))


@pytest.mark.parametrize(
    "override", ["run.seed=9223372036854775807", "run.seed=0", "task.samples=65536", "run.batch=1"]
)
def test_the_first_and_the_last_value_are_allowed(override: str) -> None:
    validate(composed(override))


def test_joint_threshold_differs_from_its_twin_of_the_hub_in_the_defaults_of_the_two_programs() -> None:
    """SGLang's joint_threshold.py, and the generate of LLaDA2.1's own code."""
    twins = ("joint_threshold", "joint_threshold_hub")
    sglang, hub = (yaml.safe_load((CONF / "decoder" / f"{name}.yaml").read_text()) for name in twins)
    apart = {name: (sglang[name], hub[name]) for name in sglang if sglang[name] != hub[name]}
    assert apart == {"tau_conf": (0.5, 0.95), "tau_edit": (0.0, 0.9), "capped": ("verify", "end")}
