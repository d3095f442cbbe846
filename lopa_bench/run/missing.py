"""What of a plan is not on disk yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lopa_bench.plan.units import Unit
from lopa_bench.records.schema import ERROR_REASONS

if TYPE_CHECKING:
    import pyarrow as pa

RESUME_COLUMNS = (  # what a resumed run must know of its samples: no texts, which can be large
    "problem_id", "problem_index", "sample_index", "finish_reason", "correct", "content_tokens", "forwards", "total_s",
    "machine", "workers",
)  # fmt: skip
REDONE = tuple(set(ERROR_REASONS) - {"prompt_too_long"})  # that would only be too long again


def missing_units(units: Sequence[Unit], samples: pa.Table, redone: Sequence[str] = REDONE) -> list[Unit]:
    """The decodes that have no row yet, or one whose finish reason asks to redo it."""
    done = {
        Unit(index, sample_index)
        for index, sample_index, reason in zip(
            samples["problem_index"].to_pylist(),
            samples["sample_index"].to_pylist(),
            samples["finish_reason"].to_pylist(),
            strict=True,
        )
        if reason not in redone
    }
    return [unit for unit in units if unit not in done]
