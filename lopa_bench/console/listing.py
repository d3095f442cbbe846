"""`lopa-bench ls` and `lopa-bench show`: the runs on disk, without loading a model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.console.numbers import number, percent, plain, plain_lines
from lopa_bench.errors import RunError, StorageError
from lopa_bench.metrics.varied import Measured, as_text, by_name
from lopa_bench.records.locks import is_locked

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, RenderableType
    from rich.table import Table

    from lopa_bench.records.runs import Run

COLUMNS = ("status", "task", "model", "decoder", "k", "n", "accuracy", "TPF", "TPS", "run")
TEXTS = ("status", "task", "model", "decoder", "run")
IN_COLUMNS = ("task", "model", "decoder", "decoder.base", "decoder.k")  # of settings
TEXT_CHARACTERS = 600


def command(arguments: Sequence[str]) -> int:
    """Carries out `ls ...` or `show ...`; returns the exit status."""
    options = _parser().parse_args(arguments)
    from lopa_bench.console.report import console_on
    from lopa_bench.records.finding import find_run

    console = console_on(sys.stdout)
    try:
        is_list = options.command == "ls"
        parts = [_fitting(options.out, console)] if is_list else details(find_run(options.run, options.out), options.n)
    except (RunError, StorageError) as error:
        print(plain_lines(f"error: {error}"), file=sys.stderr)
        return 2
    for part in parts:
        console.print(part)
    return 0


def _fitting(out: Path, console: Console) -> Table:
    """Whole lines for a pipe, so that grep finds a run; on a terminal names that leave the numbers their room."""
    table = listing(out)
    if not console.is_terminal:
        console.width = _width(console, table)
    elif _width(console, table) > console.width:
        table = listing(out, short=True)
    return table


def _width(console: Console, table: Table) -> int:
    """That every run has one line."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(width=10**6), table).maximum


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lopa-bench")
    commands = parser.add_subparsers(dest="command", required=True)
    ls = commands.add_parser("ls", help="all runs of an output folder, the newest last")
    ls.add_argument("out", nargs="?", type=Path, default=Path("outputs"), help="output folder (outputs)")
    show = commands.add_parser("show", help="one run: numbers, settings, worst and slowest samples")
    show.add_argument("run", help="its folder, its id, or a part of the id that no other run has")
    show.add_argument("--out", type=Path, default=Path("outputs"), help="output folder (outputs)")
    show.add_argument("-n", type=int, default=3, help="how many worst and slowest samples (3)")
    return parser


def listing(out: Path, short: bool = False) -> Table:
    """One line a run, in the order of their names. `short`: what several runs share is said once, above, and a name is
    its last part, if that is enough for `show`.
    """
    from lopa_bench.records.finding import find_runs, folders
    from lopa_bench.records.integrity import left_out

    if not folders(out):
        raise RunError(f"no runs in {out}: neither {out}/runs/*/run.parquet nor {out}/*/run.parquet")
    found = [run for run in find_runs(out) if not left_out(run.folder, run.row, steps=False)]
    found.sort(key=lambda run: run.folder.name)
    settings = [by_name(run.argv) for run in found]
    lines = [
        _line(run, {name: value for name, value in own.items() if not _is_shared(name, settings)})
        for run, own in zip(found, settings, strict=True)
    ]
    if not short:
        return _table(lines, COLUMNS)
    names = [folder.name for folder in folders(out)]
    lines = [{**line, "run": _last_part(line["run"], names)} for line in lines]
    once = [name for name in TEXTS[:3] if len(lines) > 1 and len({line[name] for line in lines}) == 1]
    title = f"all: {', '.join(lines[0][name] for name in once)}" if once else None
    return _table(lines, [name for name in COLUMNS if name not in once], title)


def _table(lines: Sequence[Mapping[str, str]], columns: Sequence[str], title: str | None = None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline",
                  title=title and Text(plain(title)), title_justify="left")  # fmt: skip
    for name in columns:
        is_text = name in TEXTS
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for line in lines:
        table.add_row(*(Text(plain(line[name])) for name in columns))
    return table


def _last_part(name: str, names: Sequence[str]) -> str:
    part = name.rpartition("-")[2]
    return part if part and sum(part in other for other in names) == 1 else name


def _is_shared(name: str, settings: Sequence[Mapping[str, str]]) -> bool:
    """Whether a column of its own shows it, or all of several runs have it with the same value."""
    return name in IN_COLUMNS or (len(settings) > 1 and len({own.get(name) for own in settings}) == 1)


def _line(run: Run, own: Mapping[str, str]) -> dict[str, str]:
    """What each of COLUMNS shows of a run, whose settings that others do not share are `own`."""
    row = run.row
    decoder = f"{run.decoder} on {run.wraps}" if run.wraps else run.decoder
    decoder += f" by {run.backend}" if run.device == "server" else ", imported" if run.is_imported else ""
    n = str(row["n"]) if row["n"] is not None else f"({_rows_written(run.folder)})"
    numbers = [percent(row["accuracy"]), number(row["tpf"]), number(row["tps"])]
    decoder = " ".join(filter(None, (decoder, as_text(own))))
    cells = (status(run), run.task, run.model, decoder, run.k_as_set or "-", n, *numbers, run.folder.name)
    return dict(zip(COLUMNS, cells, strict=True))


def status(run: Run) -> str:
    """The run's own word; a run that says it is running, and that no process holds, was killed."""
    return "killed" if run.status == "running" and not is_locked(run.folder) else run.status


def _rows_written(folder: Path) -> int:
    """Samples on disk of a run without totals, from the files' footers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    total = 0
    for path in folder.glob("samples/part-*.parquet"):
        try:
            total += pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException):
            continue  # broken or just replaced: reading the run says so, counting does not
    return total


def details(run: Run, n: int) -> list[RenderableType]:
    """One run: its table, its settings, and the samples that a person would look at first."""
    from rich.text import Text

    from lopa_bench.console.side_by_side import side_by_side
    from lopa_bench.metrics.aggregate import aggregate
    from lopa_bench.records.reading import read_samples

    row = run.row
    run.check_whole()
    samples = read_samples(run.folder)
    numbers = aggregate(samples, (run.config.get("run") or {}).get("preset", "effective"), run.seed)
    facts = {
        "run": run.folder,
        "status": status(run),
        "created": run.created,
        "finished": row["finished"],
        "shard": run.shard,
        "version": f"{row['version']} ({row['git_revision'] or 'no git'})",
        "machine": ", ".join(numbers["machines"]) or None,
        "command": " ".join(["python -m lopa_bench", *run.argv]),
        "decoder": ", ".join(f"{name}={value}" for name, value in run.settings.items() if value not in (None, {})),
    }
    parts: list[RenderableType] = [
        Text(plain(f"{name}: {value}")) for name, value in facts.items() if value is not None
    ]
    shown = replace(run, row={**row, "status": facts["status"]})
    parts.append(side_by_side([Measured(shown, numbers)]))
    for title, rows in (("worst", worst(samples, n)), ("slowest", slowest(samples, n))):
        if rows:
            parts += [Text(f"\n{title} samples", style="bold"), *map(_sample, rows)]
    return parts


def worst(samples: pa.Table, n: int) -> list[dict[str, Any]]:
    """Failed ones, then those that could not be judged, then wrong ones by their calls for nothing."""
    bad = [row for row in samples.to_pylist() if row["correct"] is not True]
    return sorted(bad, key=lambda row: (row["error"] is None, row["correct"] is False, -(row["forwards"] or 0)))[:n]


def slowest(samples: pa.Table, n: int) -> list[dict[str, Any]]:
    """By total time; by the number of calls where samples have no time of their own."""
    return sorted(samples.to_pylist(), key=lambda row: (-(row["total_s"] or 0.0), -(row["forwards"] or 0)))[:n]


def _sample(row: Mapping[str, Any]) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    verdict = {True: "right", False: "wrong", None: "not judged"}[row["correct"]]
    time = "" if row["total_s"] is None else f", {number(row['total_s'])} s"
    calls = "" if row["forwards"] is None else f" in {row['forwards']} calls"  # few servers tell
    edits = f", {row['edits']} edits" if row["edits"] is not None else ""
    head = (
        f"{row['problem_id']} #{row['sample_index']}: {verdict} ({row['score_status']}), {row['finish_reason']}, "
        f"{row['content_tokens'] or 0} tokens{calls}{edits}{time}"
    )
    asked = row["prompt"].strip()
    asked = asked if len(asked) <= TEXT_CHARACTERS else "[...] " + asked[-TEXT_CHARACTERS:]  # behind its examples
    text = f"{plain(head)}\nasked: {asked}\n{row['error'] or _judgement(row)}"
    return Padding(Text(plain_lines(text)), (0, 0, 1, 2))


def _judgement(row: Mapping[str, Any]) -> str:
    """What was compared with what, and the text behind it; of a program, which is that text, why it failed."""
    reason = json.loads(row["score_details"]).get("reason")
    if "\n" in row["gold"]:
        return "\n".join(part for part in (reason, _short(row["extracted"] or row["answer_text"])) if part)
    why = f" ({reason})" if reason else ""
    return f"gold {row['gold']!r}, found {row['extracted']!r}{why}\n{_short(row['answer_text'])}"


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS else text[:TEXT_CHARACTERS] + " [...]"
