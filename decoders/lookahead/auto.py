"""`k=auto`: the lookahead that measured best on the embedded model, as settings (docs/decoders.md)."""

from __future__ import annotations

from typing import Any

from decoders.config import DecoderConfig

# A branch pays only if its token is right, and a token below one half is more likely wrong than right; beyond six
# candidates there is little left to gain.
AUTO_ROWS = 6
AUTO: dict[str, Any] = {"select": "score", "floor": 0.5}
AUTO_UNREAD = ("gate", "confirm", "confirm_best")


def rows_beside(config: DecoderConfig) -> int:
    """How many rows at most stand beside the anchor."""
    return AUTO_ROWS if config.k == "auto" else int(config.k)
