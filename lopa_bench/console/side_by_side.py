"""The runs of a sweep below each other, as a person reads them: heading, numbers, ratios, notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lopa_bench.console.numbers import UNKNOWN, count, fixed, number, over_interval, percent, plain, points, rate, times
from lopa_bench.metrics.ratios import Relative, ratios_to_first
from lopa_bench.metrics.varied import Measured, varied
from lopa_bench.records.runs import Run
from lopa_bench.records.schema import ERROR_REASONS

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


NUMBERS = ("k", "n", "accuracy", "TPF", "TPF/row", "TPS", "latency", "forwards", "rows")
EDITED = {"edits/token": "edits_per_token", "tokens/position": "tokens_per_processed"}  # where any run has edits
SHOWN = ("decoder", "decoder.k", "model")  # overrides that have a place of their own


def side_by_side(runs: Sequence[Measured]) -> Group:
    """Runs below each other, each with what was varied and with its ratios to the first that it stands beside: a
    heading, rows of numbers, and what a reader must know of them.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    ratios, apart = ratios_to_first(runs)
    notes = [*_notes(runs), *_notes_of_ratios(ratios, apart)]
    parts: list[RenderableType] = [
        Text(_heading(runs), style="bold"), _table(runs, ratios), Text("\n".join(plain(note) for note in notes))
    ]  # fmt: skip
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in parts))


def _table(runs: Sequence[Measured], ratios: Sequence[Relative | None]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="underline")
    table.add_column("decoder", overflow="fold")  # a long name is broken, a number never is
    edited = EDITED if any(one.numbers.get("edits") is not None for one in runs) else {}
    for name in (*NUMBERS, *edited):
        table.add_column(name.replace("/t", "/\nt").replace("/p", "/\np"), justify="right", no_wrap=True)
    for one, own, ratio in zip(runs, varied(runs), ratios, strict=True):
        beside = [fixed(one.numbers.get(quantity), 3) for quantity in edited.values()]
        table.add_row(*map(Text, [*_cells(one, own, [other.run for other in runs]), *beside]))
        if ratio is not None:
            table.add_row(*map(Text, _ratio_cells(ratio)), style="dim")
    return table


def _cells(one: Measured, own: Mapping[str, str], all_runs: Sequence[Run]) -> list[str]:
    """`own`: what this run's overrides have that others of the table have not."""
    run, numbers = one.run, one.numbers
    parts = [
        run.decoder,
        f"on {run.wraps}" if run.wraps else "",
        run.model if len({other.model for other in all_runs}) > 1 else "",
        f"{run.backend} server" if run.device == "server" else "",
    ]
    if len({other.task for other in all_runs}) > 1:
        parts.append(f"task={run.task}")
    hidden = (*SHOWN, "task")
    parts += [f"{name}={value}" for name, value in own.items() if name not in hidden]
    return [
        "\n".join(plain(part) for part in parts if part),
        plain(run.k_as_set or UNKNOWN),
        str(numbers["n"]),
        _with_interval(numbers, "accuracy", rate, " %"),
        _with_interval(numbers, "tpf"),
        number(numbers.get("tpf_row")),
        _with_interval(numbers, "tps"),
        _with_interval(numbers, "latency_s", unit=" s"),
        count(numbers.get("forwards")),
        count(numbers.get("rows")),
    ]


def _ratio_cells(ratios: Relative) -> list[str]:
    names = ("tpf", "tpf_row", "tps", "latency_s", "forwards", "rows")
    pairs = "" if ratios.is_whole else str(ratios.pairs)
    ratio_cells = [times(ratios.values.get(name)) for name in names]
    return ["to first", "", pairs, points(ratios.accuracy_difference), *ratio_cells]


def _notes_of_ratios(ratios: Sequence[Relative | None], apart: Sequence[str]) -> list[str]:
    found = sorted({one.pairs for one in ratios if one is not None})
    notes = [f"ratios: on the {' or '.join(map(str, found))} samples that both runs decoded"] if found else []
    notes += [f"not side by side ({why}): their ratios compare nothing, and none is shown" for why in apart]
    if apart and found:
        notes.append("first: the first run above with the same task, source, model, device and counting rule")
    return notes


def _heading(runs: Sequence[Measured]) -> str:
    def every(of: Callable[[Measured], str]) -> str:
        """The value that all runs share, or all values."""
        return " / ".join(dict.fromkeys(plain(of(one)) for one in runs))

    models = every(lambda one: one.run.model + (" (toy model)" if one.run.toy else ""))
    return (
        f"{every(lambda one: one.run.task)}: {every(lambda one: one.run.source_name)}\n"
        f"model {models}, {every(lambda one: _place(one.run))}\n"
        f"counting {every(lambda one: '{preset} ({formula})'.format(**one.numbers))}; ranges are 95 % intervals"
    )


def _place(run: Run) -> str:
    if run.device == "server":
        return f"{run.backend} server (dtype {run.dtype})"
    return f"{run.backend} on {run.device} {run.dtype}"


def _notes(runs: Sequence[Measured]) -> list[str]:
    """What stands between the numbers and a reader's conclusion, each said once."""
    notes = []
    for one in runs:
        run, numbers = one.run, one.numbers
        who = f"{run.id}: " if len(runs) > 1 else ""
        if run.status != "finished":
            notes.append(f"{who}the run is {run.status}")
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
        notes += [who + line for line in _load_lines(numbers)]
        if numbers.get("approximate"):
            notes.append(f"{who}prefix reuse is approximate in this setting")
        if numbers.get("tps_clock") == "wall":
            alone = ", no latency" if numbers["latency_s"] is None else ", latency under load"
            notes.append(f"{who}samples were decoded together: TPS by the wall clock of the run{alone}")
        if len(numbers.get("machines") or ()) > 1:
            parts = ", ".join(f"{name} {count}" for name, count in numbers["machines"].items())
            notes.append(f"{who}the times come from different machines ({parts} samples)")
        if (workers := numbers.get("workers") or {}).keys() - {"1"}:
            parts = " or ".join(workers)
            notes.append(f"{who}{parts} workers decoded at once: TPS and latency are of one of them, beside the others")
        if numbers.get("note"):
            notes.append(f"{numbers['preset']}: {numbers['note']}")
    return list(dict.fromkeys(notes))


def _pass_at(values: Mapping[str, float | None]) -> str:
    return ", ".join(f"pass@{k} {percent(value)}" for k, value in values.items())


def _load_lines(numbers: Mapping[str, Any]) -> list[str]:
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


def _with_interval(numbers: Mapping[str, Any], name: str, show: Callable[[float], str] = number, unit: str = "") -> str:
    return over_interval(numbers.get(name), numbers.get(f"{name}_ci95"), show, unit)
