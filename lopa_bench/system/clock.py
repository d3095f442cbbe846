"""The time as records hold it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """This second in UTC, such as 2026-01-31T14:22:33+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")
