"""The replay in a browser, inside the report and as a page of its own."""

# ruff: noqa: F811  # tests take the imported fixture by its name
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.report import write_report
from analysis.study import Study
from tests.analysis_runs import sweep
from tests.chromium import NARROW, NEEDS_CHROMIUM, WIDE, browser, fits, quiet  # noqa: F401  # browser is a fixture

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("outputs")
    sweep(root, n=6, ks=(0, 7))
    return write_report(Study.of(root), root / "report")


@pytest.fixture(params=[WIDE, NARROW])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from quiet(browser, request.param)


def test_the_replay_of_the_report_works_by_mouse_and_keyboard(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    replay = page.locator("[data-replay]")
    _step_by_step(page, replay)
    _play(page, replay)


def test_the_replay_as_a_page_of_its_own_takes_keys_everywhere(page: Any, report: Path) -> None:
    page.goto((report.parent / "replay.html").as_uri())
    fits(page)
    replay = page.locator("[data-replay]")
    for key, frame in (("ArrowRight", "2"), ("ArrowRight", "3"), ("ArrowLeft", "2"), ("Home", "0")):
        page.keyboard.press(key)
        assert replay.get_attribute("data-frame") == frame
    first, last = replay.locator(".side").first, replay.locator(".side").last
    page.keyboard.press("End")
    colours = "(nodes) => new Set(nodes.map((node) => node.style.background)).size"
    assert first.locator(".token").evaluate_all(colours) > 3  # by call
    replay.get_by_label("colour").select_option("confidence")
    legend = replay.locator(".legend").inner_text()
    assert "probability" in legend
    calls = [int(re.findall(r"call (\d+) of \1:", side.inner_text())[0]) for side in (first, last)]
    assert calls[0] > calls[1]  # k = 0 takes more calls than k = 7


def test_by_the_clock_each_run_has_what_it_had_filled_by_then_and_the_first_to_be_done_is_named(
    page: Any, report: Path
) -> None:
    page.goto((report.parent / "replay.html").as_uri())
    replay = page.locator("[data-replay]")
    replay.get_by_label("pace").select_option("clock")
    assert replay.get_attribute("data-frame") == "0"
    assert replay.locator(".token.filled").count() == 0
    page.keyboard.press("ArrowRight")  # to the end of the first call of any run
    assert replay.locator(".token.filled").count() > 0
    page.keyboard.press("End")
    ends = [side.inner_text() for side in replay.locator(".side").all()]
    assert sorted(re.findall(r"done after [\d.]+ s, (\w+)", "".join(ends))) == ["first", "fourth", "second", "third"]
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    page.wait_for_function("Number(document.querySelector('[data-replay]').dataset.frame) > 1")


def _step_by_step(page: Any, replay: Any) -> None:
    """By mouse, by keyboard, and what a screen reader is told."""
    filled, live = replay.locator(".side").first.locator(".token.filled"), replay.locator("[aria-live]")
    assert filled.count() > 0  # it starts with the first call: something to see
    replay.get_by_label("One step back").click()
    assert filled.count() == 0
    replay.get_by_label("One step forward").click()
    assert filled.count() > 0
    assert "call 1" in live.inner_text()
    replay.focus()
    for key, frame in (("ArrowRight", "2"), ("ArrowLeft", "1"), ("Home", "0")):
        page.keyboard.press(key)
        assert replay.get_attribute("data-frame") == frame
    page.keyboard.press("End")
    assert replay.locator(".token.masked").count() == 0
    assert "gold" in replay.locator(".side").last.inner_text()


def _play(page: Any, replay: Any) -> None:
    page.keyboard.press(" ")
    assert replay.get_attribute("data-playing") == "true"
    page.wait_for_function("Number(document.querySelector('[data-replay]').dataset.frame) > 1")
    page.keyboard.press(" ")
    assert replay.get_attribute("data-playing") == "false"
    assert replay.locator("table tr.won").count() >= 1
    assert replay.locator(".token.masked").first.get_attribute("aria-hidden") == "true"
