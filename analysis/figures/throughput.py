"""Figure 1: tokens per second of systems, published and measured."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import published
from analysis.figures.style import COLOURS, GREY, Plot, errors, panels, paper_style, points
from analysis.labels import decoding, model_of, task_name, task_of
from analysis.numbers import Value, preset_for
from analysis.runs import Run
from analysis.study import Study
from analysis.tables.article import branches
from analysis.tables.match import article_run, fastest, lopa_runs, others, plain_runs, references

TASKS = ("mbpp", "gsm8k")
PRESET = "lopa_dist"
Bar = tuple[str, float | None, Value]  # label, published, measured


def figure1(study: Study) -> Figure | None:
    """Above the article's systems, below the others, each with an axis of its own: their speeds compare nothing."""
    shown = {f"The article's systems\n{task_name(task)}": _article_bars(study, task) for task in TASKS}
    for groups in _own_groups(study):
        names = "other models" if len(groups) > 1 else model_of(groups[0][0])
        title = f"{names} on {groups[0][0].device}\n{task_of(groups[0][0])}"
        shown[title] = [bar for group in groups for bar in _own_bars(study, group, len(groups) > 1)]
    slots = max(map(len, shown.values()))  # bars are equally thick in all panels
    with paper_style():
        figure, axes = panels(len(shown), height=0.9 + 0.26 * slots)
        for ax, (title, bars) in zip(axes, shown.items()):
            _bars(ax, bars, slots)
            ax.set_title(title)
    return figure


def _own_groups(study: Study) -> list[list[list[Run]]]:
    """For each panel, a device and a task, the runs of each model that the article does not have."""
    groups: dict[tuple[str, str], list[list[Run]]] = {}
    for (_, task), runs in others(study, TASKS).items():
        for device in dict.fromkeys(run.device for run in runs):
            groups.setdefault((device, task), []).append([run for run in runs if run.device == device])
    return list(groups.values())


def _article_bars(study: Study, task: str) -> list[Bar]:
    bars: list[Bar] = []
    for row in published.rows("figure1_throughput"):
        if row["task"] == task:
            kind = "lopa" if "LoPA" in row["model"] else "vanilla" if "D2F" in row["model"] else "server"
            run = article_run(study, row["model"], task, kind, device=published.PLATFORMS.get(row["system"], ""))
            measured = Value(None) if run is None else _speed(study, run)
            model = row["model"].replace("-100BA6B", "").replace("-7B-Base", "")
            bars.append((f"{row['bar']}  {model}\n{row['system']}, {row['parallelism']}", float(row["tps"]), measured))
    return bars


def _own_bars(study: Study, group: list[Run], named: bool) -> list[Bar]:
    runs = [*plain_runs(group), *lopa_runs(study, group, branches(group[0].task))]
    quickest = fastest(study, group)
    if quickest is not None and quickest not in runs:
        runs.append(quickest)
    runs += references(group)
    return [(_label(run, named), None, _speed(study, run)) for run in runs]


def _label(run: Run, named: bool) -> str:
    """`named`: with the model, where a panel shows several."""
    tau = run.settings.get("tau_conf")
    text = decoding(run) + (f", τ {tau:g}" if run.lookahead and tau is not None else "")
    if not (run.is_autoregressive or run.is_server or named):
        return text.replace(", k", "\nk")
    return f"{text}\n{model_of(run)}" + ("" if run.row["backend"] == "local" else f", {run.row['backend']}")


def _speed(study: Study, run: Run) -> Value:
    return study.value(run, "tps", preset_for(run, PRESET))


def _bars(ax: Axes, bars: list[Bar], slots: int) -> None:
    places = range(len(bars))
    said = [value or 0.0 for _, value, _ in bars]
    found = [value for _, _, value in bars]
    both = any(said) and any(value.value is not None for value in found)
    thick = 0.38 if both else 0.62
    if any(said):
        ax.barh([p - thick / 2 * both for p in places], said, thick, color="0.85", edgecolor=GREY, hatch="///",
                linewidth=0.6, label="published")  # fmt: skip
    ax.barh([p + thick / 2 * both for p in places], points(found), thick, color=COLOURS[2], xerr=errors(found),
            error_kw={"elinewidth": 0.8, "capsize": 2}, label="measured, 95 % interval")  # fmt: skip
    for place, (_, value, measured) in enumerate(bars):
        if measured.value is not None:
            end = measured.interval[1] if measured.interval else measured.value
            ax.text(end, place + thick / 2 * both, f" {measured.value:.0f}", va="center", fontsize=6)
        if value:
            ax.text(value, place - thick / 2 * both, f" {value:.0f}", va="center", fontsize=6, color="0.35")
            if measured.value is None and both:
                ax.text(0, place + thick / 2, " no run", va="center", fontsize=6, color="0.35")
    ax.set_yticks(list(places), [label for label, _, _ in bars], fontsize=6)
    ax.set_ylim(slots - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("tokens per second" + (", no run of these" if any(said) and not both else ""))
    ax.margins(x=0.12)
    if any(said) and both:
        ax.legend(loc="lower right")


PLOTS = [
    Plot(
        "figure1",
        "Throughput of systems",
        "Mean of per-sample TPS, counting preset lopa_dist (servers: their own token counts). Hatched bars are "
        "published values; filled bars are measured, with 95 % bootstrap intervals. Models that the article does not "
        "have stand in panels of their own: a toy on a CPU and a 7B model on eight accelerators share no axis.",
        "any run on MBPP or GSM8K",
        figure1,
    )
]
