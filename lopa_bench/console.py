"""What a person and a program see at the end of a run or a sweep: tables, then one line of JSON (stdout)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lopa_bench.paired import baseline_first, paired_table
from lopa_bench.schema import ERROR_REASONS, to_json
from lopa_bench.words import count, number

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table

    from lopa_bench.jobs import JobReport

Run = tuple[Mapping[str, Any], Mapping[str, Any]]  # a run row and its aggregates

WIDTH_WITHOUT_TERMINAL = 100


def report(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any, stream: TextIO | None = None) -> None:
    """The end of a run on stdout: the table, then the JSON line, which is the last one."""
    stream = stream or sys.stdout
    console_on(stream).print(result_table(run, aggregates))
    print(json_line(run, aggregates, path), file=stream, flush=True)  # not rich: it would break the line


def report_sweep(
    folder: Path,
    jobs: Sequence[JobReport],
    runs: Sequence[Run],
    against: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """The end of a multirun on stdout: its runs side by side, perhaps paired with the one that `against` names, its
    jobs, then one JSON line.
    """
    stream = stream or sys.stdout
    console = console_on(stream)
    is_paired = False
    if against:
        runs, is_paired = baseline_first(runs, against)
    if runs:
        console.print(side_by_side(runs))
    if is_paired and (paired := paired_table(runs)):
        console.print(paired)
    elif against:
        console.print(f"no run with {against} has finished with others beside it: nothing is paired")
    console.print(job_table(jobs))
    failed = sum(job.status != "finished" for job in jobs)
    if failed:
        print(f"\n{failed} of {len(jobs)} jobs did not finish; their logs: {folder}/<job>/job.log", file=stream)
    ids = [job.run_id for job in jobs if job.status == "finished"]
    values = {"runs": ids, "jobs": len(jobs), "failed": failed, "path": str(folder)}
    values["table"] = [_json_values(run, numbers, run.get("folder")) for run, numbers in runs]
    print(to_json(values), file=stream, flush=True)


def console_on(stream: TextIO) -> Console:
    from rich.console import Console

    console = Console(file=stream)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def job_table(jobs: Sequence[JobReport]) -> RenderableType:
    """All jobs of a sweep; overrides that all of them share are said once, above."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shared = [text for text in jobs[0].overrides if len(jobs) > 1 and all(text in job.overrides for job in jobs)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for name in ("job", "status"):
        table.add_column(name, no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for name in ("overrides", "path"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        own = " ".join(text for text in job.overrides if text not in shared)
        seconds = "-" if job.seconds is None else f"{job.seconds:.1f}"
        where = _near(job.path or job.folder)
        table.add_row(
            str(job.job), job.status, seconds, Text(own), Text(f"{where}\n{job.error}" if job.error else where)
        )
    heading = Text(f"jobs, all with {' '.join(shared)}" if shared else "jobs", style="bold")
    return Padding(Group(heading, table), (1, 0, 0, 0))


def _near(path: str) -> str:
    """The path from here, if it is below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def json_line(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> str:
    """The run in one line of strict JSON, for programs."""
    return to_json(_json_values(run, aggregates, path))


def _json_values(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> dict[str, Any]:
    k = run.get("k")
    return {
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


_JSON_NUMBERS = (
    "preset", "n", "errors", "accuracy", "accuracy_ci95", "pass_at", "tpf", "tpf_ci95", "tpf_row",
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
    several = len({run["model"] for run, _ in runs}) > 1
    for index, (run, numbers) in enumerate(runs):
        table.add_row(*_cells(run, numbers, several))
        if index:
            table.add_row(*_ratio_cells(numbers, first), style="dim")
    return table


def _cells(run: Mapping[str, Any], numbers: Mapping[str, Any], with_model: bool = False) -> list[str]:
    """`with_model`: the runs of the table have several models, so each row says its own."""
    second = f"on {run['base']}" if run.get("base") else run["model"] if with_model else ""
    server = f"{run['backend']} server" if run["device"] == "server" else ""
    return [
        "\n".join(part for part in (run["decoder"], second, server) if part),
        str(run.get("k") or "-"),
        str(numbers["n"]),
        _with_interval(numbers, "accuracy", lambda value: f"{100 * value:.1f}", " %"),
        _with_interval(numbers, "tpf", number),
        number(numbers.get("tpf_row")),
        _with_interval(numbers, "tps", number),
        _with_interval(numbers, "latency_s", number, " s"),
        count(numbers.get("forwards")),
        count(numbers.get("rows")),
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
        f"model {' / '.join(models)}, {' / '.join(dict.fromkeys(_place(run) for run, _ in runs))}\n"
        f"counting {' / '.join(counting)}; ranges are 95 % intervals"
    )


def _place(run: Mapping[str, Any]) -> str:
    if run["device"] == "server":
        return f"{run['backend']} server (dtype {run['dtype']})"
    return f"{run['backend']} on {run['device']} {run['dtype']}"


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
            notes.append(f"{who}incomplete: {numbers['errors']} of {numbers['n']} samples failed ({reasons})")
        if numbers.get("unjudged"):
            notes.append(f"{who}{numbers['unjudged']} of {numbers['n']} completions could not be judged")
        if len(numbers.get("pass_at") or ()) > 1:
            notes.append(who + _pass_at(numbers["pass_at"]))
        if numbers.get("cached_prompts"):
            notes.append(f"{who}the server had {numbers['cached_prompts']} prompts in its cache: prefill looks faster")
        notes += [who + line for line in _load_lines(run, numbers)]
        if numbers.get("approximate"):
            notes.append(f"{who}prefix reuse is approximate in this setting")
        if numbers.get("tps_clock") == "wall":
            alone = ", no latency" if numbers["latency_s"] is None else ", latency under load"
            notes.append(f"{who}samples were decoded together: TPS by the wall clock of the run{alone}")
        if len(numbers.get("machines") or ()) > 1:
            parts = ", ".join(f"{name} {count}" for name, count in numbers["machines"].items())
            notes.append(f"{who}the times come from different machines ({parts} samples)")
        if numbers.get("note"):
            notes.append(f"{numbers['preset']}: {numbers['note']}")
    if len({(run["task"], run["source_sha256"]) for run, _ in runs}) > 1:
        notes.append("the runs are on different problems: their ratios compare nothing")
    return list(dict.fromkeys(notes))


def _pass_at(values: Mapping[str, float | None]) -> str:
    return ", ".join(f"pass@{k} {'-' if value is None else f'{100 * value:.1f} %'}" for k, value in values.items())


def _load_lines(run: Mapping[str, Any], numbers: Mapping[str, Any]) -> list[str]:
    """Percentiles and goodput of a server; silent for everything else."""
    if numbers.get("requests_s") is None:
        return []
    names = (
        ("latency", "latency_percentiles_s"),
        ("first token", "ttft_percentiles_s"),
        ("between tokens", "itl_percentiles_s"),
    )
    parts = [
        f"{label} {' / '.join(number(value) for value in numbers[name].values())} s"
        for label, name in names
        if numbers.get(name)
    ]
    lines = [f"p50 / p95 / p99: {', '.join(parts)}; {number(numbers['requests_s'])} requests/s"] if parts else []
    if numbers.get("tps_server") is not None:
        latency = number(numbers["latency_server_s"])
        lines.append(f"by the server's clock: TPS {number(numbers['tps_server'])}, latency {latency} s")
    if numbers.get("goodput_s") is not None:
        lines.append(
            f"goodput {number(numbers['goodput_s'])} requests/s: {numbers['good']} of {numbers['n']} within the limits"
        )
    return lines


def _with_interval(numbers: Mapping[str, Any], name: str, show: Any, unit: str = "") -> str:
    """The value, and its 95 % interval on a line of its own, which keeps the table within 80 columns."""
    value, interval = numbers.get(name), numbers.get(f"{name}_ci95")
    if value is None:
        return "-"
    return show(value) + unit + (f"\n{show(interval[0])}–{show(interval[1])}" if interval else "")
