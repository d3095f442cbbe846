"""What a diffusion language model is made of, read from a checkpoint's config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lopa_bench.errors import BackendError

Shift = Literal["none", "shifted", "in_block"]
Grid = Literal["prompt", "absolute"]


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in the place of a feed-forward network: `per_token` of `count` experts of `size` a token.

    `layers` says which layers have one. `score` makes probabilities of the router's logits. The best `groups_kept` of
    `groups` equal groups may be chosen from; a group is as good as its two best experts. `bias` is a number an expert
    that is added to the probabilities: for the choice alone, or for the weights of the chosen as well. The weights sum
    to 1 if `normalised`, and are then multiplied by `scale`. `shared_size` is the width of a further feed-forward
    network that every token passes (0: none).
    """

    count: int
    per_token: int
    size: int
    layers: tuple[bool, ...]
    score: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = False
    scale: float = 1.0
    groups: int = 1
    groups_kept: int = 1
    bias: Literal["none", "choice", "weights"] = "none"
    shared_size: int = 0


@dataclass(frozen=True)
class ModelConfig:
    """Sizes, switches and special ids of one network.

    `shift`: the raw logits computed at position i predict position i ("none"), the position behind it ("shifted",
    Dream's convention), or the position behind it of the same block ("in_block", Fast-dLLM v2: the first position of a
    block is filled from the last logits of the block before it).
    `grid`: where the blocks begin, at the end of the prompt or at position 0 with the prompt inside them.
    `block_size` is the block that the model was trained with, or None.
    `end_ids` are the ids that config.json and generation_config.json end a text with. `rotary_size` of each head's
    numbers are rotated (None: all), in float32 whatever the weights are if `rope_float32`. Logits are multiplied by
    `logits_scale`. `experts`: None for a dense network.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rms_eps: float
    qkv_bias: bool
    qk_norm: bool
    tied: bool
    shift: Shift
    mask_id: int
    end_ids: tuple[int, ...]
    pad_id: int | None
    bos_id: int | None = None
    max_positions: int = 2048
    block_size: int | None = None
    grid: Grid = "prompt"
    rope_float32: bool = False
    rotary_size: int | None = None
    logits_scale: float = 1.0
    experts: Experts | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")

    @property
    def shifted(self) -> bool:
        """Whether the logits at i - 1 predict position i. Inside a block or over the whole text, a decode is the same:
        the first position of a block is predicted by the last logits of the block before it, kept where it is not fed.
        """
        return self.shift != "none"

    def check_shares(self, ranks: int, setting: str = "backend.tensor_ranks") -> None:
        """Raises BackendError for a network whose matrices so many ranks, a value of `setting`, cannot share evenly."""
        sizes = {
            "query heads": self.heads,
            "KV heads": self.kv_heads,
            "numbers inside a feed-forward network": self.intermediate_size,
        }
        if self.experts is not None:
            sizes["numbers inside an expert"] = self.experts.size
            sizes["numbers inside the shared network"] = self.experts.shared_size
        if wrong := [f"{count} {what}" for what, count in sizes.items() if count % ranks]:
            fitting = [n for n in range(1, self.kv_heads + 1) if not any(count % n for count in sizes.values())]
            raise BackendError(
                f"{setting}={ranks} does not divide the network's {', '.join(wrong)}; allowed: "
                f"{', '.join(map(str, fitting))}"
            )

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and self.experts.layers[layer]
