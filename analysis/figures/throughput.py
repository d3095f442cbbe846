"""Figure 1: tokens per second of systems, published and measured."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import published
from analysis.figures.style import COLOURS, GREY, Plot, errors, panels, paper_style, points
from analysis.labels import decoding, model_of, task_name, task_of
from analysis.numbers import Value
from analysis.runs import Run
from analysis.study import Study
from analysis.tables.article import branches
from analysis.tables.match import article_run, fastest, lopa_runs, others, plain_runs

TASKS = ("mbpp", "gsm8k")
PRESET = "lopa_dist"
Bar = tuple[str, float | None, Value]  # label, published, measured


def figure1(study: Study) -> Figure | None:
    """Above the article's systems, below the others, each with an axis of its own: their speeds compare nothing."""
    own = [(task, group) for (_, task), group in others(study, TASKS).items()]
    with paper_style():
        figure, axes = panels(len(TASKS) + len(own), height=2.3)
        for ax, task in zip(axes, TASKS):
            _bars(ax, _article_bars(study, task))
            ax.set_title(f"The article's systems\n{task_name(task)}")
        for ax, (task, group) in zip(axes[len(TASKS) :], own):
            _bars(ax, _own_bars(study, task, group))
            ax.set_title(f"{model_of(group[0])} on {group[0].device}\n{task_of(group[0])}")
    return figure


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


def _own_bars(study: Study, task: str, group: list[Run]) -> list[Bar]:
    runs = [*plain_runs(group), *lopa_runs(study, group, branches(task))]
    quickest = fastest(study, group)
    if quickest is not None and quickest not in runs:
        runs.append(quickest)
    runs += [run for run in group if run.is_server]
    return [(_label(run), None, _speed(study, run)) for run in runs]


def _label(run: Run) -> str:
    tau = run.settings.get("tau_conf")
    return decoding(run).replace(", k", "\nk") + (f", tau {tau:g}" if run.lookahead and tau is not None else "")


def _speed(study: Study, run: Run) -> Value:
    return study.value(run, "tps", "ar_server" if run.is_server else PRESET)


def _bars(ax: Axes, bars: list[Bar]) -> None:
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
    ax.invert_yaxis()
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
