"""Reading the fields of a reply as servers really fill them: null, missing, as text, as a list of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lopa_bench.backends.server.http import Failure

STOPPED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call")
CUT = ("length", "max_tokens", "max_length", "max_new_tokens", "max_output_tokens")
BROKEN = ("abort", "error", "cancelled")
FILTERED = "content_filter"


def count(value: Any) -> int | None:
    """A number of tokens; None for what is none."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        return None
    return int(value)


def seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def text_of(content: Any) -> tuple[str, str]:
    """The text and the reasoning of a message's content, which is text or a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise TypeError(f"a content of type {type(content).__name__}")
    text, thinking = "", ""
    for part in content:
        if isinstance(part, str):
            text += part
        elif mapping(part).get("type") in ("thinking", "reasoning"):
            thinking += str(part.get("thinking") or part.get("reasoning") or part.get("text") or "")
        else:
            text += str(mapping(part).get("text") or "")
    return text, thinking


def ending(finish: Any) -> str:
    """How a reply ended: stop, length, or other for a reason that is not known. Raises Failure if it came to no end."""
    reason = str(mapping(finish).get("type") if isinstance(finish, Mapping) else finish).lower()
    if reason in BROKEN:
        message = mapping(finish).get("message") or "no reason given"
        raise Failure("server_error", f"the server aborted the request: {message}")
    if reason in CUT:
        return "length"
    return "stop" if reason in STOPPED else "other"
