"""The nearest of the names that there are, for a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 3  # suggestions; more is a list of what is allowed


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names that were probably meant, the most likely first; capitals do not count."""
    by_lower: dict[str, str] = {}
    for one in known:
        by_lower.setdefault(one.lower(), one)
    return [by_lower[found] for found in get_close_matches(name.lower(), by_lower, MOST, 0.6)]


def nearest_setting(key: str, known: Iterable[str]) -> list[str]:
    """As `nearest`, for dotted settings: a last part that is right counts more than a likeness of the whole."""
    known = list(known)
    last = key.rpartition(".")[2]
    exact = [one for one in known if one.rpartition(".")[2] == last]
    if exact:
        return exact[:MOST]
    head = key.rpartition(".")[0]
    beside = {one.rpartition(".")[2]: one for one in known if one.rpartition(".")[0] == head} if head else {}
    found = [beside[name] for name in nearest(last, beside)] or nearest(key, known)
    if found:
        return found
    ends = {one.rpartition(".")[2]: one for one in known}
    return [ends[name] for name in nearest(last, ends)]


def meant(names: Iterable[str]) -> str:
    """As the end of a message; empty if nothing comes near."""
    names = list(names)
    return f"; did you mean {' or '.join(names)}?" if names else ""
