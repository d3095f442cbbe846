"""What a person sees of a run: progress while it goes on (stderr), then a table and one line of JSON (stdout)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from lopa_bench.metrics import Running
from lopa_bench.schema import ERROR_REASONS, to_json

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.progress import Progress as Bar
    from rich.table import Table

Run = tuple[Mapping[str, Any], Mapping[str, Any]]  # a run row and its aggregates

LINE_SECONDS = 30.0
LINE_FRACTION = 0.1
WIDTH_WITHOUT_TERMINAL = 100


class Progress:
    """A live bar on a terminal, else a plain line every tenth of the run or 30 s; numbers as in `Running`.

    `seen` are the rows of a resumed run that are on disk already: they count in the numbers, not in the estimate
    of the time left.
    """

    def __init__(
        self,
        total: int,
        label: str = "",
        seen: Iterable[Mapping[str, Any]] = (),
        stream: TextIO | None = None,
    ) -> None:
        from rich.console import Console

        self.total = total
        self.label = label
        self.running = Running()
        for row in seen:
            self.running.add(row)
        self._resumed = self.running.n
        self._resumed_tokens = self.running.tokens
        self._stream = stream or sys.stderr
        self._console = Console(file=self._stream)
        self._bar: Bar | None = None
        self._started = self._line_at = time.monotonic()
        self._line_n = self.running.n

    def __enter__(self) -> Progress:
        self._started = self._line_at = time.monotonic()
        if self._console.is_terminal:
            self._bar = self._make_bar()
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts one finished sample (a row of the sample table)."""
        self.running.add(row)
        if self._bar:
            self._bar.update(self._bar.task_ids[0], advance=1, numbers=self.numbers())
        elif self._line_due():
            self._line_n, self._line_at = self.running.n, time.monotonic()
            print(self.line(), file=self._stream, flush=True)

    def numbers(self) -> str:
        """Accuracy, TPF and TPS so far; TPS by the wall clock where samples share it (a batch)."""
        live = self.running
        tps, unit = live.tps, "TPS"
        if tps is None and live.tokens > self._resumed_tokens:
            tps, unit = (live.tokens - self._resumed_tokens) / self._elapsed(), "TPS (wall)"
        parts = [
            f"accuracy {_percent(live.accuracy)}",
            f"TPF {_number(live.tpf)}",
            f"{unit} {_number(tps)}",
        ]
        return ", ".join(parts + ([f"errors {live.errors}"] if live.errors else []))

    def line(self) -> str:
        done, elapsed = self.running.n, self._elapsed()
        share = f"{done}/{self.total} ({100 * done // max(1, self.total)} %)"
        left = elapsed / max(1, done - self._resumed) * max(0, self.total - done)
        label = f"{self.label}: " if self.label else ""
        return f"{label}{share}, {self.numbers()}, {_clock(elapsed)} elapsed, {_clock(left)} left"

    def _line_due(self) -> bool:
        done = self.running.n
        step = max(1.0, LINE_FRACTION * self.total)
        return done >= self.total or done - self._line_n >= step or time.monotonic() - self._line_at >= LINE_SECONDS

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


def report(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any, stream: TextIO | None = None) -> None:
    """The end of a run on stdout: the table, then the JSON line, which is the last one."""
    from rich.console import Console

    stream = stream or sys.stdout
    console = Console(file=stream)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    console.print(result_table(run, aggregates))
    print(json_line(run, aggregates, path), file=stream, flush=True)  # not rich: it would break the line


def report_sweep(runs: Sequence[Mapping[str, Any]], failed: int = 0, stream: TextIO | None = None) -> None:
    """The end of a multirun on stdout: its runs side by side, then one JSON line with their ids."""
    from rich.console import Console

    stream = stream or sys.stdout
    console = Console(file=stream)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    console.print(side_by_side([(run, run["aggregates"]) for run in runs]))
    if failed:
        print(f"{failed} of {failed + len(runs)} jobs failed", file=stream)
    print(to_json({"runs": [run["run_id"] for run in runs], "failed": failed}), file=stream, flush=True)


def json_line(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> str:
    """The run in one line of strict JSON, for programs."""
    k = run.get("k")
    return to_json(
        {
            "run_id": run["run_id"],
            "status": run["status"],
            "task": run["task"],
            "source": run["source_name"],
            "model": run["model"],
            "model_is_toy": run["model_is_toy"],
            "decoder": run["decoder"],
            "k": int(k) if k is not None and k.isdecimal() else k,
            **{name: aggregates.get(name) for name in _JSON_NUMBERS},
            "path": str(path),
        }
    )


_JSON_NUMBERS = (
    "preset", "n", "errors", "accuracy", "accuracy_ci95", "tpf", "tpf_ci95", "tpf_row",
    "tps", "tps_ci95", "latency_s", "forwards", "rows",
)  # fmt: skip


def result_table(run: Mapping[str, Any], aggregates: Mapping[str, Any]) -> RenderableType:
    """One run as a heading, a row of numbers and what a reader must know of them."""
    return side_by_side([(run, aggregates)])


def side_by_side(runs: Sequence[Run]) -> Group:
    """Runs below each other, each with its ratio to the first."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(_heading(runs), style="bold"), _table(runs), Text("\n".join(_notes(runs)))]
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in parts))


def _table(runs: Sequence[Run]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="underline")
    table.add_column("decoder", no_wrap=True)
    headers = ("k", "n", "accuracy", "TPF", "TPF/row", "TPS", "latency", "forwards", "rows")
    for name in headers:
        table.add_column(name, justify="right", no_wrap=True)
    first = runs[0][1]
    for index, (run, numbers) in enumerate(runs):
        table.add_row(*_cells(run, numbers))
        if index:
            table.add_row(*_ratio_cells(numbers, first), style="dim")
    return table


def _cells(run: Mapping[str, Any], numbers: Mapping[str, Any]) -> list[str]:
    latency = numbers.get("latency_s")
    return [
        f"{run['decoder']}\non {run['base']}" if run.get("base") else run["decoder"],
        str(run.get("k") or "-"),
        str(numbers["n"]),
        _with_interval(numbers, "accuracy", lambda value: f"{100 * value:.1f}", " %"),
        _with_interval(numbers, "tpf", _number),
        _number(numbers.get("tpf_row")),
        _with_interval(numbers, "tps", _number),
        "-" if latency is None else f"{_number(latency)} s",
        _count(numbers.get("forwards")),
        _count(numbers.get("rows")),
    ]


def _ratio_cells(numbers: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    accuracy, reference = numbers.get("accuracy"), first.get("accuracy")
    points = "-" if accuracy is None or reference is None else f"{100 * (accuracy - reference):+.1f} pt"

    def times(name: str) -> str:
        value, base = numbers.get(name), first.get(name)
        return "-" if value is None or not base else f"×{value / base:.2f}"

    names = ("tpf", "tpf_row", "tps", "latency_s", "forwards", "rows")
    return ["to first", "", "", points, *map(times, names)]


def _heading(runs: Sequence[Run]) -> str:
    def every(*parts: str) -> str:
        """The value that all runs share, or all values."""
        return " / ".join(dict.fromkeys(" ".join(str(run[part]) for part in parts) for run, _ in runs))

    models = dict.fromkeys(run["model"] + (" (toy model)" if run["model_is_toy"] else "") for run, _ in runs)
    counting = dict.fromkeys(f"{numbers['preset']} ({numbers['formula']})" for _, numbers in runs)
    return (
        f"{every('task')}: {every('source_name')}\n"
        f"model {' / '.join(models)}, {every('backend')} on {every('device', 'dtype')}\n"
        f"counting {' / '.join(counting)}; ranges are 95 % intervals"
    )


def _notes(runs: Sequence[Run]) -> list[str]:
    """What stands between the numbers and a reader's conclusion, each said once."""
    notes = []
    for run, numbers in runs:
        who = f"{run['run_id']}: " if len(runs) > 1 else ""
        if run["status"] != "finished":
            notes.append(f"{who}the run is {run['status']}")
        if numbers.get("errors"):
            reasons = ", ".join(
                f"{reason} {count}" for reason, count in numbers["finish_reasons"].items() if reason in ERROR_REASONS
            )
            notes.append(f"{who}{numbers['errors']} of {numbers['n']} samples failed ({reasons})")
        if numbers.get("unjudged"):
            notes.append(f"{who}{numbers['unjudged']} of {numbers['n']} completions could not be judged")
        if numbers.get("approximate"):
            notes.append(f"{who}prefix reuse is approximate in this setting")
        if numbers.get("tps_clock") == "wall":
            notes.append(f"{who}samples were decoded together: TPS by the wall clock of the run, no latency")
        if numbers.get("note"):
            notes.append(f"{numbers['preset']}: {numbers['note']}")
    if len({(run["task"], run["source_sha256"]) for run, _ in runs}) > 1:
        notes.append("the runs are on different problems: their ratios compare nothing")
    return list(dict.fromkeys(notes))


def _with_interval(numbers: Mapping[str, Any], name: str, show: Any, unit: str = "") -> str:
    """The value, and its 95 % interval on a line of its own, which keeps the table within 80 columns."""
    value, interval = numbers.get(name), numbers.get(f"{name}_ci95")
    if value is None:
        return "-"
    return show(value) + unit + (f"\n{show(interval[0])}–{show(interval[1])}" if interval else "")


def _number(value: float | None) -> str:
    """Three significant digits, never in powers of ten."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _count(value: int | None) -> str:
    """Short, since a table compares; the JSON line and the run row have every digit."""
    if value is None or value < 10_000:
        return "-" if value is None else str(value)
    thousands = value / 1000
    return _number(thousands) + "k" if thousands < 1000 else _number(thousands / 1000) + "M"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
