"""Predicted tokens a second over lookahead branches, for 1, 2, 4 and 8 devices: where lookahead pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, LINES, MARKERS, integers, panels, paper_style, save, shown
from analysis.labels import task_name
from analysis.tables import published
from analysis.tables.cost import comparison, overhead_s
from analysis.tables.render import to_markdown, write_table
from lopa_bench.cost.devices import device
from lopa_bench.cost.predict import assumed
from lopa_bench.cost.recorded import Recorded, recorded
from lopa_bench.cost.sizes import Sized, sized
from lopa_bench.cost.step import Setup, Workload, step

RANKS = (1, 2, 4, 8)
PRESET = "effective"  # by which tokens of recorded runs are counted, unless it is told
VANILLA = "vanilla"  # the published tables' word for no lookahead
Curve = list[tuple[int, float, Workload]]  # k, TPF and the mean step


def published_curves() -> dict[tuple[str, str], Curve]:
    """Figure 4's TPF over k, and that of tables 1 and 2 for k = 0, by model and task."""
    curves: dict[tuple[str, str], Curve] = {}
    for table in ("table1_dream", "table2_diffucoder"):
        for row in published.rows(table):
            if row["decoding"] == VANILLA and row["model"].startswith("D2F"):
                curves[row["model"], row["task"]] = [_point(row, 0)]
    for row in published.rows("figure4_scaling"):
        curves[row["model"], row["task"]].append(_point(row, int(row["branches"])))
    return {key: curve for key, curve in curves.items() if len(curve) > 1}


def _point(row: published.Row, k: int) -> tuple[int, float, Workload]:
    tpf = float(row["tpf"])
    return k, tpf, assumed(sized(published.MODELS[row["model"]]), k, tpf)


def recorded_curve(runs: list[Recorded]) -> Curve:
    """The same of recorded runs, k ascending. Raises ValueError for two runs of one k."""
    ks = [one.k for one in runs]
    if len(set(ks)) < len(ks):
        raise ValueError(f"the runs have k={', '.join(map(str, sorted(ks)))}; allowed: one run for each k")
    return sorted(((one.k, one.tpf, one.work) for one in runs), key=lambda point: point[0])


def _curves(mine: tuple[Sized, Curve] | None) -> list[tuple[str, Sized, Curve]]:
    """Title, model and curve of each panel; that of recorded runs first."""
    curves = [
        (f"{model} · {task_name(task)}\npublished TPF", sized(published.MODELS[model]), curve)
        for (model, task), curve in published_curves().items()
    ]
    return curves if mine is None else [(f"{shown(mine[0].name)}\nrecorded TPF", *mine), *curves]


def draw(setup: Setup, mine: tuple[Sized, Curve] | None = None) -> Figure:
    """A panel for each published curve, and one for recorded runs on a model."""
    curves, spent = _curves(mine), setup.overhead_s
    with paper_style():
        figure, axes = panels(len(curves))
        for ax, (title, model, curve) in zip(axes, curves):
            _panel(ax, model, curve, setup)
            ax.set_title(title)
        software = f", {1e3 * spent:.1f} ms of software a step" if spent else ", no time of software"
        figure.suptitle(f"predicted on {setup.device.title}{software}", fontsize=8)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _panel(ax: Axes, model: Sized, curve: Curve, setup: Setup) -> None:
    """A line for each number of devices; a line of dots is k = 0 on one device, above which lookahead pays."""
    for place, ranks in enumerate(RANKS):
        speeds = [tps(model, point, replace(setup, branch_ranks=ranks)) for point in curve]
        ax.plot([k for k, _, _ in curve], speeds, LINES[place], marker=MARKERS[place], color=COLOURS[place],
                label=f"{ranks} device{'s' if ranks > 1 else ''}")  # fmt: skip
    if curve[0][0] == 0:
        ax.axhline(tps(model, curve[0], setup), color="0.5", linestyle=":", linewidth=1, label="k = 0, one device")
    ax.set_xlabel("lookahead branches k")
    ax.set_ylabel("predicted tokens per second")
    ax.set_ylim(bottom=0)
    integers(ax)


def tps(model: Sized, point: tuple[int, float, Workload], setup: Setup) -> float:
    _, tpf, work = point
    return tpf / step(model.config, work, setup).seconds


def write_cost(
    name: str, runs: Sequence[str], preset: str, model: str | None, outputs: Path, folder: Path
) -> list[str]:
    """Draws on the device `name`, with the time of software that the article's baseline shows; writes the figure and
    the comparison with table 4 below `folder`. Returns what to print. Raises ConfigError, CheckpointError or RunError.
    """
    setup = Setup(device(name), overhead_s=overhead_s())
    found = [recorded(run, preset, outputs) for run in runs]
    if not found and (model is not None or preset != PRESET):
        unread = f"--model {model}" if model is not None else f"--preset {preset}"
        raise ValueError(f"{unread} has no meaning here: it is read with --runs")
    mine = (sized(model or found[0].run.model), recorded_curve(found)) if found else None
    figure, table = draw(setup, mine), comparison()
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    path = save(figure, folder / "figures", "cost")
    lines = [to_markdown(table)]
    for title, sizes, curve in _curves(mine):
        fastest = [
            f"{ranks} device{'s' if ranks > 1 else ''}: k = {k}, {speed:.0f} TPS (x{gain:.2f})"
            for ranks, k, speed, gain in best(sizes, curve, setup)
        ]
        lines.append(f"fastest on {name}, {title.replace(chr(10), ', ')}: {'; '.join(fastest)}")
    return [*lines, *map(str, (path, path.with_suffix(".pdf"), *write_table(table, folder / "tables")))]


def best(model: Sized, curve: Curve, setup: Setup) -> list[tuple[int, int, float, float]]:
    """For each number of devices: the fastest k, its TPS, and how many times that of k = 0 on one device (or, without a
    k = 0, of the smallest k).
    """
    base = tps(model, curve[0], setup)
    found = []
    for ranks in RANKS:
        speed, k = max((tps(model, point, replace(setup, branch_ranks=ranks)), -point[0]) for point in curve)
        found.append((ranks, -k, speed, speed / base))
    return found
