"""The command line: words NAME=VALUE, read and checked before anything else is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decoders.allowed import refused
from lopa_bench.cost.devices import Device, device
from lopa_bench.errors import ConfigError
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.settings.spelling import meant, nearest, nearest_setting

MODEL, K = "d2f_dream", 7  # where no run and no setting says otherwise
MOST_K, MOST_RANKS, MOST_POSITIONS = 1024, 1024, 2**24
DTYPES, PROTOCOLS, GATHERS = ("bfloat16", "w8a8"), ("two_phase", "single_phase"), ("records", "logits")


@dataclass
class Question:
    """What is asked. Those that are None come from the model, the runs, or what predict.py assumes."""

    model: str | None = None
    ks: tuple[int, ...] | None = None
    ranks: tuple[int, ...] = (1, 2, 4, 8)
    tensor: int = 1
    device: Device = field(default_factory=lambda: device("h200"))
    dtype: str = "bfloat16"
    protocol: str | None = None
    gather: str = "records"
    tpf: tuple[float, ...] = ()
    runs: tuple[str, ...] = ()
    preset: str = "effective"
    window: float | None = None
    masked: float | None = None
    cached: float | None = None
    overhead_ms: float = 0.0


def _numbers(
    kind: Callable[[str], float], low: float, high: float, takes: str, once: bool = False
) -> Callable[[str, str], tuple[float, ...]]:
    """A reader of one number or of several with commas between; `once`: each value once."""

    def read(name: str, text: str) -> tuple[float, ...]:
        try:
            values = tuple(kind(part) for part in text.split(","))
        except ValueError:
            values = ()
        if not values or not all(math.isfinite(value) and low <= value <= high for value in values):
            raise ConfigError(refused(name, text, takes))
        if once:
            _check_once(name, values)
        return values

    return read


def _check_once(name: str, values: Sequence[object]) -> None:
    if twice := [value for at, value in enumerate(values) if value in values[:at]]:
        raise ConfigError(f"{name} has {twice[0]} twice; allowed: each value once")


def _one(read: Callable[[str, str], tuple[float, ...]]) -> Callable[[str, str], float]:
    def one(name: str, text: str) -> float:
        values = read(name, text)
        if len(values) > 1:
            raise ConfigError(refused(name, text, "one number"))
        return values[0]

    return one


def _word(*allowed: str) -> Callable[[str, str], str]:
    def word(name: str, text: str) -> str:
        if text not in allowed:
            near = meant(f"{name}={one}" for one in nearest(text, allowed))
            raise ConfigError(refused(name, text, ", ".join(allowed)) + near)
        return text

    return word


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise ConfigError(f"{name} is empty; allowed: {USAGE[name]}")
    return text


def _paths(name: str, text: str) -> tuple[str, ...]:
    paths = tuple(_text(name, part).strip() for part in text.split(","))
    _check_once(name, paths)
    return paths


_positions = _one(_numbers(float, 1, MOST_POSITIONS, f"a number of positions from 1 to {MOST_POSITIONS}"))
READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "model": ("model", _text),
    "decoder.k": ("ks", _numbers(int, 0, MOST_K, f"integers from 0 to {MOST_K}, with commas between", once=True)),
    "ranks": (
        "ranks",
        _numbers(int, 1, MOST_RANKS, f"integers from 1 to {MOST_RANKS}, with commas between", once=True),
    ),
    "tensor": ("tensor", _one(_numbers(int, 1, MOST_RANKS, f"an integer from 1 to {MOST_RANKS}"))),
    "device": ("device", lambda name, text: device(text)),
    "dtype": ("dtype", _word(*DTYPES)),
    "protocol": ("protocol", _word(*PROTOCOLS)),
    "gather": ("gather", _word(*GATHERS)),
    "tpf": (
        "tpf",
        _numbers(float, 1e-6, 1e6, "numbers from 1e-6 to 1e6 (as 3.5), one for each k, with commas between"),
    ),
    "run": ("runs", _paths),
    "preset": ("preset", _word(*PRESETS)),
    "window": ("window", _positions),
    "masked": ("masked", _positions),
    "cached": ("cached", _one(_numbers(float, 0, MOST_POSITIONS, f"a number of positions from 0 to {MOST_POSITIONS}"))),
    "overhead_ms": ("overhead_ms", _one(_numbers(float, 0, 1e6, "milliseconds from 0 to 1e6"))),
}
USAGE = {
    "model": f"a choice of conf/model, or a checkpoint folder; default: the runs' model, else {MODEL}",
    "decoder.k": f"lookahead branches, such as 7 or 0,1,3,7; default: the runs' k, else {K}",
    "ranks": "devices that share the branches of a step; default: 1,2,4,8",
    "tensor": "devices that share the matrices of each branch rank; default: 1",
    "device": "a name of lopa_bench/cost/devices.yaml; default: h200",
    "dtype": "bfloat16 or w8a8 (matrices of the layers and their inputs in 8 bits)",
    "protocol": "two_phase or single_phase; default: two_phase if the model's attention is full",
    "gather": "records of masked positions, or logits of all positions, as the released program sends",
    "tpf": "tokens a forward pass, one number for each k",
    "run": "recorded runs, one for each k: folders or ids below outputs/; they give k, TPF and the mean step",
    "preset": f"how a run's tokens are counted: {', '.join(PRESETS)}",
    "window": "positions of a row; default: the runs', else three blocks",
    "masked": "masked positions of a row; default: the runs', else half of the window",
    "cached": "cached positions; default: the runs', else 900 (a prompt of four examples and half of its answer)",
    "overhead_ms": "time of a step that is spent on neither bytes nor operations; default: 0",
}


def question(words: Sequence[str]) -> Question:
    """Raises ConfigError for the first word that cannot be read."""
    found: dict[str, object] = {}
    for word in words:
        name, is_set, text = word.partition("=")
        if not is_set or name not in READERS:
            near = meant(f"{one}=" for one in nearest_setting(name, READERS))
            raise ConfigError(f"{word!r} is no setting here; allowed: NAME=VALUE with {', '.join(READERS)}{near}")
        attribute, read = READERS[name]
        if attribute in found:
            raise ConfigError(f"{name} is set twice; allowed: once, several values with commas between")
        found[attribute] = read(name, text)
    asked = Question(**found)  # type: ignore[arg-type]  # each reader gives what its field holds
    _check_together(asked)
    return asked


def _check_together(asked: Question) -> None:
    if asked.runs and asked.tpf:
        raise ConfigError("tpf= and run= both say the tokens a forward pass; allowed: one of them")
    ks = asked.ks or (K,)
    if asked.tpf and len(asked.tpf) != len(ks):
        raise ConfigError(
            f"tpf has {len(asked.tpf)} values for {len(ks)} of decoder.k; allowed: one for each k (a comma stands "
            "between values, a point in a number)"
        )
    if not asked.runs and asked.preset != "effective":
        raise ConfigError(f"preset={asked.preset} has no meaning here: it is read with run=")
