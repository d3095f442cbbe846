"""A page for each run: its samples with verdict, answer and cost, beside its baseline's verdicts, and their replays.

The rows lie in the page as data. What a replay needs lies beside it in small files that the page loads when somebody
opens a sample; a script element works from disk, where nothing may be fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.labels import decoding, hardware, model_of, source_of, task_of
from analysis.page.about import command_of
from analysis.page.leaderboard import MEASURES, Entry, against_words
from analysis.replay.tokens import TokenText, token_text
from analysis.replay.trace import READS, trace_of
from analysis.study import Study
from analysis.tables.model import Head, Table
from analysis.tables.render import to_csv
from analysis.text import clipped, file_name, html, plain, script_json, setting, typeset
from analysis.web.document import document, facts_list, files, scripts, styles
from lopa_bench.console.numbers import fixed
from lopa_bench.errors import RunError
from lopa_bench.records.integrity import Key
from lopa_bench.records.reading import iter_steps, read_samples
from lopa_bench.records.runs import Run

Row = dict[str, Any]
Places = Mapping[Key, tuple[int, bool | None]]  # of a run's samples: the place in its list, and the verdict

REPLAYS, LEAST, CHUNK = 1200, 8, 10  # samples with a replay in a report, of a run at least, and in one file
LONGEST = 160  # characters of an answer in the list
COLUMNS = (
    "problem_id", "sample_index", "problem_index", "correct", "extracted", "gold", "forwards", "content_tokens",
    "total_s", "finish_reason",
)  # fmt: skip
HEADS = {
    "problem_id": "problem", "correct": "verdict", "extracted": "answered", "gold": "gold", "forwards": "calls",
    "content_tokens": "tokens", "total_s": "seconds", "finish_reason": "ended",
}  # fmt: skip


@dataclass(frozen=True)
class Listed:
    """A run with the rows of its samples, in the order of the source."""

    entry: Entry
    rows: Sequence[Row]
    opened: int  # the first so many have a file with their replay

    @property
    def run(self) -> Run:
        return self.entry.run

    @property
    def name(self) -> str:
        return file_name(self.run.id)


def write_samples(study: Study, entries: Sequence[Entry], folder: Path, replays: int = REPLAYS) -> None:
    """`folder`/runs: page, CSV and replays of every run. `replays`: how many samples of all runs together get one."""
    target = folder / "runs"
    target.mkdir(parents=True, exist_ok=True)
    each = max(min(LEAST, replays), replays // max(1, len(entries)))
    places: dict[str, Places] = {}
    for entry in entries:
        rows = _rows(entry.run)
        one = Listed(entry, rows, min(each, len(rows)))
        base = entry.against.a if entry.against is not None else None
        if base is not None and base.id not in places:
            places[base.id] = {_key(row): (at, row["correct"]) for at, row in enumerate(_rows(base))}
        _write(one, base, places.get(base.id, {}) if base is not None else {}, target)


def _rows(run: Run) -> list[Row]:
    table = read_samples(run.folders, COLUMNS)
    return list(table.sort_by([("problem_index", "ascending"), ("sample_index", "ascending")]).to_pylist())


def _key(row: Row) -> Key:
    return row["problem_id"], row["sample_index"]


def _write(one: Listed, base: Run | None, places: Places, target: Path) -> None:
    (target / f"{one.name}.html").write_text(_page(one, base, places), encoding="utf-8")
    (target / f"{one.name}.csv").write_text(to_csv(_as_table(one)), encoding="utf-8")
    for index, chunk in enumerate(_chunks(one)):
        call = f"replayData({script_json(one.name)},{script_json(chunk)});\n"
        (target / f"{one.name}-{index}.js").write_text(call, encoding="utf-8")


def _as_table(one: Listed) -> Table:
    keys = [name for name in COLUMNS if name != "problem_index"]
    return Table(
        name=one.name,
        caption="samples",
        heads=[Head(name) for name in keys],
        rows=(),
        keys=keys,
        records=[[row[name] for name in keys] for row in one.rows],
    )


def _chunks(one: Listed) -> Iterator[dict[str, Any]]:
    """Replays of CHUNK samples each, by their place in the list; in place of one that cannot be made the reason."""
    opened = one.rows[: one.opened]
    if not opened:
        return
    run, text = one.run, token_text(one.run)
    whole, steps = _texts(run, {_key(row) for row in opened}), _steps(run, {row["problem_id"] for row in opened})
    for start in range(0, len(opened), CHUNK):
        keys = enumerate(map(_key, opened[start : start + CHUNK]), start)
        yield {str(at): _opened(run, whole[key], steps.get(key, []), text) for at, key in keys}


def _opened(run: Run, row: Row, steps: list[Row], text: TokenText | None) -> dict[str, Any]:
    try:
        return trace_of(run, row, steps, text)
    except RunError as error:
        told = {"prompt": row["prompt"], "completion": row["completion"]}
        return {"no_replay": plain(error), "title": decoding(run), "error": plain(row["error"] or "")} | told


def _texts(run: Run, keys: set[Key]) -> dict[Key, Row]:
    import pyarrow.compute as pc

    names = list({problem for problem, _ in keys})
    table = read_samples(run.folders)
    rows = table.filter(pc.is_in(table["problem_id"], value_set=_strings(names))).to_pylist()
    return {_key(row): row for row in rows}


def _steps(run: Run, problems: set[str]) -> dict[Key, list[Row]]:
    import pyarrow.compute as pc

    wanted, found = _strings(sorted(problems)), dict[Key, list[Row]]()
    for folder in run.folders:
        for table in iter_steps(folder, ("problem_id", "sample_index", "step", *READS)):
            for row in table.filter(pc.is_in(table["problem_id"], value_set=wanted)).to_pylist():
                found.setdefault(_key(row), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["step"])
    return found


def _strings(names: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array(names, pa.string())


def _page(one: Listed, base: Run | None, places: Places) -> str:
    run = one.run
    title = f"{clipped(decoding(run), 80)}: {len(one.rows)} samples"
    said = "; ".join(against_words(one.entry.against))
    beside = f"<p>Against {html(clipped(decoding(base), 80))}, its baseline: {html(said)}.</p>" if base and said else ""
    several = any(row["sample_index"] for row in one.rows)
    data = {
        "name": one.name, "run": plain(run.id), "chunk": CHUNK, "opened": one.opened,
        "base": None if base is None else {"name": file_name(base.id), "title": clipped(decoding(base), 80)},
        "several": several,
        "rows": [_cells(row, *places.get(_key(row), (-1, "none"))) for row in one.rows],
    }  # fmt: skip
    body = (
        f'<p><a href="../index.html#leaderboard">All runs</a></p><h1>{html(title)}</h1>{facts_list(list(_facts(one)))}'
        f"{beside}{files('These rows:', [('CSV', f'{one.name}.csv')])}"
        '<section id="opened" hidden aria-label="The opened sample"></section>'
        '<div id="samples-here"></div>'
        "<noscript><p>The list needs JavaScript; the CSV has the same rows.</p></noscript>"
        f'<script type="application/json" id="samples">{script_json(data)}</script>'
        f"<details><summary>All settings</summary>{facts_list(list(_settings(run)))}</details>"
    )
    return document(title, body, styles("page", "board", "replay"), scripts("replay", "board", "samples"))


def _cells(row: Row, place: int, other: bool | str | None) -> list[Any]:
    """As samples.js reads them; `place` and `other`: where the baseline has the sample, and how it was judged there."""
    texts = (None if row[name] is None else clipped(plain(row[name]), LONGEST) for name in ("extracted", "gold"))
    seconds = None if row["total_s"] is None else round(row["total_s"], 4)
    return [
        row["problem_id"], row["sample_index"], row["correct"], *texts, row["forwards"], row["content_tokens"], seconds,
        row["finish_reason"], other, place,
    ]  # fmt: skip


def _facts(one: Listed) -> Iterator[tuple[str, str]]:
    run = one.run
    yield "model", model_of(run)
    yield "problems", f"{task_of(run)}; {source_of(run)}; n = {one.entry.n}"
    for measure in MEASURES:
        value = one.entry.values[measure.key]
        if value.value is not None:
            yield measure.title, typeset(fixed(value.value, measure.digits, value.interval))
    if one.entry.settings:
        yield "settings", clipped(one.entry.settings, 600)
    yield "machine", f"{plain(run.backend)} on {hardware(run)}"
    yield "run", plain(run.id)
    yield "written", plain(f"{run.created[:10]} by lopa-bench {run.row['version']} {run.row['git_revision'] or ''}")
    if run.row["argv"]:
        yield "command", command_of(run)


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    for name, value in run.settings.items():
        yield plain(name), clipped(setting(value), 600)
