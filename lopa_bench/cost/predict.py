"""From what is asked to predictions: for every k and every number of devices a step, and tokens a second."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lopa_bench.cost.arguments import MODEL, K, Question
from lopa_bench.cost.recorded import Recorded, recorded
from lopa_bench.cost.sizes import Sized, sized
from lopa_bench.cost.step import Setup, Step, Workload, step
from lopa_bench.errors import ConfigError
from lopa_bench.records.runs import Run

# Where no run and no setting says otherwise.
BLOCKS = 3  # of the window: the pipeline's active blocks
CACHED = 900  # a prompt of four worked examples, and half of an answer of 512
COMMITTED = 8.0  # positions a step that enter the cache


@dataclass(frozen=True)
class Prediction:
    """One line of the answer. `tpf` and `tps` are None where nothing says the tokens a forward pass."""

    k: int
    ranks: int
    step: Step
    tpf: float | None
    pays_from: float  # times the TPF of k = 0 on one device, at which both are equally fast

    @property
    def tps(self) -> float | None:
        return None if self.tpf is None else self.tpf / self.step.seconds


@dataclass(frozen=True)
class Answer:
    model: Sized
    work: Workload  # of the last k
    setup: Setup
    predictions: tuple[Prediction, ...]
    notes: tuple[str, ...]


def assumed(model: Sized, k: int, tpf: float | None = None) -> Workload:
    """The step of the article's setting, where nothing was recorded."""
    window = BLOCKS * model.block_size
    return Workload(k + 1, window, window / 2, CACHED, tpf or COMMITTED)


def answer(asked: Question) -> Answer:
    """Raises BackendError, ConfigError, CheckpointError or RunError."""
    runs = [recorded(name, asked.preset) for name in asked.runs]
    model = sized(asked.model or _model_of(runs))
    setup = Setup(
        device=asked.device,
        tensor_ranks=asked.tensor,
        dtype=asked.dtype,
        protocol=asked.protocol or ("two_phase" if model.attention == "full" else "single_phase"),
        gather=asked.gather,
        overhead_s=asked.overhead_ms / 1e3,
    )
    cases = list(_cases(asked, model, runs))
    predictions: list[Prediction] = []
    for work, tpf in cases:
        alone = step(model.config, replace(work, rows=1), setup).seconds
        for ranks in asked.ranks:
            taken = step(model.config, work, replace(setup, branch_ranks=ranks))
            predictions.append(Prediction(work.rows - 1, ranks, taken, tpf, taken.seconds / alone))
    return Answer(model, cases[-1][0], setup, tuple(predictions), tuple(_notes(asked, model, runs, predictions)))


def _model_of(runs: list[Recorded]) -> str:
    """By its folder, where that is here, else by its name."""
    models = dict.fromkeys(_folder_of(one.run) or one.run.model for one in runs)
    if len(models) > 1:
        raise ConfigError(
            f"the runs are of several models, {', '.join(models)}; allowed: runs of one, or model=, whose sizes all get"
        )
    return next(iter(models), MODEL)


def _folder_of(run: Run) -> str | None:
    path = os.path.expanduser(run.row["model_path"] or "")
    return path if os.path.isdir(path) else None


def _cases(asked: Question, model: Sized, runs: list[Recorded]) -> Iterator[tuple[Workload, float | None]]:
    """A step and a TPF for every k."""
    if runs:
        ks = [one.k for one in runs]
        if asked.ks is not None and list(asked.ks) != ks:
            raise ConfigError(
                f"decoder.k={','.join(map(str, asked.ks))} and the runs have k={','.join(map(str, ks))}: the TPF of "
                "another k is not known; allowed: the runs' k, or no decoder.k"
            )
        for one in runs:
            yield _told(asked, one.work), one.tpf
        return
    for index, k in enumerate(asked.ks or (K,)):
        tpf = asked.tpf[index] if asked.tpf else None
        work = _told(asked, assumed(model, k, tpf))
        if tpf is not None and tpf > work.masked:
            raise ConfigError(
                f"tpf={tpf:g} is more than the {work.masked:g} masked positions of a step; allowed: at most that many, "
                "or window= and masked= of a larger step"
            )
        yield work, tpf


def _told(asked: Question, work: Workload) -> Workload:
    """The step with what was told in place of what was recorded or assumed."""
    window = asked.window or work.window
    masked = asked.masked or min(window, work.masked if asked.window is None else work.masked * window / work.window)
    if masked > window:
        raise ConfigError(
            f"masked={masked:g} is more than the window's {window:g} positions; allowed: at most {window:g}"
        )
    return replace(work, window=window, masked=masked, cached=work.cached if asked.cached is None else asked.cached)


def _notes(asked: Question, model: Sized, runs: list[Recorded], found: Sequence[Prediction]) -> Iterator[str]:
    for one in runs:
        if one.run.toy and asked.model not in (None, one.run.model, one.run.row["model_path"]):
            yield f"the TPF of {one.run.id} is that of a toy, which says nothing of {model.name}"
    if not runs and not asked.tpf:
        yield "no tokens a second without tokens a forward pass: tpf=, or run= with a recorded run"
    if any(one.ranks > one.k + 1 for one in found):
        yield "where there are more ranks than rows (k + 1), the ranks beyond them have nothing to do"
    if not asked.overhead_ms:
        yield "the time of the software itself is not in it (overhead_ms=0): no real step is faster, most are slower"
