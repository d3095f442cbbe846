"""The sizes of the embedded models."""

from __future__ import annotations

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.mini.tokenizer import END_ID, MASK_ID, PAD_ID, VOCABULARY

BLOCK = 16


def mini_config(layers: int = 6, hidden_size: int = 256, intermediate_size: int = 704) -> ModelConfig:
    """4.8 million parameters with the default sizes."""
    return ModelConfig(
        vocab_size=VOCABULARY, hidden_size=hidden_size, intermediate_size=intermediate_size, layers=layers, heads=4,
        kv_heads=2, head_dim=hidden_size // 4, rope_theta=10000.0, rms_eps=1e-6, qkv_bias=True, qk_norm=False,
        tied=True, shift="shifted", mask_id=MASK_ID, end_ids=(END_ID,), pad_id=PAD_ID, max_positions=2048,
        block_size=BLOCK,
    )  # fmt: skip
