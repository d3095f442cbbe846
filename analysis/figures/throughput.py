"""Figure 1, tokens per second of systems; and TPF of the same rows under every counting rule."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures.choice import few, k_grid, panel_titles, whose, words_of
from analysis.figures.style import (
    COLOURS,
    GREY,
    Plot,
    Plotted,
    columns_of,
    errors,
    panels,
    paper_style,
    points,
    shown,
    tell,
)
from analysis.labels import decoding, task_name
from analysis.sides import tuned_words
from analysis.study import Study, preset_for
from analysis.tables import published
from analysis.tables.article import branches
from analysis.tables.match import article_run, others, plain_and_lopa, references, tuned_systems
from analysis.text import clipped, plain, setting, typeset
from lopa_bench.console.numbers import fixed, signed
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

TASKS = ("mbpp", "gsm8k")
PRESET = "lopa_dist"
FASTEST = {"LoPA-Dist-NV": "S12", "LoPA-Dist-Ascend": "S18"}  # the settings whose TPS the article's bars show
NOT_TUNED = ", not tuned"
Bar = tuple[str, float | None, Estimate, Run | None]  # label, published, measured, and the run that was


def figure1(study: Study) -> Plotted | None:
    """Above the article's systems, below the others, each model and device with an axis of its own: once every decoder
    at one setting, and once every decoder at the fastest of the same settings.
    """
    panels_of = [(f"The article's systems\n{task_name(task)}", _article_bars(study, task)) for task in TASKS]
    groups = others(study, TASKS)
    for group, title in zip(groups, panel_titles(study, groups)):
        panels_of += [(f"{title}\n{how}", bars) for how, bars in _own_panels(study, group) if bars]
    width = columns_of(len(panels_of))
    rows = [panels_of[start : start + width] for start in range(0, len(panels_of), width)]
    slots = [max(len(bars) for _, bars in row) for row in rows for _ in row]  # bars are equally thick in all panels
    with paper_style():
        figure, axes = panels(len(panels_of), heights=[0.9 + 0.26 * count for count in slots])
        for ax, (title, bars), count in zip(axes, panels_of, slots):
            _bars(ax, bars, count)
            ax.set_title(title, x=1.0, ha="right")  # the room is on the left, beside the bars' labels
    return figure


def _article_bars(study: Study, task: str) -> list[Bar]:
    bars: list[Bar] = []
    for row in published.rows("figure1_throughput"):
        if row["task"] == task:
            kind = "lopa" if "LoPA" in row["model"] else "vanilla" if "D2F" in row["model"] else "server"
            wanted = published.system_settings(FASTEST[row["system"]]) if kind == "lopa" else None
            device = published.PLATFORMS.get(row["system"], "")
            run = article_run(study, row["model"], task, kind, wanted, device=device)
            measured = Estimate() if run is None else _speed(study, run)
            model = row["model"].replace("-100BA6B", "").replace("-7B-Base", "")
            n = "" if run is None else f", n = {study.numbers(run).decoded}"
            bars.append(
                (f"{row['bar']}  {model}\n{row['system']}, {row['parallelism']}{n}", float(row["tps"]), measured, run)
            )
    return bars


def _own_panels(study: Study, group: list[Run]) -> list[tuple[str, list[Bar]]]:
    """One setting each; and for each base decoder the fastest of the same settings each. The bars of a panel are
    counted on the samples that all of them share.
    """
    tuned = tuned_systems(study, group, PRESET)
    alone = [*plain_and_lopa(group, branches(group[0].task)), *references(group)]
    found = [("one setting each", [_bar(study, run, group, alone, NOT_TUNED if tuned else "") for run in alone])]
    for entrants in tuned:
        runs = [one.run for one in entrants]
        bars = [_bar(study, one.run, group, runs, f", best of {one.tried}") for one in entrants]
        found.append(("each at its fastest of the same settings", bars))
    return found


def _bar(study: Study, run: Run, group: list[Run], among: list[Run], says: str) -> Bar:
    """`group`: the runs among which the settings of this one need a name; `among`: those that share its panel."""
    label = shown(clipped(decoding(run))) + ("" if run.backend == "local" else f", {plain(run.backend)}")
    tau = run.settings.get("tau_conf")
    settings = tuned_words(run, group) or (f"τ {setting(tau)}" if isinstance(tau, float) else "")
    return f"{label}\n{settings}{says}".replace("\n, ", "\n").strip(), None, _speed(study, run, among), run


def _speed(study: Study, run: Run, among: Sequence[Run] = ()) -> Estimate:
    return study.value(run, "tps", preset_for(run, PRESET), among)


def _bars(ax: Axes, bars: list[Bar], slots: int) -> None:
    places = range(len(bars))
    said = [value or 0.0 for _, value, _, _ in bars]
    found = [value for _, _, value, _ in bars]
    both = any(said) and any(value.value is not None for value in found)
    thick = 0.38 if both else 0.62
    if any(said):
        ax.barh([p - thick / 2 * both for p in places], said, thick, color="0.85", edgecolor=GREY, hatch="///",
                linewidth=0.6, label="published")  # fmt: skip
    ax.barh([p + thick / 2 * both for p in places], points(found), thick, color=COLOURS[2], xerr=errors(found),
            error_kw={"elinewidth": 0.8, "capsize": 2}, label="measured, 95 % interval")  # fmt: skip
    for place, (label, value, measured, run) in enumerate(bars):
        at = place + thick / 2 * both, place - thick / 2 * both  # of the measured and the published bar
        number = f"measured {fixed(measured.value, 0, measured.interval)} tokens a second"
        tell(ax, measured.value, at[0], "\n".join([label, typeset(number), *(whose(run) if run else ())]))
        tell(ax, value, at[1], f"{label}\npublished {fixed(value, 0)} tokens a second")
        if measured.value is not None:
            end = measured.interval[1] if measured.interval else measured.value
            ax.text(end, at[0], f"\u00a0{fixed(measured.value, 0)}", va="center", fontsize=6)
        if value:
            ax.text(value, at[1], f"\u00a0{fixed(value, 0)}", va="center", fontsize=6, color="0.35")
            if measured.value is not None:
                difference = typeset(signed(measured.value - value, 0))
                ax.text(max(value, measured.value) * 1.12, place, difference, va="center", fontsize=6, weight="bold")
            if measured.value is None and both:
                ax.text(0, place + thick / 2, "\u00a0no run", va="center", fontsize=6, color="0.35")
    ax.set_yticks(list(places), [label for label, _, _, _ in bars], fontsize=6)
    ax.set_ylim(slots - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("tokens per second" + (", no run of these" if any(said) and not both else ""))
    ax.margins(x=0.12)
    if any(said) and both:
        ax.legend(loc="lower right")


def presets(study: Study) -> Plotted | None:
    grid = k_grid(study)
    if grid is None:
        return None
    figure, panels_of, look = grid
    with paper_style():
        for ax, runs, title in panels_of:
            chosen = few(runs)
            names = [name for name in PRESETS if study.value(chosen[0], "tpf", name, runs).value is not None]
            for index, run in enumerate(chosen):
                values = [study.value(run, "tpf", name, runs) for name in names]
                places = [place + 0.16 * (index - (len(chosen) - 1) / 2) for place in range(len(names))]
                style = look[run.k] | {"linestyle": "", "elinewidth": 0.8, "capsize": 1.5}
                ax.errorbar(points(values), places, xerr=errors(values), **style)
                for name, place, value in zip(names, places, values):
                    number = f"TPF under {name} {fixed(value.value, 2, value.interval)}"
                    tell(ax, value.value, place, words_of(run, chosen, number))
            ax.set_yticks(range(len(names)), [f"{name}\n{_rule(name)}" for name in names], fontsize=6.5)
            ax.invert_yaxis()
            ax.set_xlim(left=0)
            ax.set_title(title.replace(" · ", "\n"))
            ax.set_xlabel("TPF under the rule (tokens per step)")
        handles = [Line2D([], [], **style | {"linestyle": ""}, label=f"k = {k}") for k, style in look.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _rule(name: str) -> str:
    """The TPF part of a preset's formula."""
    return PRESETS[name].formula.partition(",")[0]


PLOTS = [
    Plot(
        "figure1",
        "Throughput of systems",
        "Mean of per-sample TPS, counting preset lopa_dist (servers: their own token counts). Hatched bars are "
        "published values; filled bars are measured, with 95 % bootstrap intervals, beside a published one only with "
        "its settings. Models that the article does not have stand in panels of their own, each on one device and the "
        "same problems: once at one setting each, and once at the fastest of several settings, if all decoders of the "
        "panel were tried on all of them.",
        "any run on MBPP or GSM8K",
        figure1,
    ),
    Plot(
        "presets",
        "One run, every counting rule",
        "The same rows counted by each rule (docs/metrics.md). Where a run stops at the end token the window holds "
        "little beside the answer; with decode_tail=true the rules differ far more.",
        "a sweep of decoder.k",
        presets,
    ),
]
