"""What a dense diffusion language model is made of, read from a checkpoint's config.json."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """Sizes, switches and special ids of one network.

    `shifted` is Dream's convention: the raw logits computed at position i-1 predict position i.
    `end_ids` are the ids that config.json and generation_config.json end a text with; `block_size` is the block that
    the model was trained with, or None. `rope_float32` rotates in float32 whatever the weights are.
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
    shifted: bool
    mask_id: int
    end_ids: tuple[int, ...]
    pad_id: int | None
    bos_id: int | None = None
    max_positions: int = 2048
    block_size: int | None = None
    rope_float32: bool = False

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")
