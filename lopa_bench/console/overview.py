"""What there is to choose from: families for `--help`, all of a group for `--help GROUP`."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lopa_bench import ROOT
from lopa_bench.errors import ConfigError
from lopa_bench.settings.arguments import config_folders
from lopa_bench.settings.known import groups, known, takes
from lopa_bench.settings.spelling import meant, nearest

HELP = ("--help", "-h")
WIDTH = 116
INDENT = "    "
MANY, FAMILY = 15, 3  # names in a group that are shown one by one; names with one first word that are a family
LAUNCHER = "hydra/launcher"
GLUE = "\N{NO-BREAK SPACE}"  # no line ends here


def asked_group(arguments: Sequence[str]) -> str | None:
    """GROUP of `--help GROUP` or `--help=GROUP`; None for anything else."""
    folders = [str(folder) for folder in config_folders(arguments)]
    parts = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--help=") else [word])]
    words = [part for part in parts if part[:1] != "-" and part not in folders]
    return words[0] if len(words) == 1 and "=" not in words[0] and any(part in HELP for part in parts) else None


def choices_overview(arguments: Sequence[str]) -> str:
    """A line for each group: its choices, and its folders with the number of theirs."""
    found = groups(*config_folders(arguments))
    shown = [group for group in sorted(found) if group == LAUNCHER or ("/" not in group and group != "hydra")]
    return _lines({f"{_word(group)}=": _families(found[group]) for group in shown})


def settings_overview() -> str:
    """A line for each group with the names of its settings."""
    by_group: dict[str, list[str]] = {}
    for key in known():
        head, dot, name = key.rpartition(".")
        if not any(other.startswith(f"{key}.") for other in known()):
            by_group.setdefault(head + dot, []).append(name)
    plain = by_group.pop("", [])
    return _lines(by_group | {"": plain})


def group_overview(group: str, arguments: Sequence[str]) -> str:
    """Every choice of a group, or of a folder of one, with its first comment; and what the group's settings take, or
    what the one setting takes that is named instead. Raises ConfigError for what is neither.
    """
    folders = config_folders(arguments)
    found = groups(*folders)
    names = sorted({*found, *(key.partition(".")[0] for key in known() if "." in key)})
    if group not in names and group not in known():
        near = meant(nearest(group, [*names, *known()]))
        raise ConfigError(f"--help {group}: there is no such group; allowed: {', '.join(names)}, or a setting{near}")
    choices = found.get(group, [])
    top, _, folder = (group, "", "") if group == LAUNCHER else group.partition("/")
    wide = max(map(len, choices), default=0)
    roots = [ROOT / "conf", *folders]
    lines = [f"{choice:{wide}}  {_first_comment(group, choice, roots)}".rstrip() for choice in choices]
    if lines:
        lines.insert(0, f"{_word(top)}={folder + '/' if folder else ''}CHOICE with CHOICE one of")
    settings = [key for key in known() if key.startswith(f"{group}.") or (key == group and key not in names)]
    wide = max(map(len, settings), default=0)
    return "\n".join([*lines, *(f"{key:{wide}}  {takes(key)}" for key in settings)])


def _word(group: str) -> str:
    """How a command line names a group: one that no run needs is added."""
    return group if group in known() or group == LAUNCHER else f"+{group}"


def _families(choices: Sequence[str]) -> list[str]:
    """The choices; folders, and first words of names where there are many, stand for all of theirs."""
    plain = [choice for choice in choices if "/" not in choice]
    first = Counter(choice.partition("_")[0] for choice in plain)
    is_long = len(plain) > MANY

    def family(choice: str) -> str:
        folder, slash, _ = choice.partition("/")
        word = choice.partition("_")[0]
        return f"{folder}/*" if slash else f"{word}*" if is_long and first[word] >= FAMILY else choice

    counts = Counter(map(family, choices))
    return [name if name in plain else f"{name}{GLUE}({count})" for name, count in counts.items()]


def _lines(named: Mapping[str, Sequence[str]]) -> str:
    wide = max(map(len, named))
    behind = INDENT + " " * (wide + 1)
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent=behind, break_on_hyphens=False, break_long_words=False)
    return "\n".join(
        wrapper.fill(f"{INDENT}{name:{wide}} {', '.join(names)}") for name, names in named.items()
    ).replace(GLUE, " ")


def _first_comment(group: str, choice: str, roots: Iterable[Path]) -> str:
    """What the file of a choice says of it in its first line."""
    for root in roots:
        path = root / group / f"{choice}.yaml"
        if path.is_file():
            comments = (line[1:].strip() for line in path.read_text("utf-8", "replace").splitlines() if line[:1] == "#")
            return next((text for text in comments if not text.startswith("@package")), "")
    return ""
