"""How far a run is, while it goes on (stderr)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from lopa_bench.console.numbers import clock, number, percent, plain
from lopa_bench.metrics.aggregate import Running
from lopa_bench.records.schema import NOT_SCORED

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_SECONDS = 30.0
LINE_FRACTION = 0.1
LONG_SECONDS = 600.0  # from here on the time of day at the end is worth a word


class Progress:
    """A live bar on a terminal, else a plain line every tenth of the run or 30 s; numbers as in `Running`.

    `seen` are the rows of a resumed run that are on disk already: they count in the numbers, not in the estimate
    of the time left. `quiet` shows nothing. `beside` says who decodes, if it is more than this process.
    """

    def __init__(
        self,
        total: int,
        label: str = "",
        seen: Iterable[Mapping[str, Any]] = (),
        stream: TextIO | None = None,
        quiet: bool = False,
        beside: Callable[[], str] | None = None,
    ) -> None:
        from rich.console import Console

        self.total = total
        self.label = plain(label)
        self.quiet = quiet
        self.beside = beside
        self.running = Running()
        for row in seen:
            self.running.add(row)
        self._resumed = self.running.n
        self._resumed_tokens = self.running.tokens
        self._stream = stream or sys.stderr
        self._console = Console(file=self._stream, markup=False, emoji=False, highlight=False)
        self._bar: Bar | None = None
        self._started = self._line_at = time.monotonic()
        self._line_n = self.running.n
        self._unjudged = 0

    def __enter__(self) -> Progress:
        self._started = self._line_at = time.monotonic()
        if self._console.is_terminal and not self.quiet:
            self._bar = self._make_bar()
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts one decoded sample (a row of the sample table); its verdict may come later."""
        self.running.add(row)
        self._unjudged += row.get("score_status") == NOT_SCORED
        self._show(advance=1)

    def judged(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Takes the verdicts on samples that were added before they had one."""
        for row in rows:
            self._unjudged -= 1
            self.running.judged += row["correct"] is not None
            self.running.correct += row["correct"] is True
        if self.running.n >= self.total:
            self._show()

    def _show(self, advance: int = 0) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], advance=advance, numbers=self.numbers())
        elif not self.quiet and self._line_due():
            self._line_n, self._line_at = self.running.n, time.monotonic()
            print(self.line(), file=self._stream, flush=True)

    def numbers(self) -> str:
        """Accuracy, TPF and TPS so far; TPS by the wall clock where samples share it (a batch)."""
        live = self.running
        tps, unit = live.tps, "TPS"
        if tps is None and live.tokens > self._resumed_tokens:
            tps, unit = (live.tokens - self._resumed_tokens) / self._elapsed(), "TPS (wall)"
        parts = [
            f"accuracy {percent(live.accuracy)}",
            f"TPF {number(live.tpf)}",
            f"{unit} {number(tps)}",
        ]
        parts += [f"errors {live.errors}"] if live.errors else []
        parts += [self.beside()] if self.beside else []
        return ", ".join(filter(None, parts))

    def line(self) -> str:
        done, elapsed = self.running.n, self._elapsed()
        share = f"{done}/{self.total} ({100 * done // max(1, self.total)} %)"
        left = elapsed / max(1, done - self._resumed) * max(0, self.total - done)
        label = f"{self.label}: " if self.label else ""
        end = f" (until {datetime.now() + timedelta(seconds=left):%H:%M})" if left >= LONG_SECONDS else ""
        return f"{label}{share}, {self.numbers()}, {clock(elapsed)} elapsed, {clock(left)} left{end}"

    def _line_due(self) -> bool:
        done = self.running.n
        step = max(1.0, LINE_FRACTION * self.total)
        if done >= self.total:  # the last line is worth waiting for the verdicts
            return self._unjudged <= 0
        return done - self._line_n >= step or time.monotonic() - self._line_at >= LINE_SECONDS

    def _elapsed(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)

    def _make_bar(self) -> Bar:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
        )
        bar.add_task(self.label, total=self.total, completed=self._resumed, numbers=self.numbers())
        return bar
