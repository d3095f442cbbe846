"""Whole runs in this process, whose decodes are written down here: no model, no torch, a tenth of a second each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from decoders.config import DecoderConfig
from decoders.types import Generation, Step
from lopa_bench.backends.outcome import Outcome
from lopa_bench.engines import opening
from lopa_bench.engines.base import Engine, Sample
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit
from lopa_bench.records.runs import Run
from lopa_bench.run.runner import run
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.validate import validate
from tasks.types import TaskConfig

STEPS = 3


def step(number: int = 0, **changes: Any) -> Step:
    facts: dict[str, Any] = {
        "window_start": 10, "window_width": 4, "branches": 1, "winner": 0, "scores": (0.5,), "lookahead_positions": (),
        "lookahead_tokens": (), "positions": (10 + number,), "tokens": (7,), "probs": (0.75,),
        "masks_left": STEPS - number, "cached": 0, "tokens_processed": 4, "kept": None,
    }  # fmt: skip
    return Step(**(facts | changes))


def generation(index: int) -> Generation:
    return Generation((100 + index, 7, 7, 1), "eos", 32, tuple(step(number) for number in range(STEPS)))


class Scripted(Engine):
    """Gives `generation(index)` for each unit and calls `before` with each unit first. `decoded` are those it gave."""

    device, dtype = "server", "float32"
    end_ids = (1,)

    def __init__(self, plan: Plan, before: Callable[[Unit], object]) -> None:
        super().__init__(plan, {})
        self.before = before
        self.decoded: list[int] = []

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def warm_up(self, unit: Unit) -> None:
        pass

    def stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        for unit in units:
            self.before(unit)
            self.decoded.append(unit.index)
            yield self._sample(unit, Outcome(generation(unit.index), "eos", 0, [0.5, 0.25, 0.25], 0.5, 1.0))


class Runs:
    """Starts scripted runs below `out`. `engines`: those that were opened, one a run that had something to decode."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out = out
        self.before: Callable[[Unit], object] = lambda unit: None
        self.engines: list[Scripted] = []
        monkeypatch.setattr(opening, "open_engine", self._open)

    def _open(self, plan: Plan, folder: Path) -> Scripted:
        self.engines.append(Scripted(plan, self.before))
        return self.engines[-1]

    def run(self, limit: int = 20, **settings: Any) -> Run:
        config = Config(
            decoder=DecoderConfig(name="d2f"),
            task=TaskConfig(name="gsm8k", source="embedded", limit=limit),
            model=ModelSettings(name="mini", path="embedded:mini", max_length=1024, toy=True),
            backend=LocalSettings(device="cpu"),
            run=RunSettings(out=str(self.out), progress=False),
        )
        for name, value in settings.items():
            setattr(config, name, value)
        validate(config)
        return run(config, {})

    @property
    def decoded(self) -> list[int]:
        """Problems that the last engine decoded."""
        return self.engines[-1].decoded

    @property
    def folder(self) -> Path:
        """The only run there is."""
        (folder,) = (path for path in (self.out / "runs").iterdir() if path.is_dir())
        return folder

    def parts(self, table: str) -> list[Path]:
        return sorted((self.folder / table).glob("part-*.parquet"))


def stop_at(index: int, error: BaseException) -> Callable[[Unit], None]:
    """Raises `error` where this problem is to be decoded."""

    def before(unit: Unit) -> None:
        if unit.index == index:
            raise error

    return before
