"""One clear message for each kind of wrong setting."""

from __future__ import annotations

import dataclasses
import re

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException, UnsupportedInterpolationType, ValidationError

from decoders.config import DecoderError
from lopa_bench.backends.config import BackendError
from lopa_bench.config import ConfigError
from lopa_bench.locks import Locked
from tasks.base import TaskError


def explain(error: BaseException) -> str | None:
    """The message for an error that the user can mend; None for any other error, whose traceback is needed."""
    from lopa_bench.models.errors import CheckpointError

    if isinstance(error, (ConfigError, BackendError, DecoderError, TaskError, CheckpointError, Locked)):
        return f"error: {error}"
    cause = _omegaconf_cause(error)
    if cause is not None:
        return f"error: {_omegaconf(cause)}"
    if isinstance(error, MissingConfigException) and error.options:
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        return f"error: {group}={choice} is unknown; allowed: {', '.join(error.options)}"
    if isinstance(error, HydraException):
        return "error: " + re.sub(r"\s*\n\s*", " ", str(error)).strip()
    return None


def _omegaconf_cause(error: BaseException | None) -> OmegaConfBaseException | None:
    while error is not None:
        if isinstance(error, OmegaConfBaseException):
            return error
        error = error.__cause__ or error.__context__
    return None


def _omegaconf(error: OmegaConfBaseException) -> str:
    first = (error.msg or str(error)).split("\n")[0]
    if isinstance(error, UnsupportedInterpolationType):
        return first
    if isinstance(error, ConfigKeyError) or "not in" in first:
        owner = error.object_type
        if dataclasses.is_dataclass(owner):
            allowed = ", ".join(field.name for field in dataclasses.fields(owner))
            return f"{error.full_key or error.key} is no setting; allowed here: {allowed}"
    if isinstance(error, ValidationError) and error.full_key:
        return f"{error.full_key}: {first}; allowed: {_kind(first)}"
    return first


def _kind(message: str) -> str:
    """What a setting takes, in words, from "... converted to Integer" or "... is not a valid bool (type str)"."""
    name = re.sub(r" \(type .*\)$", "", message).rsplit(" ", 1)[-1]
    yes_or_no = "true or false"
    kinds = {"Integer": "an integer", "Float": "a number", "Boolean": yes_or_no, "bool": yes_or_no, "String": "text"}
    return kinds.get(name, name)
