"""What lookahead costs, which branch wins, and whether the branch score predicts what is filled."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.choice import few, k_panels, looks, panel_titles, series_titles, tell_runs, words_of
from analysis.figures.style import (
    COLOURS,
    GREY,
    LINES,
    MARKERS,
    Plot,
    Plotted,
    errors,
    fitting,
    integers,
    legend,
    panels,
    paper_style,
    points,
    tell,
)
from analysis.rewards import rewards
from analysis.study import Study
from analysis.text import typeset
from lopa_bench.console.numbers import fixed
from lopa_bench.metrics.statistics import Estimate, wilson
from lopa_bench.records.runs import Run

PARTS = {"bonus": "removal bonus", "gain": "paired gain"}  # of a branch's score
MEASURES = {"neg_entropy": "negative entropy, nats", "prob": "probability", "margin": "margin"}


def lookahead_cost(study: Study) -> Plotted | None:
    """Positions computed for each content token, and content tokens for each row, over k."""
    series, left_out = fitting(k_panels(study))
    if not series:
        return None
    with paper_style():
        figure, (left, right) = panels(2, height=3.0, left_out=left_out)
        for index, (runs, title) in enumerate(zip(series, series_titles(study, series))):
            for ax, quantity in ((left, "processed_per_token"), (right, "tpf_row")):
                values = [study.value(run, quantity, among=runs) for run in runs]
                _line(ax, [run.k or 0 for run in runs], values, index, title)
                tell_runs(ax, runs, [run.k or 0 for run in runs], values, quantity.replace("_", " "))
        left.set_ylabel("positions computed\nper content token")
        right.set_ylabel("content tokens per row")
        for ax in (left, right):
            ax.set_xlabel("lookahead branches k")
            ax.set_ylim(bottom=0)
        integers(left, right)
        legend(figure, left)
    return figure


def winners(study: Study) -> Plotted | None:
    """How often the anchor wins over k, and the share of each rank at the largest k."""
    series = [[run for run in runs if study.digest(run, runs).winners.sum() > 0] for runs in k_panels(study)]
    series, left_out = fitting([runs for runs in series if runs])
    if not series:
        return None
    with paper_style():
        figure, (left, right) = panels(2, left_out=left_out)
        for index, (runs, title) in enumerate(zip(series, series_titles(study, series))):
            digests = [study.digest(run, runs) for run in runs]
            shares = [_share(one.winners, 0) for one in digests]
            ks = [run.k or 0 for run in runs]
            _line(left, ks, shares, index, title)
            tell_runs(left, runs, ks, shares, "% won by the anchor:", 1)
            blind = [100 * one.blind for one in digests]
            left.plot(ks, blind, color=GREY, linestyle=LINES[index % 4], linewidth=0.9, label="a blind score")
            counts = digests[-1].winners
            ranks = [_share(counts, rank) for rank in range(len(counts))]
            _line(right, list(range(len(ranks))), ranks, index, f"{title}, k = {runs[-1].k}")
            for rank, share in enumerate(ranks):
                won = f"% won by rank {rank}: {fixed(share.value, 1, share.interval)}"
                tell(right, rank, share.value, words_of(runs[-1], runs, won))
        left.set(xlabel="lookahead branches k", ylabel="calls won by the anchor (%)", ylim=(0, 100))
        right.set(xlabel="rank of the winner (0 = anchor)", ylabel="calls won at the largest k (%)")
        right.set_ylim(bottom=0)
        left.legend(loc="upper right", handles=[line for line in left.lines if line.get_label() == "a blind score"][:1])
        integers(left, right)
        legend(figure, right)
    return figure


def score_fill(study: Study) -> Plotted | None:
    """Positions filled by the winner's own call against the winner's score."""
    series = [[run for run in few(runs) if study.digest(run, runs).score_fill] for runs in k_panels(study)]
    series, left_out = fitting([runs for runs in series if runs])
    if not series:
        return None
    look = looks(series)
    with paper_style():
        figure, axes = panels(len(series), height=3.1, left_out=left_out)
        for ax, runs, title in zip(axes, series, panel_titles(study, series)):
            for run in runs:
                found = study.digest(run, runs).score_fill
                if found is None:
                    continue  # too few calls on the samples that all of these runs decoded
                rho = typeset(fixed(found.within.value, 2, found.within.interval))
                ax.fill_between(found.score, found.low, found.high, color=look[run.k]["color"], alpha=0.18, linewidth=0)
                ax.plot(found.score, found.filled, **look[run.k], label=f"k = {run.k}: ρ = {rho}")
                for score, filled, interval in zip(found.score, found.filled, zip(found.low, found.high)):
                    number = f"score {fixed(score)}: {fixed(filled, 2, interval)} positions"
                    tell(ax, score, filled, words_of(run, runs, number, f"rank correlation {rho}"))
            measure = str(runs[0].settings.get("confidence"))
            ax.set_title(title)
            ax.set_xlabel(f"score of the winning branch ({MEASURES.get(measure, measure)})")
            ax.set_ylabel("positions filled by its call")
            ax.set_ylim(bottom=0)
            ax.legend(loc="best", fontsize=6.5)
    return figure


def rewarded(study: Study) -> Plotted | None:
    """Removal bonus and paired gain of the branches, by the probability of their token."""
    found = [(runs, run, rewards(run)) for runs in k_panels(study) if (run := _most_branches(runs))]
    shown, left_out = fitting([(runs, run, told) for runs, run, told in found if told is not None])
    if not shown:
        return None
    with paper_style():
        figure, axes = panels(len(shown), height=3.1, left_out=left_out)
        for ax, (runs, run, told), title in zip(axes, shown, panel_titles(study, [runs for runs, _, _ in shown])):
            won = told.won & np.isfinite(told.fresh)
            for index, (name, label) in enumerate(PARTS.items()):
                x, means, low, high = told.by_probability(name, run.seed)
                ax.fill_between(x, low, high, color=COLOURS[index], alpha=0.18, linewidth=0)
                ax.plot(x, means, color=COLOURS[index], marker=MARKERS[index], linestyle=LINES[index], label=label)
                for at, mean, interval in zip(x, means, zip(low, high)):
                    number = f"{label} {fixed(mean, 4, interval)} at probability {fixed(at)}"
                    tell(ax, at, mean, words_of(run, runs, number))
            for index, (name, label) in enumerate(PARTS.items() if won.any() else ()):
                at, mean = told.fresh[won].mean(), getattr(told, name)[won].mean()
                ax.plot(at, mean, marker="*", markersize=9, color=COLOURS[index], linestyle="none",
                        label="winners" if index == 0 else None)  # fmt: skip
                number = f"{label} of the winners {fixed(mean, 4)} at probability {fixed(at)}, mean of {won.sum()}"
                tell(ax, at, mean, words_of(run, runs, number))
            ax.axhline(0, color=GREY, linewidth=0.7)
            ax.set_title(f"{title}, k = {run.k}")
            ax.set_xlabel("probability of the branch's token\nin the anchor's row of the same call")
            ax.set_ylabel(f"part of the score ({_measure(run)})")
            ax.legend(loc="best", fontsize=6.5)
    return figure


def _most_branches(runs: list[Run]) -> Run | None:
    """The run of a series with most branches, of those that go by the mean over the masks."""
    by_mean = [run for run in runs if run.is_lopa and run.settings.get("score.kind", "mean") == "mean"]
    return max(by_mean, key=lambda run: run.k or 0, default=None)


def _measure(run: Run) -> str:
    name = str(run.settings.get("confidence"))
    return MEASURES.get(name, name)


def _share(counts: np.ndarray, rank: int) -> Estimate:
    """Percent of the calls that had a choice; Wilson's interval, which takes calls for independent."""
    count, total = int(counts[rank]), int(counts.sum())
    return Estimate(count / total, wilson(count, total)).scaled(100)


def _line(ax: Axes, x: list[int], values: list[Estimate], index: int, label: str) -> None:
    ax.errorbar(x, points(values), errors(values), color=COLOURS[index % len(COLOURS)], linestyle=LINES[index % 4],
                marker=MARKERS[index % len(MARKERS)], elinewidth=0.7, capsize=1.5, label=label)  # fmt: skip


PLOTS = [
    Plot(
        "lookahead_cost",
        "The price of lookahead",
        "Left: positions that the model computed (rows × window, the prompt at prefill included) for a content token. "
        "Right: content tokens for one row. 95 % bootstrap intervals over problems.",
        "a sweep of decoder.k",
        lookahead_cost,
    ),
    Plot(
        "winners",
        "Which branch wins",
        "Shares of the calls that had a choice. Grey: the anchor's share if the branch score were blind, 1 / "
        "branches (few masks make few branches). Intervals are Wilson's over calls; they take the calls of one "
        "sample for independent and are too narrow.",
        "a sweep of decoder.k",
        winners,
    ),
    Plot(
        "score_fill",
        "Does the branch score predict parallelism?",
        "Positions that the winner's own call filled, against the winner's score: means of eight bins of equally many "
        "calls with 95 % bootstrap bands over samples. ρ is Spearman's rank correlation of the calls of one sample, "
        "pooled over samples, with its 95 % bootstrap interval.",
        "a sweep of decoder.k",
        score_fill,
    ),
    Plot(
        "rewarded",
        "What the winning branch was rewarded for",
        "The two parts of a branch's score over the anchor's: the removal bonus, which it has for the mask that it "
        "took out of the mean, and the paired gain, the mean rise of confidence over the masks that both hold. Means "
        "of eight bins of equally many branches by the probability that the anchor's row of the same call gives the "
        "branch's token, where it still is the best, with 95 % bootstrap bands over samples; stars: means over the "
        "branches that won. The run of each series with most branches.",
        "a sweep of decoder.k",
        rewarded,
    ),
]
