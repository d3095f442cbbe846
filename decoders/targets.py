"""Parts of one's own: what "module:attribute" names, from anywhere that Python can import from."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from decoders.allowed import shown
from decoders.config import DecoderError


def load_target(setting: str, target: str) -> Any:
    """The object that `decoder.<setting>` names. Raises DecoderError, also for a module that fails to import."""
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # whatever a module of one's own raises
        reason = f"{type(error).__name__}: {shown(error)}"
        raise DecoderError(
            f"decoder.{setting}={shown(target)} cannot be loaded ({reason}); allowed: module:attribute"
        ) from error
