"""The replay: what it says of a sample, and that its page is whole in itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from analysis.__main__ import main
from analysis.replay import tokens as token_module
from analysis.replay.film import FRAME_MS, HELD_SECONDS, SECONDS, Lane, film
from analysis.replay.page import page
from analysis.replay.select import sides, telling_sample
from analysis.replay.trace import trace
from analysis.study import Study
from lopa_bench.errors import RunError
from lopa_bench.records.finding import find_run
from lopa_bench.records.runs import Run
from tests.analysis_runs import write_run
from tests.test_records import sample, step

# The prompt has 5 tokens; generated ids 10, 11, 12, 13 at positions 5 to 8, then two behind the end token.
SAMPLE = sample(0, prompt_tokens=5, token_ids=[10, 11, 12, 13], forwards=2, content_tokens=3)
STEPS = [
    step(0, branches=1, winner=0, scores=[-0.5], lookahead_positions=[], lookahead_tokens=[],
         positions=[6], tokens=[11], probs=[0.95]),
    step(1, branches=3, winner=2, scores=[-0.6, -0.7, -0.2], lookahead_positions=[5, 7], lookahead_tokens=[10, 12],
         positions=[5, 10], tokens=[10, 99], probs=[0.9, 0.8]),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(token_module, "EMBEDDED", tmp_path)  # no tokenizer: ids are shown
    write_run(tmp_path, "a", {"name": "d2f"}, [(SAMPLE, [STEPS[0]])])
    write_run(tmp_path, "b", {"name": "lopa", "k": 2}, [(SAMPLE, STEPS)])
    return tmp_path


def test_a_step_is_the_winners_extra_token_and_what_its_prediction_filled(root: Path) -> None:
    found = trace(find_run("b", root), "p0")
    first, second, last = found["steps"]
    assert (first["fill"], first["extra"]) == ([[1, 0.95]], None)
    assert (second["fill"], second["extra"]) == ([[0, 0.9], [5, 0.8]], 2)
    assert [(one["position"], one["text"], one["score"], one["won"]) for one in second["branches"]] == [
        (None, None, -0.6, False), (0, "10 ", -0.7, False), (2, "12 ", -0.2, True),
    ]  # fmt: skip
    # Position 3 is in the text and in no step: a complete branch brought it, without a call.
    assert (last["fill"], last["call"]) == ([[3, None]], False)
    assert [token["id"] for token in found["tokens"]] == [10, 11, 12, 13, None, 99]
    assert [token["behind"] for token in found["tokens"]] == [False] * 4 + [True] * 2
    assert found["verdict"] == "right: answered 4, gold 4"


def test_an_edit_shows_what_stood_there_and_a_token_taken_back_shows_none(root: Path) -> None:
    """Position 5 is written over; 6 is taken back and filled again."""
    edits = [
        step(0, positions=[5, 6], tokens=[20, 21], probs=[0.9, 0.8], edit_positions=[], edit_old=[], edit_new=[]),
        step(1, positions=[7], tokens=[12], probs=[0.7], edit_positions=[5, 6], edit_old=[20, 21], edit_new=[10, 96]),
        step(2, positions=[6, 8], tokens=[11, 13], probs=[0.6, 0.9], edit_positions=[], edit_old=[], edit_new=[]),
    ]
    alone = {"branches": 1, "winner": 0, "scores": [], "lookahead_positions": [], "lookahead_tokens": []}
    row = sample(0, prompt_tokens=5, token_ids=[10, 11, 12, 13], forwards=3, edits=2)
    write_run(root, "e", {"name": "wino"}, [(row, [one | alone for one in edits])])
    found = trace(find_run("e", root), "p0")
    assert [one["edits"] for one in found["steps"]] == [[], [[0, "20 ", "10 "], [1, "21 ", None]], []]
    assert [token["id"] for token in found["tokens"]] == [10, 11, 12, 13]
    first, second, third = (one["done"] for one in found["steps"])
    assert Lane(found, "").filled_at == {0: second, 1: third, 2: second, 3: third}  # in a race its last form counts
    assert first < second < third
    assert all("edits" not in one for one in trace(find_run("b", root), "p0")["steps"])


def test_a_draft_is_what_was_confirmed_of_it_and_what_the_last_row_filled(root: Path) -> None:
    """Two rows, of two assumed tokens and one; the call confirmed the first."""
    drafted = step(
        1, branches=3, winner=1, scores=[], winner_score=None, anchor_score=None, lookahead_positions=[5, 7, 8],
        lookahead_tokens=[10, 12, 13], lookahead_counts=[2, 1], taken_positions=[5, 7], taken_tokens=[10, 12],
        taken_probs=[0.9, 0.7], positions=[8], tokens=[13], probs=[0.8], base_fills=[2, 1],
    )  # fmt: skip
    write_run(root, "c", {"name": "lopa", "k": 2, "select": "exact"}, [(SAMPLE, [STEPS[0], drafted])])
    found = trace(find_run("c", root), "p0")
    _, call = found["steps"]
    assert (call["fill"], call["extra"]) == ([[0, 0.9], [2, 0.7], [3, 0.8]], None)
    assert [(one["position"], one["text"], one["won"]) for one in call["branches"]] == [
        (None, None, False), (0, "10 12 ", True), (3, "13 ", False),
    ]  # fmt: skip
    assert [token["id"] for token in found["tokens"]] == [10, 11, 12, 13]
    assert found["title"].startswith("exact lookahead on")


def test_tokens_are_text_where_a_tokenizer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenizers

    words = {"<unk>": 0, "five": 10, "apples": 11, "each": 12, ".": 13}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    (tmp_path / "mini").mkdir()
    tokenizer.save(str(tmp_path / "mini" / "tokenizer.json"))
    monkeypatch.setattr(token_module, "EMBEDDED", tmp_path)
    write_run(tmp_path, "b", {"name": "lopa", "k": 2}, [(SAMPLE, STEPS)])
    found = trace(find_run("b", tmp_path), "p0")
    assert [token["text"] for token in found["tokens"]][:4] == ["five", "apples", "each", "."]
    assert "No tokenizer" not in page([found])


def test_the_page_holds_its_data_and_asks_nobody_for_anything(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "a", "b", "--sample", "0", "--outputs", str(root)]) == 0
    path = Path(capsys.readouterr().out.strip())
    text = path.read_text(encoding="utf-8")
    assert path == root / "report" / "replay-p0.html"
    assert "No tokenizer of this model was found" in text
    assert not re.search(r"""(src|href)=["'](?!data:|#)|url\(|@import|fetch\(|import\(""", text)
    data: Any = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
    assert [run["title"] for run in data["runs"]] == ["D2F", "LoPA on D2F, k = 2"]


def test_text_cannot_break_out_of_the_page(root: Path) -> None:
    evil = '</script><img src=x onerror="alert(1)"><!--'
    write_run(root, "e", {"name": "d2f"}, [(SAMPLE | {"prompt": evil, "extracted": evil}, STEPS)])
    text = page([trace(find_run("e", root), "p0")])
    assert "<img" not in text.replace('"answered ' + evil, "").split('type="application/json">')[0]
    assert text.count("</script>") == 2
    assert "<!--" not in text


@pytest.mark.parametrize(
    ("sample_id", "changes", "steps", "said"),
    [
        ("p7", {}, STEPS, "has no sample 'p7'; its samples: p0"),
        ("p0", {"finish_reason": "non_finite", "correct": None}, STEPS, "was not decoded: non_finite"),
        ("p0", {}, [], "no replay can be made"),
        ("p0", {}, [STEPS[1] | {"winner": 3}], "sample p0: step 1 was won by a branch that it does not have"),
    ],
)
def test_what_cannot_be_replayed_says_why(
    root: Path, sample_id: str, changes: dict[str, Any], steps: list[dict[str, Any]], said: str
) -> None:
    write_run(root, "c", {"name": "d2f"}, [(SAMPLE | changes, steps)])
    with pytest.raises(RunError, match=re.escape(said)):
        trace(find_run("c", root), sample_id)


@pytest.mark.parametrize("command", ["replay", "race"])
def test_a_damaged_run_is_called_damaged(command: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (root / "runs" / "b" / "steps").glob("part-*")
    path.write_bytes(path.read_bytes()[:100])
    assert main([command, "a", "b", "--outputs", str(root)]) == 2
    assert f"{root / 'runs' / 'b'} is damaged: steps/part-" in capsys.readouterr().err


def test_the_sample_shown_by_default_is_the_median_of_those_both_runs_solved(tmp_path: Path) -> None:
    lengths, verdicts = [9, 3, 7, 5, 1], {"a": "+++++", "b": "-++++"}
    for name, marks in verdicts.items():
        rows = [
            (sample(i, content_tokens=n, correct=m == "+"), [step(0)]) for i, (n, m) in enumerate(zip(lengths, marks))
        ]
        write_run(tmp_path, name, {"name": "d2f"}, rows)
    assert telling_sample([find_run(name, tmp_path) for name in "ab"]) == "p3"  # of 1, 3, 5, 7 the upper middle


def test_a_report_replays_greedy_the_base_lookahead_and_what_is_marked_on_the_same_problems(tmp_path: Path) -> None:
    def decoded(n: int) -> list[Any]:
        return [(sample(i), STEPS) for i in range(n)]

    def shown(*marked: str) -> list[str]:
        study = Study.of(tmp_path)
        return [run.id for run in sides(study, [run for run in study.runs if run.id in marked])]

    write_run(tmp_path, "k8", {"name": "lopa", "k": 8}, decoded(2))
    assert shown() == []
    write_run(tmp_path, "k0", {"name": "lopa", "k": 0}, decoded(2))
    assert shown() == ["k0", "k8"]
    write_run(tmp_path, "greedy", {"name": "greedy"}, decoded(2))
    write_run(tmp_path, "exact", {"name": "lopa", "k": 4, "select": "exact"}, decoded(2))
    write_run(tmp_path, "a few", {"name": "fast_dllm"}, decoded(1))
    write_run(tmp_path, "elsewhere", {"name": "fast_dllm"}, decoded(2), model="other")
    write_run(tmp_path, "causal", None, decoded(2), decoder="ar", base=None)
    assert shown("k8", "a few", "exact", "elsewhere", "causal") == ["greedy", "k0", "k8", "exact"]


def timed(root: Path, name: str, seconds: float, **changes: Any) -> Run:
    """A run of one sample whose every call takes this long."""
    write_run(root, name, {"name": "d2f"} | changes, [(SAMPLE, [one | {"seconds": seconds} for one in STEPS])])
    return find_run(name, root)


def test_a_replay_knows_when_each_call_was_over_or_says_that_nobody_took_the_time(root: Path) -> None:
    found = trace(timed(root, "clocked", 0.5), "p0")
    assert [one["done"] for one in found["steps"]] == [0.5, 1.0, 1.0]  # the last needed no call
    write_run(root, "batched", {"name": "d2f"}, [(SAMPLE, [one | {"seconds": None} for one in STEPS])])
    assert {one["done"] for one in trace(find_run("batched", root), "p0")["steps"]} == {None}


def test_a_race_is_over_when_the_slowest_is_and_slowed_down_alike_for_all(root: Path) -> None:
    runs = [timed(root, "slow", 0.5), timed(root, "quick", 0.1, tau_conf=0.5)]
    path = root / "race.gif"
    assert main(["race", "slow", "quick", "--outputs", str(root), "--gif", str(path)]) == 0
    with Image.open(path) as picture:
        assert sum(_durations(picture)) == pytest.approx(1000 * (SECONDS + HELD_SECONDS), abs=2 * FRAME_MS)
    slow, quick = (Lane(trace(run, "p0"), "") for run in runs)
    assert (slow.finish, quick.finish) == (1.0, 0.2)
    assert slow.filled_at == {1: 0.5, 0: 1.0, 5: 1.0, 2: 1.0, 3: 1.0}
    assert film([trace(run, "p0") for run in runs], ["", ""], "", path) == SECONDS / 1.0  # for both: the slowest's


def _durations(picture: Any) -> list[int]:
    found = []
    for number in range(picture.n_frames):
        picture.seek(number)
        found.append(picture.info["duration"])
    return found


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        (["batched"], "x.gif", "no time for each call"),
        (["slow"] * 7, "x.gif", "up to 6 runs, not 7"),
        (["slow"], "x.avi", "written as .gif or .mp4"),
        (["slow", "nobody"], "x.gif", "'nobody' names no single run"),
    ],
)
def test_what_cannot_be_raced_is_said(
    names: list[str], path: str, message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed(root, "slow", 0.5)
    write_run(root, "batched", {"name": "d2f"}, [(SAMPLE, [one | {"seconds": None} for one in STEPS])])
    assert main(["race", *names, "--outputs", str(root), "--sample", "p0", "--gif", str(root / path)]) == 2
    assert message in capsys.readouterr().err
    assert not (root / path).exists()
