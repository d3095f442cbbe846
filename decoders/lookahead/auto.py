"""`k=auto`: the lookahead that measured best on the embedded model, as settings (docs/lookahead.md)."""

from __future__ import annotations

from typing import Any

from decoders.config import DecoderConfig

AUTO_ROWS = 4
AUTO: dict[str, Any] = {"select": "confirm", "confirm": 0.5, "confirm_best": True}
AUTO_UNREAD = ("floor", "gate")


def rows_beside(config: DecoderConfig) -> int:
    """How many rows at most stand beside the anchor."""
    return AUTO_ROWS if config.k == "auto" else int(config.k)
