"""Lookahead beside its base, from the rows: what is equal is counted, and what differs is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.against_base import main
from tests.analysis_runs import write_run
from tests.test_records import sample, step


def base(i: int, second: int = 11) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Three steps of one position each."""
    row = sample(i, token_ids=[10, second, 12], forwards=3, rows=3, content_tokens=3, correct=second == 11)
    tokens = [10, second, 12]
    return row, [step(n, branches=1, winner=0, positions=[5 + n], tokens=[tokens[n]], probs=[0.9]) for n in range(3)]


def drafted(i: int, second: int = 11) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same in one forward, two of the steps from a draft; problem 0 was flipped if `second` is another token."""
    row = sample(i, token_ids=[10, second, 12], forwards=1, rows=3, content_tokens=3, correct=second == 11)
    taken = {"taken_positions": [5, 6], "taken_tokens": [10, second], "taken_probs": [0.9, 0.9]}
    return row, [step(0, winner=2, positions=[7], tokens=[12], probs=[0.9], base_fills=[1, 1, 1], **taken)]


def test_equal_and_flipped_samples_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, "a", {"name": "lopa", "k": 0}, [base(i) for i in range(4)])
    flipped = [drafted(0, second=99), *(drafted(i) for i in range(1, 4))]
    write_run(tmp_path, "b", {"name": "lopa", "k": 2, "select": "exact"}, flipped)
    assert main([str(tmp_path), "--chosen-on", "1"]) == 0
    *_, first, rest = capsys.readouterr().out.splitlines()
    assert first.endswith("TPF 3.00, forwards 1, rows 3, lost 1 won 0 (p 1), ids equal 0, steps equal 0")
    assert "problems 1-1: n 1, accuracy 0.0 %" in first
    assert rest.endswith("TPF 3.00, forwards 3, rows 9, lost 0 won 0 (p 1), ids equal 3, steps equal 3")
    assert "from 2 on: n 3, accuracy 100.0 %" in rest


@pytest.mark.parametrize("arguments", [["nowhere"], ["--chosen-on", "0"]])
def test_what_cannot_be_compared_is_said(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), *arguments] if len(arguments) > 1 else [str(tmp_path / arguments[0])])
    assert "no finished run" in (said := capsys.readouterr().err) or "not allowed" in said or "nowhere" in said
