"""What lm-eval hands over, as settings of this project: the words of `config`, and the arguments of a generation."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decoders.config import DecoderConfig
from lopa_bench import ROOT
from lopa_bench.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

# What would leave requests unanswered, or is lm-eval's own business.
NOT_HERE = {
    "task": "tasks are lm-eval's: --tasks, --limit, --num_fewshot",
    "run.shard": "every request needs an answer",
    "hydra": "lm-eval is the program that runs",
    "tracker": "lm-eval has trackers of its own (--wandb_args); lopa-bench send sends a finished run",
}
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the names that lm-eval knows
OF_DRAWING = ("temperature", "top_p", "top_k")  # without do_sample they mean nothing
NEUTRAL: Mapping[str, Sequence[Any]] = {"num_beams": (1,), "use_cache": (True, False), "do_sample": (True, False)}


def words_of(config: str | Sequence[str] | None) -> list[str]:
    """The words of a command line that `config` holds. Raises ConfigError for one that has no place here."""
    if config is None:
        return []
    if not isinstance(config, (str, list, tuple)):
        raise ConfigError(f"config={config} is not allowed; allowed: words such as model=mini, in one text or a list")
    try:
        words = shlex.split(config) if isinstance(config, str) else [str(word) for word in config]
    except ValueError as error:
        raise ConfigError(f"config={config} cannot be read ({error}); allowed: words such as model=mini") from None
    for word in words:
        name = word.lstrip("+~").partition("=")[0]
        for head, reason in NOT_HERE.items():
            if name == head or name.startswith((f"{head}.", f"{head}@")):
                raise ConfigError(f"config: {word} is not allowed here: {reason}")
    return words


def composed(words: Sequence[str]) -> DictConfig:
    """The configuration that these words make of conf/. Raises ConfigError, or what Hydra raises."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    from lopa_bench.entry import prepare
    from lopa_bench.settings.arguments import check

    check(words)
    if dashed := [word for word in words if word.startswith("-")]:
        raise ConfigError(f"config: {dashed[0]} is not allowed here; allowed: NAME=VALUE, such as decoder.k=8")
    prepare()
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        whole = compose("config", overrides=list(words), return_hydra_config=True)
        if whole.hydra.mode == RunMode.MULTIRUN:
            raise ConfigError(f"config={' '.join(words)} is a sweep; allowed: the settings of one run")
        return compose("config", overrides=list(words))


def is_told(words: Sequence[str], name: str) -> bool:
    """Whether the words themselves give this setting."""
    return any(re.match(rf"\+{{0,2}}{re.escape(name)}=", word) for word in words)


def agreed(words: Sequence[str], name: str, here: Any, asked: Any, source: str) -> Any:
    """What lm-eval asks for, where the words say nothing else. Raises ConfigError where they do."""
    if is_told(words, name) and here != asked:
        raise ConfigError(f"{name}={here} in config and {source}={asked} contradict each other; allowed: one of them")
    return asked


@dataclass(frozen=True)
class Generating:
    """How a group of requests is to be continued; what lm-eval does not say is None."""

    stop: tuple[str, ...] = ()
    length: int | None = None
    temperature: float | None = None
    drawing: tuple[tuple[str, Any], ...] = ()  # further settings of the decoder

    def changes(self, decoder: Mapping[str, Any], words: Sequence[str], task: str) -> list[str]:
        """What it changes of the configured decoder, as words; another length is said aloud. Raises ConfigError where
        `words` themselves say something else.
        """
        asked = {"gen_length": self.length, "temperature": self.temperature, **dict(self.drawing)}
        changed = {name: value for name, value in asked.items() if value not in (None, decoder.get(name))}
        for name, value in changed.items():
            source = "max_gen_toks" if name == "gen_length" else name
            agreed(words, f"decoder.{name}", decoder.get(name), value, f"{task}: {source}")
        if "gen_length" in changed:
            print(
                f"note: {task} asks for max_gen_toks={self.length}; the configured decoder.gen_length="
                f"{decoder['gen_length']} does not count",
                file=sys.stderr,
            )
        return [f"decoder.{name}={value}" for name, value in changed.items()]


def generating(kwargs: Mapping[str, Any], task: str) -> Generating:
    """Reads the generation arguments of a request. Raises ConfigError for one that cannot be followed."""
    if not isinstance(kwargs, Mapping):
        raise ConfigError(f"{task}: generation_kwargs={kwargs!r} is not allowed; allowed: names with values")
    left = dict(kwargs)
    stop = _stop(left.pop("until", None), task)
    length = _length({name: left.pop(name) for name in LENGTHS if left.get(name) is not None}, task)
    drawing = {name: left.pop(name) for name in OF_DRAWING if name in left}
    samples = left.pop("do_sample", None)
    for name, value in left.items():
        if value is not None and name not in LENGTHS and value not in NEUTRAL.get(name, ()):
            allowed = ", ".join(("until", "do_sample", *LENGTHS, *OF_DRAWING))
            raise ConfigError(f"{task}: the generation argument {name}={value} cannot be followed; allowed: {allowed}")
    temperature = _temperature(samples, drawing.pop("temperature", None), task)
    if not temperature:
        return Generating(stop, length, temperature)
    return Generating(stop, length, temperature, tuple(_read_by_decoders(drawing, task).items()))


def _stop(until: Any, task: str) -> tuple[str, ...]:
    texts = [until] if isinstance(until, str) else list(until or ())
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise ConfigError(f"{task}: until={wrong[0]!r} is not allowed; allowed: text, or a list of texts")
    return tuple(dict.fromkeys(text for text in texts if text))


def _length(given: Mapping[str, Any], task: str) -> int | None:
    if len({str(value) for value in given.values()}) > 1:
        raise ConfigError(f"{task}: {given} contradict each other; allowed: one of them")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{task}: {name}={value} is not allowed; allowed: an integer from 1")
        return value
    return None


def _temperature(samples: bool | None, temperature: Any, task: str) -> float | None:
    """As in lm-eval: without do_sample nothing is drawn, with it a temperature that is not given is 1."""
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, (int, float))):
        raise ConfigError(f"{task}: temperature={temperature!r} is not allowed; allowed: a number from 0")
    if samples is False:
        return 0.0
    if samples is True and temperature is None:
        return 1.0
    return None if temperature is None else float(temperature)


def _read_by_decoders(drawing: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The settings of a decoder that narrow a draw; values that narrow nothing are left out."""
    neutral = {"top_p": (1, 1.0, None), "top_k": (0, -1, None)}
    wanted = {name: value for name, value in drawing.items() if value not in neutral[name]}
    for name, value in wanted.items():
        if not hasattr(DecoderConfig(), name):
            raise ConfigError(f"{task}: {name}={value} cannot be followed: no decoder reads it; allowed: {name} unset")
    return wanted


def quoted(text: object) -> str:
    """A text as one value of a command line of this project."""
    return "'" + str(text).replace("\\", "\\\\").replace("'", "\\'") + "'"
