"""The words of a command line, judged before Hydra reads them: what is no setting, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lopa_bench.errors import ConfigError
from lopa_bench.settings.known import groups, is_setting, known
from lopa_bench.settings.spelling import meant, nearest, nearest_setting

COMMANDS = ("ls", "show", "send")
FLAGS = {
    "--help": "-h", "--hydra-help": "", "--version": "", "--resolve": "", "--run": "-r", "--multirun": "-m",
    "--shell-completion": "-sc",
}  # fmt: skip
WITH_VALUE = {
    "--cfg": "-c", "--package": "-p", "--config-path": "-cp", "--config-name": "-cn", "--config-dir": "-cd",
    "--experimental-rerun": "", "--info": "-i",
}  # fmt: skip
CFG = ("job", "hydra", "all")
TRUTH = ("true", "false", "yes", "no", "on", "off", "y", "n", "1", "0")


def check(arguments: Sequence[str]) -> None:
    """Raises ConfigError for the first word that can be no option and no setting of this program."""
    choices = groups(*config_folders(arguments))
    words = iter(enumerate(arguments))
    for place, word in words:
        if word.startswith("-"):
            if _takes_value(word, arguments[place + 1 : place + 2], choices):
                next(words, None)
        else:
            _check_word(word, choices, is_first=place == 0)


def with_devices(arguments: Sequence[str]) -> list[str]:
    """The words as Hydra takes them: outside a sweep the commas of run.devices=0,1 are no list of jobs."""
    if any(word in ("-m", "--multirun") or word.startswith(("--mu", "hydra.mode=")) for word in arguments):
        return list(arguments)
    return [re.sub(r"^(\+*run\.devices)=([^'\"\[\]{}$\\]*,[^'\"\[\]{}$\\]*)$", r"\1='\2'", word) for word in arguments]


def config_folders(arguments: Sequence[str]) -> list[Path]:
    """What --config-dir names."""
    found = []
    for place, word in enumerate(arguments):
        name, sign, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            found += [Path(value)] if sign else [Path(text) for text in arguments[place + 1 : place + 2]]
    return found


def _takes_value(word: str, following: Sequence[str], choices: Mapping[str, Sequence[str]]) -> bool:
    """Whether the next word belongs to this option. Raises ConfigError for an unknown one."""
    name, sign, value = word.partition("=")
    options = {**FLAGS, **WITH_VALUE}
    full = next((long for long, short in options.items() if name in (long, short)), None)
    if full is None and name.startswith("--") and len(name) > 2:
        starts = [long for long in options if long.startswith(name)]
        full = starts[0] if len(starts) == 1 else None
    if full is None:
        setting = name.lstrip("-").replace("-", "_")
        value = value if sign else next(iter(following), "VALUE")
        near = [f"{key}={value}" for key in _near(setting, choices)] or nearest(name, options)
        raise ConfigError(
            f"{name} is no option; allowed: settings as NAME=VALUE without dashes, and "
            f"{', '.join(options)}{meant(near)}"
        )
    if full == "--cfg":
        value = value if sign else next(iter(following), "")
        if value not in CFG:
            raise ConfigError(f"--cfg {value} is not allowed; allowed: {', '.join(CFG)}")
    return full in WITH_VALUE and not sign


def _check_word(word: str, choices: Mapping[str, Sequence[str]], is_first: bool) -> None:
    prefix, rest = re.match(r"(\+\+|\+|~)?(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]  # matches all
    name, sign, value = rest.partition("=")
    key = name.partition("@")[0]
    if key.startswith("hydra"):
        return
    if prefix == "~":
        _check_removal(key, choices)
    elif not sign:
        raise ConfigError(_without_value(word, choices, is_first))
    elif not key.strip():
        raise ConfigError(f"{word} has no name; allowed: NAME=VALUE, such as decoder.k=8")
    elif key in choices:
        if value.strip().lower() in ("null", "") and key in known():
            raise ConfigError(f"{word} is not allowed; allowed: {', '.join(choices[key])}")
    elif not is_setting(key):
        raise ConfigError(no_setting(key, value, choices))
    elif known().get(key) is bool:
        _check_truth(key, value)


def _check_removal(key: str, choices: Mapping[str, Sequence[str]]) -> None:
    if key in choices or key in known():
        allowed = f"{key}={{{','.join(choices[key])}}}" if key in choices else f"{key}=VALUE"
        raise ConfigError(f"~{key} is not allowed: a run needs every setting; allowed: {allowed}")


def _check_truth(key: str, value: str) -> None:
    for text in value.split(","):
        if text.strip().strip("'\"").lower() not in TRUTH and "$" not in text:
            raise ConfigError(f"{key}={text} is not allowed; allowed: true or false")


def _without_value(word: str, choices: Mapping[str, Sequence[str]], is_first: bool) -> str:
    if word in choices:
        return f"{word} has no value; allowed: {word}=VALUE with VALUE one of {', '.join(choices[word])}"
    if is_setting(word):
        return f"{word} has no value; allowed: {word}=VALUE"
    of_groups = [f"{group}={word}" for group in choices if group in known() and word in choices[group]]
    commands = nearest(word, COMMANDS) if is_first else [command for command in COMMANDS if command == word]
    near = commands or of_groups or [f"{key}=VALUE" for key in _near(word, choices)]
    allowed = f"{' or '.join(COMMANDS)}{'' if is_first else ' as the first word'}, or NAME=VALUE, such as decoder.k=8"
    return f"{word} is no command and has no value; allowed: {allowed}{meant(near)}"


def no_setting(key: str, value: str, choices: Mapping[str, Iterable[str]]) -> str:
    """The message for a setting that there is not, with those that stand where it was looked for."""
    dotted = key.replace("/", ".")
    near = [f"{one}={value}" for one in ([dotted] if is_setting(dotted) else _near(dotted, choices))]
    head = dotted.rpartition(".")[0]
    while head and not any(one.startswith(f"{head}.") for one in known()):
        head = head.rpartition(".")[0]
    start = f"{head}." if head else ""
    beside = [one.removeprefix(start) for one in known() if one.startswith(start)]
    allowed = ", ".join(name for name in beside if "." not in name)
    return f"{key} is no setting; allowed here: {allowed}{meant(near)}"


def _near(name: str, choices: Mapping[str, Iterable[str]]) -> list[str]:
    settings = sorted(known(), key=lambda key: "." not in key)  # a group of that name is meant last
    return nearest_setting(name, settings + [group for group in choices if "/" not in group and group not in known()])
