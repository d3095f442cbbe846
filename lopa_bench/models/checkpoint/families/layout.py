"""What is said of one published family: the names of its tensors, and how its config.json is read."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from lopa_bench.models.checkpoint.keys import Keys
from lopa_bench.models.config import Experts, Grid, ModelConfig, Shift

Switches = Mapping[str, tuple[tuple[Any, ...], Any]]


@dataclass(frozen=True)
class Names:
    """Published tensor names of one scheme. `layer` maps our name inside a layer to the published ones whose rows, one
    below the other, make it: queries, keys and values; gate and up; those of every expert {e} in turn. `outer` does the
    same outside the layers, `prefix` stands in front of the names of layer {i}.

    The scheme may name what a network of it does not have; ModelConfig says what it has. `router_is_linear`: whether
    the published module of a router is a linear layer, which adapters of "all-linear" change.
    """

    prefix: str
    layer: Mapping[str, tuple[str, ...]]
    outer: Mapping[str, str]
    head: str
    router_is_linear: bool = True


@dataclass(frozen=True)
class Mark:
    """What tells a family from another of the same model_type: a key of config.json that is not null, with this value
    if it matters; where the key is missing, a tensor.
    """

    key: str
    value: bool | None = None
    tensor: str | None = None

    def fits(self, raw: Mapping[str, Any], tensors: Callable[[], Container[str]]) -> bool:
        found = raw.get(self.key)
        if found is not None:
            return self.value is None or found is self.value
        return self.tensor is not None and self.tensor in tensors()


@dataclass(frozen=True)
class Layout:
    """One family. What config.json leaves open, the released configuration class decides: `absent` has its values.

    `sizes` reads the sizes of the network, `experts` (for a number of layers) its mixtures of experts, if it has any.
    `switches`: key -> the values that make the network that runs here, and what an absent key means. `unused` are keys
    of what is switched off. `partial` says whether a part of each head may stay unrotated. `block` is the key of the
    block size and what it is where no key says so. Of several layouts with one model_type the first is taken whose
    `mark` fits; without a mark it is any. `must_be_asked_for`: autoregressive models have the same model_type, so that
    only model.layout can tell.
    """

    name: str
    model_types: tuple[str, ...]
    names: Names
    sizes: Callable[[Keys, Mapping[str, Any]], dict[str, Any]]
    qkv_bias: bool
    qk_norm: bool
    shift: Shift
    grid: Grid = "prompt"
    block: tuple[str, int | None] = ("block_size", None)
    partial: bool = False
    experts: Callable[[Keys, int], Experts] | None = None
    mark: Mark | None = None
    must_be_asked_for: bool = False
    absent: Mapping[str, Any] = field(default_factory=dict)
    switches: Switches = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def outer(self) -> Mapping[str, str]:
        return self.names.outer

    @property
    def head(self) -> str:
        return self.names.head

    def takes(self, raw: Mapping[str, Any], tensors: Callable[[], Container[str]]) -> bool:
        """Whether a config.json is one of this family; `tensors` gives the names of its weights."""
        return raw.get("model_type") in self.model_types and (self.mark is None or self.mark.fits(raw, tensors))

    def published(self, config: ModelConfig) -> dict[str, tuple[str, ...]]:
        """Our parameter name -> published names whose rows, one below the other, make it."""
        names: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in self.outer.items()}
        if not config.tied:
            names["lm_head.weight"] = (self.head,)
        for i in range(config.layers):
            prefix = self.names.prefix.format(i=i)
            for ours, theirs in self.names.layer.items():
                if _has(config, i, ours):
                    count = config.experts.count if config.experts and "{e}" in theirs[0] else 1
                    names[f"layers.{i}.{ours}"] = tuple(
                        prefix + name.format(e=e) for e in range(count) for name in theirs
                    )
        return names

    def modules(self, config: ModelConfig) -> dict[str, str]:
        """Published name of every module -> what an adapter finds there: "linear", "head" (the output matrix), or
        "other" (an embedding, a norm, or what only holds modules).
        """
        kinds: dict[str, str] = {}
        for ours, parts in self.published(config).items():
            for part in parts:
                *above, _ = part.split(".")
                for i in range(1, len(above)):
                    kinds.setdefault(".".join(above[:i]), "other")
                kinds[".".join(above)] = self._kind(ours)
        return kinds

    def _kind(self, ours: str) -> str:
        if "lm_head" in ours:
            return "head"
        is_router = ours.endswith("mlp.router.weight") and self.names.router_is_linear
        return "linear" if is_router or "_proj" in ours else "other"


def _has(config: ModelConfig, layer: int, ours: str) -> bool:
    """Whether a layer of the network has the parameter of this name."""
    if ours == "attention.qkv_proj.bias":
        return config.qkv_bias
    if ours in ("attention.q_norm.weight", "attention.k_norm.weight"):
        return config.qk_norm
    if not ours.startswith("mlp."):
        return True
    is_mixture = ours.startswith(("mlp.router.", "mlp.experts.", "mlp.shared."))
    if config.experts is None or not config.has_experts(layer):
        return not is_mixture
    if ours == "mlp.router.bias":
        return config.experts.bias != "none"
    return is_mixture and (not ours.startswith("mlp.shared.") or config.experts.shared_size > 0)
