"""Runs that follow each other in one process load their model once, and each is what it would be alone."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lopa_bench.backends.local import LocalBackend
from lopa_bench.engines import masked
from lopa_bench.errors import CheckpointError
from lopa_bench.lm_eval.settings import composed
from lopa_bench.models import loaded
from lopa_bench.models.kept import KeptNetwork
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import Run
from lopa_bench.run import decoding
from lopa_bench.run.start import run_here


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose weights were read."""
    found: list[Path] = []
    read = loaded.load_model

    def noted(folder: Path, *rest: Any, **named: Any) -> Any:
        found.append(folder)
        return read(folder, *rest, **named)

    monkeypatch.setattr(loaded, "load_model", noted)
    return found


def run(settings: list[str], out: Path, kept: KeptNetwork | None, *words: str) -> Run:
    words = ("task.limit=2", "run.progress=false", f"run.out={out}", *words)
    return run_here(composed([*settings, *words]), is_alone=True, kept=kept)


def ids(run: Run) -> list[Any]:
    rows = read_samples(run.folder, ("problem_index", "token_ids")).to_pylist()
    return [row["token_ids"] for row in sorted(rows, key=lambda row: row["problem_index"])]


def test_the_second_run_loads_nothing_and_is_as_it_would_be_alone(
    settings: list[str], tmp_path: Path, loads: list[Path]
) -> None:
    kept = KeptNetwork()
    drawn = ("decoder.temperature=1", "decoder.k=0", "run.seed=3")
    run(settings, tmp_path / "together", kept, "decoder.gen_length=8")
    torch.set_num_threads(2)
    second = run(settings, tmp_path / "together", kept, *drawn)
    assert (len(loads), torch.get_num_threads()) == (1, 1)
    alone = run(settings, tmp_path / "alone", None, *drawn)
    assert len(loads) == 2
    assert ids(second) == ids(alone)
    assert second.row["key"] == alone.row["key"]


def test_keys_and_values_go_with_their_run(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lives on would count in the peak memory of the next, whoever holds the backend still."""
    made: list[Any] = []
    backends: list[LocalBackend] = []
    new = LocalBackend.new_cache

    def noted(self: LocalBackend) -> Any:
        cache = new(self)
        made.append(weakref.ref(cache))
        backends.append(self)
        return cache

    monkeypatch.setattr(LocalBackend, "new_cache", noted)
    run(settings, tmp_path, KeptNetwork(), "run.batch=2")
    assert [ref() for ref in made] == [None] * 2


def test_a_network_that_is_there_is_not_counted_twice(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[int] = []
    monkeypatch.setattr(masked, "free_memory", lambda device: 10**9)
    monkeypatch.setattr(masked, "check_memory", lambda demand, bytes, device: free.append(bytes))
    kept = KeptNetwork()
    run(settings, tmp_path, kept)
    weights = 4 * sum(parameter.numel() for parameter in kept.get(kept._key or "", lambda: None).parameters())
    run(settings, tmp_path, kept, "decoder.k=1")
    assert free == [10**9, 10**9 + weights]


def test_another_network_is_let_go_of_before_the_room_for_the_next_is_judged(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    kept = KeptNetwork()
    run(settings, tmp_path, kept)
    weights = weakref.ref(next(kept.get(kept._key or "", lambda: None).parameters()))
    monkeypatch.setattr(masked, "check_memory", lambda *_: there.append(weights() is not None))
    run(settings, tmp_path, kept, "model.dtype=bfloat16")
    assert there == [False]


def test_other_weights_are_loaded_and_weights_that_changed_meanwhile_are_not_kept(
    settings: list[str], tiny_model: Path, tmp_path: Path, loads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    words = [*settings, f"model.path={folder}"]
    kept = KeptNetwork()
    before = run(words, tmp_path, kept)
    weights = load_file(folder / "model.safetensors")
    save_file({name: -weight for name, weight in weights.items()}, folder / "model.safetensors")
    after = run(words, tmp_path, kept)
    assert len(loads) == 2
    assert ids(before) != ids(after)

    def changed(*_: Any) -> None:
        raise CheckpointError("changed while they were loaded")

    with monkeypatch.context() as patch:
        patch.setattr(decoding, "check_unchanged", changed)
        with pytest.raises(CheckpointError):
            run(words, tmp_path, kept, "decoder.k=1")
    run(words, tmp_path, kept, "decoder.k=1")
    assert len(loads) == 3
