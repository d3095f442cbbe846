"""One clear message for each kind of wrong setting."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigKeyError, InterpolationResolutionError, OmegaConfBaseException, ValidationError

from decoders.allowed import WORDS
from decoders.config import DecoderError
from lopa_bench.errors import BackendError, ConfigError, Locked, StorageError, WorkerError
from lopa_bench.settings.arguments import config_folders, no_setting
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.known import groups, is_mapping, takes
from lopa_bench.settings.spelling import meant, nearest
from tasks.types import TaskError

NUMBERS = (WORDS[int], WORDS[float])
MANY = 15  # choices of a folder that are listed even if another was asked for
QUOTES = "a value with special characters needs quotes inside the shell's own, such as \"model.name='a, b'\""


def explain(error: BaseException, arguments: Sequence[str] | None = None) -> str | None:
    """The message for an error that the user can mend; None for any other error, whose traceback is needed.

    `arguments`: the command line, by default that of this process.
    """
    from lopa_bench.errors import CheckpointError

    arguments = sys.argv[1:] if arguments is None else arguments
    told = (ConfigError, BackendError, DecoderError, TaskError, CheckpointError, Locked, StorageError, WorkerError)
    if isinstance(error, told):
        return f"error: {error}"
    cause = _omegaconf_cause(error)
    if cause is not None:
        return f"error: {_omegaconf(cause, arguments)}"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return f"error: {_missing(error, arguments)}"
    if isinstance(error, HydraException):
        return f"error: {_hydra(error, arguments)}"
    return None


def _omegaconf_cause(error: BaseException | None) -> OmegaConfBaseException | None:
    while error is not None:
        if isinstance(error, OmegaConfBaseException):
            return error
        error = error.__cause__ or error.__context__
    return None


def _omegaconf(error: OmegaConfBaseException, arguments: Sequence[str]) -> str:
    first = (error.msg or str(error)).split("\n")[0]
    key = error.full_key or str(error.key or "")
    if isinstance(error, InterpolationResolutionError):
        return (
            f"{_given(key, arguments, first)}: {first[:1].lower()}{first[1:]}; allowed: the name of a setting in "
            "${...}, or a backslash before a dollar sign that is meant"
        )
    if isinstance(error, ConfigKeyError) or "not in" in first:
        if any(head != key and is_mapping(head) for head in _heads(key)):
            return f"{key} is not there yet; allowed: +{key}={_value(key, arguments) or 'VALUE'}, which adds it"
        return _of_another_backend(key) or no_setting(key, _value(key, arguments) or "VALUE", _groups(arguments))
    if isinstance(error, ValidationError) and key:
        return f"{_given(key, arguments, first)} is not allowed; allowed: {takes(key)}"
    return first


def _heads(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:size]) for size in range(1, len(parts) + 1)]


def _of_another_backend(key: str) -> str | None:
    """For a setting of a server that a local backend has not, or the reverse."""
    group, _, name = key.partition(".")
    if group != "backend" or name not in {*_fields(ServerSettings), *_fields(LocalSettings)}:
        return None
    servers = name in _fields(ServerSettings)
    owners = "openai, sglang, vllm, lmdeploy, transformers_serve" if servers else "local"
    here = ", ".join(_fields(LocalSettings if servers else ServerSettings))
    return f"{key} is no setting of this backend; it is read by backend={owners}; allowed here: {here}"


def _fields(owner: type) -> list[str]:
    return [field.name for field in dataclasses.fields(owner)]


def _given(key: str, arguments: Sequence[str], message: str) -> str:
    """The setting and its value: from the command line, else from the library's words."""
    value = _value(key, arguments)
    if value is None and "not Optional" in message:
        value = "null"
    if value is None and (found := re.search(r"Value '(.*?)'|value: (.*)$|: '(.*)'$", message)):
        value = next(text for text in found.groups() if text is not None)
    return key if value is None else f"{key}={value}"


def _value(key: str, arguments: Sequence[str]) -> str | None:
    """What the command line gives this setting."""
    found = [re.match(rf"\+{{0,2}}{re.escape(key)}(?:@[^=]*)?=(.*)", word, re.DOTALL) for word in arguments]
    return next((match[1] for match in reversed(found) if match), None)


def _groups(arguments: Sequence[str]) -> dict[str, list[str]]:
    return groups(*config_folders(arguments))


def _missing(error: MissingConfigException, arguments: Sequence[str]) -> str:
    """A choice that there is not, or another file that Hydra looks for."""
    path = re.sub(r"\.yaml$", "", error.missing_cfg_file or "").lstrip("/")
    group, _, choice = path.partition("/")
    known = _groups(arguments)
    if group == "hydra" or group not in known or not choice:
        group, _, choice = path.rpartition("/")
    if not group:
        return f"there is no configuration file {choice}; allowed: config"
    allowed = sorted({*(known.get(group) or ()), *(error.options or () if group.startswith("hydra") else ())})
    return f"{group}={choice} is unknown; allowed: {_listed(choice, allowed)}{meant(_paths(group, choice, allowed))}"


def _listed(choice: str, allowed: Sequence[str]) -> str:
    """All choices; of a large folder that was not asked for, its first and how many there are."""
    folders: dict[str, list[str]] = {}
    for one in allowed:
        folders.setdefault(one.rpartition("/")[0], []).append(one)
    asked = choice.partition("/")[0]
    parts = [
        names if folder in ("", asked) or len(names) <= MANY else [f"{names[0]} and {len(names) - 1} more in {folder}"]
        for folder, names in folders.items()
    ]
    return ", ".join(name for names in parts for name in names)


def _paths(group: str, choice: str, allowed: Sequence[str]) -> list[str]:
    """The nearest choices; of a folder's name the first things in it."""
    inside = [one for one in allowed if one.startswith(f"{choice}/")]
    found = inside[:3] or nearest(choice, allowed)
    if not found and "/" in choice:
        found = nearest(choice.rpartition("/")[2], allowed)
    return [f"{group}={one}" for one in found]


def _hydra(error: HydraException, arguments: Sequence[str]) -> str:
    """Hydra's own messages, where they name another program's ways or several lines."""
    text = re.sub(r"\s*\n\s*", " ", str(error)).strip()
    if found := re.match(r"Ambiguous value for argument '(.*?)' 1\.", text):
        word = found[1]
        name, _, value = word.partition("=")
        kind, quoted = takes(name), f"\"{name}='{value}'\" if it has a comma"
        one = f"{kind}; a number has a point, no comma" if kind.startswith(NUMBERS) else quoted
        several = "has several values, and this is no sweep"
        return f"{word} {several}; allowed: one value ({one}), or -m {word} for a job each"
    if found := re.match(r"Could not append to config\. An item is already at '(.*?)'", text):
        value = _value(found[1], arguments) or "VALUE"
        return f"+{found[1]}={value} adds what is there already; allowed: {found[1]}={value}"
    if found := re.match(r"Could not override '(.*?)'", text):
        return f"{found[1]} is no choice; allowed: +{found[1]}=VALUE to add one"
    if isinstance(error, OverrideParseException):
        return f"{error.override} cannot be read as NAME=VALUE; {QUOTES} (docs/sweeps.md, Quoting)"
    return text
