"""How ranks meet, find that they are alike, and name the one that ends a decode. Here each is a thread."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lopa_bench.backends.ranks import joining
from lopa_bench.backends.ranks.facts import differences
from lopa_bench.backends.ranks.joining import LOST, Dismissed, LostContact, RankError, Ranks
from lopa_bench.backends.ranks.place import Place

FACTS = {"decoder": {"k": 7}, "model": {"weights_sha256": "a" * 64}, "product": {"torch": "2.13.0"}}


class Process:
    """A process that was started, without one."""

    def __init__(self, pid: int, end: str | None = None) -> None:
        self.pid, self.end = pid, end

    @property
    def is_alive(self) -> bool:
        return self.end is None

    def ended(self) -> str:
        assert self.end is not None
        return self.end


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "BEAT_S", 0.05)
    monkeypatch.setattr(joining, "NAMING_S", 0.3)


@pytest.fixture
def three() -> Iterator[list[Ranks]]:
    first = Ranks(Place(0, 3), "127.0.0.1", 0, 20.0, owner=True)
    ranks = [first, *(Ranks(Place(rank, 3), "127.0.0.1", first.port, 20.0) for rank in (1, 2))]
    yield ranks
    for one in reversed(ranks):
        one.close()


def at_once(*actions: Callable[[], object]) -> list[Any]:
    """What each of them gives or raises, one thread each."""
    found: list[Any] = [None] * len(actions)

    def work(number: int) -> None:
        try:
            found[number] = actions[number]()
        except RankError as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def joined(ranks: list[Ranks]) -> None:
    assert at_once(*(lambda one=one: one.join(FACTS) for one in ranks)) == [None] * len(ranks)


def test_ranks_meet_and_are_told_what_to_decode(three: list[Ranks]) -> None:
    joined(three)
    leader, *others = three
    for work in (["unit", 4, 0], ["end"], None):
        leader.work(work)
        assert [one.next_work() for one in others] == [work, work]
    at_once(*(one.turn for one in three))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"decoder": {"k": 3}}, r"settings differ \(decoder\.k=3, there 7\)"),
        ({"model": {"weights_sha256": "b" * 64}}, r"the weights differ \(model\.weights_sha256=b+…, there aaa"),
        ({"product": {"torch": "2.12.0"}, "decoder": {"k": 3}}, r"versions differ \(product\.torch=2\.12\.0, there 2"),
        ({"decoder": {}}, r"settings differ \(decoder"),
    ],
)  # fmt: skip
def test_a_rank_that_is_unlike_the_first_is_named_before_weights_are_read(
    three: list[Ranks], other: dict[str, Any], said: str
) -> None:
    facts = [FACTS, FACTS, FACTS | other]
    found = at_once(*(lambda one=one, mine=mine: one.join(mine) for one, mine in zip(three, facts)))
    assert re.match(rf"rank 2 of 3 \(process \d+ on .*\) is unlike rank 0: {said}", str(found[0]))
    assert isinstance(found[2], LostContact)


def test_what_differs_is_told_kind_by_kind_and_not_without_end() -> None:
    assert differences(FACTS, FACTS) == ""
    many = differences({}, {f"setting{i}": i for i in range(9)})
    assert many.startswith("settings differ (setting0=0, there null; ")
    assert many.endswith(" and 6 more)")
    assert differences({"product": {"code_sha256": "1"}}, {"product": {"code_sha256": "2"}}).startswith(
        "the code differs"
    )


def test_a_rank_that_does_not_come_is_named() -> None:
    alone = Ranks(Place(0, 2), "127.0.0.1", 0, 0.2, owner=True)
    with pytest.raises(RankError, match=r"rank 1 of 2 did not join in 0\.2 s \(backend\.rank_timeout_s\)"):
        alone.join(FACTS)
    with pytest.raises(RankError, match=r"rank 1 of 2 cannot reach rank 0 at 127\.0\.0\.1:1: "):
        Ranks(Place(1, 2), "127.0.0.1", 1, 0.2)


def test_a_process_that_ends_before_it_joins_is_named_at_once() -> None:
    alone = Ranks(Place(0, 2), "127.0.0.1", 0, 60.0, owner=True)
    alone.started(1, Process(77, "was killed by SIGKILL"))
    with pytest.raises(RankError, match=r"rank 1 of 2 \(process 77\) was killed by SIGKILL; what was decoded is kept"):
        alone.join(FACTS)


def test_a_rank_says_what_made_it_fail(three: list[Ranks]) -> None:
    joined(three)
    three[2].fail(MemoryError("no room for 3 GB"))
    with pytest.raises(RankError, match=r"rank 2 of 3 \(process \d+ on .*\) failed: MemoryError: no room for 3 GB"):
        three[0].turn()


def test_a_broken_collective_is_explained_by_who_is_gone(three: list[Ranks]) -> None:
    """Rank 1 lost the others only because of rank 2: it is not to blame."""
    joined(three)
    three[0].started(1, Process(1, "ended with status 75"))
    three[0].started(2, Process(2, "was killed by SIGKILL"))
    lost = three[1].explain(RuntimeError("reset"))
    told = three[0].explain(RuntimeError("reset"))
    assert "rank 2 of 3" in str(told)
    assert "was killed by SIGKILL" in str(told)
    assert "the ranks lost each other: reset" in str(lost)  # all that a rank knows which started none


def test_a_rank_without_a_sign_of_life_is_told_from_one_that_lives_and_stands_still(three: list[Ranks]) -> None:
    joined(three)
    time.sleep(0.2)
    three[0].entered = three[2].entered = 5, 0  # rank 1 has entered none
    time.sleep(0.2)
    still = str(three[0].explain(RuntimeError("timed out")))
    assert "rank 1 of 3" in still
    assert "stands still: it lives, but no answer came in 20 s" in still
    three[2]._is_over.set()
    time.sleep(0.2)
    silent = str(three[0].explain(RuntimeError("timed out")))
    assert "rank 2 of 3" in silent
    assert "gives no sign of life" in silent


def test_a_rank_that_was_stopped_itself_says_so(three: list[Ranks]) -> None:
    """By Ctrl-Z, say: the others waited for it, and are gone when it goes on."""
    joined(three)
    three[0].started(2, Process(78, f"ended with status {LOST}"))  # the store did not answer it either
    three[1].fail(LostContact("rank 0 gives no sign of life"))
    for one in three[1:]:
        one._is_over.set()
    time.sleep(0.2)
    said = r"rank 0 of 3 .*was not heard of for 20 s \(it was stopped, or cut off\), and the others left; what"
    assert re.match(said, str(three[0].explain(RuntimeError())))
    with pytest.raises(RankError, match=said):
        three[0].turn()


def test_inside_a_branch_the_rank_is_named_that_came_to_fewer_sums(three: list[Ranks]) -> None:
    """The others of its branch wait for it in a sum, those of further branches at the end of the forward."""
    joined(three)
    for one, sums in zip(three[1:], (8, 7), strict=True):
        one.together(lambda: None, of_all=True)
        for _ in range(sums):
            one.together(lambda: None, of_all=False)
    for _ in range(2):
        three[0].together(lambda: None, of_all=True)
    time.sleep(0.2)
    assert "rank 2 of 3" in str(three[0].explain(RuntimeError("timed out")))


def test_a_store_that_was_stopped_is_waited_for_no_longer_than_a_rank(three: list[Ranks]) -> None:
    """Rank 0 of a launcher, which keeps the store."""
    joined(three)
    stopped, one = threading.Event(), three[1]

    class Stopped:
        def check(self, *asked: object) -> bool:
            return stopped.wait()

        set = check

    one.store.store = Stopped()  # all that a rank which waits asks for
    one.store.limit_s = 0.2
    began = time.monotonic()
    with pytest.raises(RankError, match=r"rank 0 of 3 .* is gone or stands still, and with it the store"):
        one.next_work()
    assert "rank 0 of 3" in str(one.explain(RuntimeError("timed out")))
    assert time.monotonic() - began < 5
    stopped.set()


def test_a_rank_whose_beat_stops_while_others_wait_is_named(three: list[Ranks]) -> None:
    joined(three)
    three[0].timeout_s = 0.3
    three[1]._is_over.set()
    with pytest.raises(RankError, match=r"rank 1 of 3 .* has given no sign of life for 0\.3 s"):
        three[0].turn()


def test_others_go_when_rank_0_ends_or_has_nothing_to_decode(three: list[Ranks]) -> None:
    joined(three)
    three[0].close()
    assert three[1].next_work() is None
    with pytest.raises(RankError, match=r"rank 0 of 3 .* ended the decode"):
        three[2].turn()
    first = Ranks(Place(0, 2), "127.0.0.1", 0, 20.0, owner=True)
    second = Ranks(Place(1, 2), "127.0.0.1", first.port, 20.0)
    assert isinstance(at_once(first.dismiss, lambda: second.join(FACTS))[1], Dismissed)
