"""What all ranks of a decode must have in common, compared before any of them loads weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST = 3  # differences that a message lists
# By the beginning of a name, in the order in which they are told.
KINDS = (
    ("product.code_sha256", "the code"),
    ("product.", "versions"),
    ("model.weights_sha256", "the weights"),
    ("model.texts_sha256", "the files beside the weights"),
    ("source_sha256", "the problems"),
    ("", "settings"),
)


def differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What differs, by kind, as "settings differ: NAME=VALUE / VALUE"; empty if nothing does."""
    a, b = flat(first), flat(other)
    wrong = [name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name)]
    if not wrong:
        return ""
    ranked = sorted(wrong, key=_kind)
    kind = KINDS[_kind(ranked[0])][1]
    told = [f"{name}={_short(b.get(name))}, there {_short(a.get(name))}" for name in ranked[:MOST]]
    more = f" and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
    return f"{kind} differ{'' if kind.endswith('s') else 's'} ({'; '.join(told)}{more})"


def flat(facts: Any, name: str = "") -> dict[str, Any]:
    """Nested facts by dotted name."""
    if not isinstance(facts, Mapping) or (name and not facts):
        return {name: facts}
    found: dict[str, Any] = {}
    for key, value in facts.items():
        found |= flat(value, f"{name}.{key}" if name else str(key))
    return found


def _kind(name: str) -> int:
    return next(i for i, (start, _) in enumerate(KINDS) if name.startswith(start))


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"
