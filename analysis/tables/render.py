"""A table as CSV (every digit), Markdown, LaTeX (booktabs) and HTML."""

from __future__ import annotations

import csv
import io
from itertools import zip_longest
from pathlib import Path

from analysis.tables.model import Table
from analysis.text import csv_cell, html, latex, markdown

LONG = 40  # lines from which LaTeX needs a table that breaks over pages


def to_csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")  # line ends inside a cell were spelled out
    writer.writerow(table.keys)
    writer.writerows(map(csv_cell, record) for record in table.records)
    return stream.getvalue()


def to_markdown(table: Table) -> str:
    heads = [f"{head.text}, {part}" if part else head.text for head in table.heads for part in head.parts or ("",)]
    words = _words(table)
    rows = [[markdown(cell) if is_word else cell for cell, is_word in zip(row, words)] for row in table.rows]
    head, *body = ["| " + " | ".join(cells) + " |" for cells in (map(markdown, heads), *rows)]
    notes = [*table.notes, *(f"[{letter}] {markdown(text)}" for letter, text in table.sources)]
    return (
        "\n".join(
            [f"### {table.caption}", "", head, "|---" * len(heads) + "|", *body, "", *(f"- {note}" for note in notes)]
        )
        + "\n"
    )


def to_latex(table: Table) -> str:
    """Its first line names the packages that it needs; a head with parts spans their columns."""
    widths = [len(head.parts) or 1 for head in table.heads]
    form = "".join("l" if head.is_words else "r" * width for head, width in zip(table.heads, widths))
    top, rules = [], []
    for index, (head, width) in enumerate(zip(table.heads, widths)):
        first = 1 + sum(widths[:index])
        top.append(rf"\multicolumn{{{width}}}{{c}}{{{latex(head.text)}}}" if head.parts else "")
        rules += [rf"\cmidrule(lr){{{first}-{first + width - 1}}}"] if head.parts else []
    last = [latex(text) for head in table.heads for text in head.parts or (head.text,)]
    groups = [" & ".join(top) + r" \\", " ".join(rules)] if rules else []
    head_lines = [r"\toprule", *groups, " & ".join(last) + r" \\", r"\midrule"]
    body = ["{}" + " & ".join(latex(text) for text in row) + r" \\" for row in table.rows]
    notes = [*table.notes, *(f"[{letter}] {text}" for letter, text in table.sources)]
    text = table.caption.replace("Table ", "The article's table ", 1)  # LaTeX numbers its own
    caption = rf"\caption{{{latex(text)}}}\label{{tab:{table.name}}}"
    # {}, here and in rows: behind a line break a bracket would begin the break's own argument
    foot = [r"\par\smallskip\raggedright\scriptsize", *("{}" + latex(note) + r"\\" for note in notes)]
    if len(table.rows) > LONG:
        opening = [
            _needs("longtable,pdflscape"), r"\begin{landscape}\tiny\setlength{\tabcolsep}{1pt}",
            rf"\begin{{longtable}}{{{form}}}", caption + r"\\",
        ]  # fmt: skip
        end = [r"\bottomrule", r"\end{longtable}", *foot, r"\end{landscape}", ""]
        return "\n".join([*opening, *head_lines, r"\endhead", *body, *end])
    opening = [
        _needs("graphicx"), r"\begin{table}\centering", caption, r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{form}}}",
    ]  # fmt: skip
    return "\n".join([*opening, *head_lines, *body, r"\bottomrule", r"\end{tabular}}", *foot, r"\end{table}", ""])


def _needs(packages: str) -> str:
    return rf"% \usepackage{{booktabs,{packages}}}"


def to_html(table: Table) -> str:
    """Caption, a table that scrolls sideways by itself, notes."""
    parts = "".join(f'<th scope="col">{html(part)}</th>' for head in table.heads for part in head.parts)
    heads = ""
    for head in table.heads:
        kind = 'scope="col"' + _of_words(head.is_words) + (' rowspan="2"' if parts else "")
        kind = f'scope="colgroup" colspan="{len(head.parts)}"' if head.parts else kind
        heads += f"<th {kind}>{html(head.text)}</th>"
    body = ""
    for row, kind in zip_longest(table.rows, table.kinds, fillvalue=""):
        names = "".join(f'<th scope="row">{html(cell)}</th>' for cell in row[: table.labels])
        cells = zip(row[table.labels :], _words(table)[table.labels :])
        numbers = "".join(f"<td{_of_words(is_word)}>{html(cell)}</td>" for cell, is_word in cells)
        body += f'<tr class="{kind}">{names}{numbers}</tr>' if kind else f"<tr>{names}{numbers}</tr>"
    notes = "".join(f"<li>{html(note)}</li>" for note in table.notes)
    runs = "".join(f"<li>[{letter}] {html(text)}</li>" for letter, text in table.sources)
    behind = f'<details><summary>Runs behind this table</summary><ul class="notes">{runs}</ul></details>'
    label = html(table.caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{heads}</tr>{f'<tr>{parts}</tr>' if parts else ''}</thead><tbody>{body}</tbody></table></div>"
        f'<ul class="notes">{notes}</ul>{behind if runs else ""}'
    )


WRITERS = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def write_table(table: Table, folder: Path, formats: tuple[str, ...] = tuple(WRITERS)) -> list[Path]:
    """A file for each format."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{table.name}.{suffix}" for suffix in formats]
    for path, suffix in zip(paths, formats):
        path.write_text(WRITERS[suffix](table), encoding="utf-8")
    return paths


def _words(table: Table) -> list[bool]:
    """Of each column whether it holds no numbers."""
    return [head.is_words for head in table.heads for _ in head.parts or ("",)]


def _of_words(is_words: bool) -> str:
    return ' class="words"' if is_words else ""
