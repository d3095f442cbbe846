"""`python -m lopa_bench.cost NAME=VALUE ...`: what a step costs at least on a device, and where lookahead pays.

python -m lopa_bench.cost model=d2f_dream decoder.k=7 ranks=1,2,4,8 device=h200
python -m lopa_bench.cost decoder.k=0,2,4,8 tpf=3.1,5.7,7.05,8.75 device=910c tensor=4 dtype=w8a8
python -m lopa_bench.cost run=RUN device=a100
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from lopa_bench.console.numbers import UNKNOWN, plain_lines
from lopa_bench.cost.arguments import USAGE, question
from lopa_bench.cost.predict import Answer, Prediction, answer
from lopa_bench.errors import StorageError
from lopa_bench.system.streams import secure

ERRORS = (ValueError, OSError, StorageError)  # what a user can mend: most errors of lopa_bench.errors are ValueErrors
HEADS = ("k", "ranks", "rows", "layers", "attn", "head", "link", "step", "KB", "pays from", "TPF", "TPS")
NARROWEST, INDENT = 20, "  "
LEGEND = (
    "layers, attn (attention), head, link and step in ms; KB: what the heaviest rank receives; pays from: TPF this "
    "many times that of k = 0 on one device"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 answered, 2 a wrong setting or a run that is not there."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or {"-h", "--help"} & set(words):
        print(__doc__, *(f"{name:<12} {text}" for name, text in USAGE.items()), sep="\n")
        return 0
    try:
        found = lines(answer(question(words)))
    except ERRORS as error:
        print(plain_lines(f"error: {error}"), file=sys.stderr)
        return 2
    print(plain_lines("\n".join(map(_for_terminal, found) if sys.stdout.isatty() else found)))
    return 0


def _for_terminal(line: str) -> str:
    """Prose is broken between words; rows of the table, which are right-aligned, stay as they are."""
    width = max(NARROWEST, shutil.get_terminal_size().columns - len(INDENT))
    return line if "  " in line else f"\n{INDENT}".join(textwrap.wrap(line, width, break_long_words=False))


def lines(found: Answer) -> list[str]:
    """The answer as text: what was asked and assumed, a table, notes."""
    work, setup = found.work, found.setup
    table = [HEADS, *(_cells(one) for one in found.predictions)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADS))]
    return [
        f"{found.model.name} (sizes: {found.model.source}), {setup.dtype}, on {setup.device.title}"
        + (f", {setup.tensor_ranks} tensor ranks each" if setup.tensor_ranks > 1 else ""),
        f"step: rows of {work.window:.0f} positions, {work.masked:.0f} of them masked, on {work.cached:.0f} cached; "
        f"{setup.protocol}, ranks send {setup.gather}",
        *("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in table),
        LEGEND,
        *(f"note: {note}" for note in found.notes),
        f"device: {setup.device.source}",
    ]


def _cells(one: Prediction) -> tuple[str, ...]:
    taken = one.step
    rows = -(-(one.k + 1) // one.ranks)
    spent = (taken.layers, taken.attention, taken.head, taken.branch_link + taken.tensor_link, taken.seconds)
    return (
        *(str(one.k), str(one.ranks), str(rows)),
        *(f"{1e3 * seconds:.2f}" for seconds in spent),
        f"{taken.link_bytes / 1e3:.1f}",
        f"x{one.pays_from:.2f}",
        UNKNOWN if one.tpf is None else f"{one.tpf:.2f}",
        UNKNOWN if one.tps is None else f"{one.tps:.0f}",
    )


if __name__ == "__main__":
    secure()
    sys.exit(main())
