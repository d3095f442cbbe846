"""Where a run is: those below an output folder, the one that a person names, and those that have a key."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from lopa_bench.errors import RunError
from lopa_bench.records.integrity import Broken, run_table
from lopa_bench.records.runs import Run, open_run

PLACES = ("run.parquet", "*/run.parquet", "runs/*/run.parquet")  # below an output folder, the folder of runs, or a run
DIGITS = 10  # of the key, at the end of a run's name: they find the folder, run.parquet then tells the whole key

log = logging.getLogger(__name__)


def folders(root: Path | str) -> list[Path]:
    """The folders of all runs below an output folder, by name; `root` may also be the folder of runs or a run."""
    found = {path.parent for place in PLACES for path in _at_home(root).glob(place)}
    return sorted(found, key=lambda path: (path.name, path))


def find_runs(root: Path | str) -> list[Run]:
    """All runs below an output folder, oldest first. One whose row cannot be read is named in a warning.
    Raises RunError where there is no such folder.
    """
    root = _at_home(root)
    if not os.path.isdir(root):
        raise RunError(f"{root} is no folder")
    runs = []
    for folder in folders(root):
        try:
            runs.append(open_run(folder))
        except RunError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # which reading it has named in a warning
                log.warning("%s", error)
    return sorted(runs, key=lambda run: (run.created, run.id))


def _at_home(root: Path | str) -> Path:
    """With the folder of the user that ~ or ~NAME means; one of nobody is left as it is, and is no folder."""
    return Path(os.path.expanduser(root))


def find_run(name: str, root: Path | str = "outputs") -> Run:
    """The run that a person means: by its folder, its id, or what its id alone of all below `root` begins with, or
    else has in it. Raises RunError.
    """
    place = _at_home(name)
    if os.path.exists(place / "run.parquet"):
        return open_run(place)
    among = [folder for folder in folders(root) if name in folder.name]
    ways = ([one for one in among if one.name == name], [one for one in among if one.name.startswith(name)], among)
    best = next(filter(None, ways), [])
    if len(best) != 1:
        is_told_apart = len({one.name for one in best}) == len(best)
        found = "".join(f"\n  {one.name if is_told_apart else one}" for one in best) or " none"
        raise RunError(
            f"{name!r} names no single run in {root}; allowed: the folder of a run, its id, or a part of the id that "
            f"no other run has; found:{found}"
        )
    return open_run(best[0])


def with_key(runs: Path, key: str) -> list[tuple[Path, dict[str, Any] | None]]:
    """The runs with this key, the best to go on with first: finished ones, and of those the newest.

    A folder without a run row is known by its name alone: its process is just starting, or its row was damaged.
    """
    found: list[tuple[Path, dict[str, Any] | None]] = []
    for folder in runs.glob(f"*-{key[:DIGITS]}*"):
        row = None
        with suppress(FileNotFoundError, Broken):
            row = run_table(folder / "run.parquet").to_pylist()[0]
        if row is None or row["key"] == key:
            found.append((folder, row))
    return sorted(found, key=lambda item: (is_finished(item[1]), item[0].name), reverse=True)


def is_finished(row: dict[str, Any] | None) -> bool:
    return row is not None and row["status"] == "finished"
