"""config.json as a ModelConfig: what all layouts have in common. A key that is not read is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.families.ignored import IGNORED, NEUTRAL
from lopa_bench.models.checkpoint.families.layout import Layout
from lopa_bench.models.checkpoint.keys import Keys
from lopa_bench.models.config import ModelConfig

UNKNOWN = "allowed: null, or a config.json without this key if it changes nothing"


def model_config(layout: Layout, raw: Mapping[str, Any], where: str, mask_id: int | None = None) -> ModelConfig:
    """The network that a config.json describes. `mask_id`: the tokenizer's, for a file that names none.

    Raises CheckpointError.
    """
    if raw.get("mask_token_id") is None and mask_id is not None:
        raw = {**raw, "mask_token_id": mask_id}
    keys = Keys(raw, where)
    for key, (allowed, default) in layout.switches.items():
        keys.only(key, allowed, default)
    for key in layout.unused:
        keys.get(key)
    sizes = layout.sizes(keys, layout.absent)
    vocab = sizes["vocab_size"]
    theta, part = _rotary(keys, layout)
    rotary_size = int(sizes["head_dim"] * part)
    common: dict[str, Any] = {
        "rope_theta": theta,
        "rotary_size": None if rotary_size == sizes["head_dim"] else rotary_size,
        "rms_eps": keys.above_zero("rms_norm_eps", layout.absent.get("rms_norm_eps", 1e-6)),
        "qkv_bias": layout.qkv_bias,
        "qk_norm": layout.qk_norm,
        "shift": layout.shift,
        "grid": layout.grid,
        "block_size": keys.count_or_none(layout.block[0]) or layout.block[1],
        "mask_id": _mask_id(keys, vocab),
        "end_ids": keys.tokens("eos_token_id", vocab),
        "pad_id": keys.token_or_none("pad_token_id", vocab),
        "bos_id": keys.token_or_none("bos_token_id", vocab),
        "experts": None if layout.experts is None else layout.experts(keys, sizes["layers"]),
    }
    config = ModelConfig(**{**common, **sizes})
    if keys.get("rotary_dim") not in (None, rotary_size):
        keys.refuse("rotary_dim", f"null or the {rotary_size} of head_dim and partial_rotary_factor")
    for key, allowed in NEUTRAL.items():
        if key not in keys.read:
            keys.only(key, (None, *allowed), None)
    keys.finish(IGNORED, UNKNOWN)
    _check(keys, config, rotary_size)
    return config


def _mask_id(keys: Keys, vocab: int) -> int:
    if keys.get("mask_token_id") is None:
        keys.refuse(
            "mask_token_id",
            f"a token id from 0 to {vocab - 1}, or a tokenizer with a mask token; an autoregressive model takes "
            "model.layout=causal",
        )
    return keys.token("mask_token_id", vocab)


def _check(keys: Keys, config: ModelConfig, rotary_size: int) -> None:
    if rotary_size % 2 or not 0 < rotary_size <= config.head_dim:
        part = "" if rotary_size == config.head_dim else f" and rotations of {rotary_size} of their numbers"
        raise CheckpointError(
            f"{keys.where}: heads of size {config.head_dim}{part} cannot be rotated; allowed: even sizes, and "
            "at most the whole head"
        )
    if config.mask_id in config.end_ids:
        keys.refuse("eos_token_id", f"another id than mask_token_id={config.mask_id}")


def _rotary(keys: Keys, layout: Layout) -> tuple[float, float]:
    """The rotary base and the rotated part of a head, which transformers writes beside the other keys up to version 4
    and inside `rope_parameters` from 5 on. No scaling of the positions is allowed beside them.
    """
    thetas, parts = {}, {}
    theta, part = layout.absent.get("rope_theta", 10000.0), layout.absent.get("partial_rotary_factor", 1.0)
    if "rope_theta" in keys.raw:
        thetas["rope_theta"] = keys.above_zero("rope_theta", theta)
    if layout.partial and keys.raw.get("partial_rotary_factor") is not None:
        parts["partial_rotary_factor"] = keys.above_zero("partial_rotary_factor", part)
    for key in ("rope_scaling", "rope_parameters"):
        value = keys.get(key)
        if value is None:
            continue
        if not isinstance(value, dict):
            keys.refuse(key, 'null or an object with rope_type "default"')
        inner = Keys(value, f"{keys.where}: {key}")
        inner.only("rope_type", (None, "default"), None)
        inner.only("type", (None, "default"), None)
        if layout.partial and "partial_rotary_factor" in value:
            parts[f"{key}.partial_rotary_factor"] = inner.above_zero("partial_rotary_factor", part)
        inner.only("partial_rotary_factor", (None, 1, *(parts.values())), None)
        if "rope_theta" in value:
            thetas[f"{key}.rope_theta"] = inner.above_zero("rope_theta", theta)
        inner.finish((), 'allowed: rope_type "default" with rope_theta alone')
    return _one(keys, thetas, theta), _one(keys, parts, part)


def _one(keys: Keys, found: Mapping[str, float], default: float) -> float:
    """What the keys that name a number agree on."""
    if len(set(found.values())) > 1:
        both = " and ".join(f"{name}={value:g}" for name, value in found.items())
        raise CheckpointError(f"{keys.where}: {both} contradict each other; allowed: one value")
    value = next(iter(found.values()), default)
    assert math.isfinite(value)
    return value
