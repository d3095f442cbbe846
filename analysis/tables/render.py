"""A table as CSV (every digit), Markdown, LaTeX (booktabs) and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from analysis.labels import describe, hardware, source_of
from analysis.tables.model import Cell, Column, Line, Table
from analysis.tables.notes import mark
from analysis.text import csv_cell, html, latex, markdown, typeset
from lopa_bench.console.numbers import UNKNOWN, fixed, signed

NO_RUN = "no run"
NOTHING = typeset(UNKNOWN)
LONG = 40  # lines from which LaTeX needs a table that breaks over pages


_CSV_RUN = ("n", "source", "run_model", "run_model_is_toy", "hardware", "preset", "run_id")


def to_csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")  # line ends inside a cell were spelled out
    parts = ("", "_low", "_high", "_published", "_difference")
    numbers = [column.key + part for column in table.columns for part in parts]
    writer.writerow([*table.headers, *numbers, *_CSV_RUN])
    for line in table.lines:
        cells = [value for cell in table.cells(line) for value in _csv_cell(cell)]
        labels = line.labels if line.published else map(csv_cell, line.labels)
        writer.writerow([*labels, *cells, *map(csv_cell, _csv_run(table, line))])
    return stream.getvalue()


def _csv_cell(cell: Cell) -> list[Any]:
    low, high = cell.measured.interval or (None, None)
    return [cell.measured.value, low, high, cell.published, cell.difference]


def _csv_run(table: Table, line: Line) -> list[Any]:
    run = line.run
    if run is None:
        return [None, None, None, None, None, table.preset, NO_RUN]
    return [table.n(line), source_of(run), run.model, run.toy, hardware(run), table.preset_of(run), run.id]


def to_markdown(table: Table) -> str:
    head, labels = [*table.headers, *_titles(table), "n", "run"], len(table.headers)
    lines = [f"### {caption_of(table)}", "", _markdown_row(head), "|" + "---|" * len(head)]
    lines += [_markdown_row([*map(markdown, row[:labels]), *row[labels:]]) for row in _rows(table)]
    lines += [
        "",
        *(f"- {note}" for note in table.notes),
        *(f"- [{key}] {markdown(text)}" for key, text in _runs(table)),
    ]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """Its first line names the packages that it needs; column heads span measured, published and difference."""
    labels, groups = len(table.headers), len(table.columns)
    form = "l" * labels + "rrr" * groups + "rl"
    top = " & ".join(
        [*[""] * labels, *(rf"\multicolumn{{3}}{{c}}{{{latex(column.title)}}}" for column in table.columns), "", ""]
    )
    rules = " ".join(rf"\cmidrule(lr){{{labels + 1 + 3 * i}-{labels + 3 + 3 * i}}}" for i in range(groups))
    sub = ["measured", "published", "difference"] * groups
    second = " & ".join(latex(text) for text in [*table.headers, *sub, "n", "run"])
    head = [r"\toprule", top + r" \\", rules, second + r" \\", r"\midrule"]
    body = ["{}" + " & ".join(latex(text) for text in row) + r" \\" for row in _rows(table)]
    notes = [*table.notes, *(f"[{key}] {text}" for key, text in _runs(table))]
    text = caption_of(table).replace("Table ", "The article's table ", 1)  # LaTeX numbers its own
    caption = rf"\caption{{{latex(text)}}}\label{{tab:{table.name}}}"
    # {}, here and in rows: behind a line break a bracket would begin the break's own argument
    foot = [r"\par\smallskip\raggedright\scriptsize", *("{}" + latex(note) + r"\\" for note in notes)]
    if len(table.lines) > LONG:
        opening = [
            _needs("longtable,pdflscape"), r"\begin{landscape}\tiny\setlength{\tabcolsep}{1pt}",
            rf"\begin{{longtable}}{{{form}}}", caption + r"\\",
        ]  # fmt: skip
        return "\n".join(
            [*opening, *head, r"\endhead", *body, r"\bottomrule", r"\end{longtable}", *foot, r"\end{landscape}", ""]
        )
    opening = [
        _needs("graphicx"), r"\begin{table}\centering", caption, r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{form}}}",
    ]  # fmt: skip
    return "\n".join([*opening, *head, *body, r"\bottomrule", r"\end{tabular}}", *foot, r"\end{table}", ""])


def _needs(packages: str) -> str:
    return rf"% \usepackage{{booktabs,{packages}}}"


def to_html(table: Table) -> str:
    """A figure element: caption, a table that scrolls sideways by itself, notes."""
    heads = "".join(f'<th scope="col" rowspan="2" class="label">{html(text)}</th>' for text in table.headers)
    groups = "".join(f'<th scope="colgroup" colspan="3">{html(column.title)}</th>' for column in table.columns)
    subs = '<th scope="col">measured</th><th scope="col">published</th><th scope="col">difference</th>'
    tail = '<th scope="col" rowspan="2">n</th><th scope="col" rowspan="2">run</th>'
    body = "".join(_html_row(line, row, len(table.headers)) for line, row in zip(table.lines, _rows(table)))
    notes = "".join(f"<li>{html(note)}</li>" for note in table.notes)
    runs = "".join(f"<li>[{key}] {html(text)}</li>" for key, text in _runs(table))
    behind = (
        f'<details><summary>Runs behind this table</summary><ul class="notes">{runs}</ul></details>' if runs else ""
    )
    label = html(caption_of(table))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{heads}{groups}{tail}</tr><tr>{subs * len(table.columns)}</tr></thead>"
        f'<tbody>{body}</tbody></table></div><ul class="notes">{notes}</ul>{behind}'
    )


def _html_row(line: Line, row: list[str], labels: int) -> str:
    kind = "none" if line.run is None else "own" if not line.published else "both"
    heads = "".join(f'<th scope="row">{html(text)}</th>' for text in row[:labels])
    cells = "".join(f"<td>{html(text)}</td>" for text in row[labels:])
    return f'<tr class="{kind}">{heads}{cells}</tr>'


def _rows(table: Table) -> Iterator[list[str]]:
    """The cells of each line as text."""
    for line in table.lines:
        row = list(line.labels)
        for column, cell in zip(table.columns, table.cells(line)):
            row += _texts(column, cell, line)
        n = NOTHING if line.run is None else str(table.n(line))
        reference = "" if line.run is None else f"[{table.reference(line.run)}]{mark(line.run, table.preset)}"
        reference += "‡" if table.stands_apart(line) else ""
        yield [*row, n, reference]


def _texts(column: Column, cell: Cell, line: Line) -> list[str]:
    value = fixed(cell.measured.value, column.digits, cell.measured.interval)
    difference = signed(cell.difference, column.digits)
    return [NO_RUN if line.run is None else typeset(value), cell.printed or NOTHING, typeset(difference)]


def _titles(table: Table) -> list[str]:
    parts = ("measured", "published", "difference")
    return [f"{column.title}, {part}" for column in table.columns for part in parts]


def _runs(table: Table) -> list[tuple[str, str]]:
    return [
        (table.reference(run), describe(run, table.study.numbers(run).n, table.preset_of(run))) for run in table.runs
    ]


def caption_of(table: Table) -> str:
    return f"Table {table.name.removeprefix('table')}. {table.title}" + (
        f" (counting preset {table.preset})" if table.preset else ""
    )


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
