"""The report, its pages of samples and its replays in a browser, from disk: `pip install -e .[browser]`, and a Chromium
on the PATH. Where axe-core is in node_modules (`npm install --no-save axe-core`), or $AXE_CORE names it, it judges too.
"""

# ruff: noqa: F811  # tests take the imported fixture by its name
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.page.about import ARTICLE
from analysis.report import write_report
from analysis.study import Study
from tests.analysis_runs import report_runs, simulate, write_run
from tests.chromium import HIGH, NARROW, NEEDS_CHROMIUM, WIDE, browser, fits, quiet  # noqa: F401  # browser is a fixture

ROOT = Path(__file__).parents[1]
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules/axe-core/axe.min.js")
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
UNFOLD = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make bench` and a run of greedy leave: k = 8, k = 0 and greedy on the same problems."""
    root = tmp_path_factory.mktemp("three")
    for k in (0, 8):
        write_run(root, f"lopa-k{k}", {"name": "lopa", "k": k}, simulate(30, k, 0.9, seed=k))
    write_run(root, "greedy", {"name": "greedy"}, simulate(30, 0, 0.9, seed=50, gain=0.0))
    return write_report(Study.of(root), root / "report")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = report_runs(tmp_path_factory.mktemp("outputs"))
    return write_report(Study.of(root), root / "report")


@pytest.fixture(params=[WIDE, NARROW])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from quiet(browser, request.param)


@pytest.fixture
def wide(browser: Any) -> Iterator[Any]:
    yield from quiet(browser, WIDE)


def test_the_first_screen_holds_the_sentence_and_the_runs(wide: Any, three: Path) -> None:
    wide.goto(three.as_uri())
    lowest = "(nodes) => Math.max(...nodes.map((node) => node.getBoundingClientRect().bottom))"
    rows = wide.locator("#board tbody tr")
    assert rows.count() == 3
    assert rows.evaluate_all(lowest) < HIGH
    assert wide.locator("figure.lead-picture svg.panel").evaluate_all(lowest) < HIGH
    assert re.match(r"LoPA on D2F, k = 8 needs [\d.]+× fewer calls than its base \(D2F\)", _text(wide, "#sentence"))


def test_it_is_small_and_loads_fast(wide: Any, three: Path) -> None:
    assert three.stat().st_size < 3_000_000
    times = []
    for _ in range(3):  # the best: other tests may share the machine
        wide.goto(three.as_uri())
        times.append(wide.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 1500


def test_heads_sort_and_words_filter_by_mouse_and_keyboard(wide: Any, many: Path) -> None:
    wide.goto(many.as_uri())
    shown = wide.locator("#board tbody tr:not([hidden])")
    assert shown.count() == 10
    wide.locator("button.more").first.click()
    assert shown.count() == 27
    head = wide.locator("#board th", has_text="latency")
    head.get_by_role("button").focus()
    for order, direction in (("ascending", 1), ("descending", -1)):
        wide.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        column = head.evaluate("(node) => node.cellIndex")
        values = shown.evaluate_all(f"(rows) => rows.map((row) => Number(row.cells[{column}].dataset.v))")
        assert values == sorted(values, key=lambda value: direction * value)
    wide.keyboard.press("Tab")
    wide.get_by_role("searchbox").first.fill("mbpp greedy")
    assert shown.count() == 1
    assert "greedy" in shown.inner_text()
    assert _text(wide, ".count") == "1 of 27 runs"
    wide.get_by_role("searchbox").first.fill("mbpp k = 0")  # one word, not k and 0
    assert shown.count() == 1


def test_a_point_tells_its_run_under_the_pointer_and_by_arrow_keys(page: Any, three: Path) -> None:
    page.goto(three.as_uri())
    group, tip = page.locator(".lead-picture [data-tips]"), page.locator(".tip")
    assert not tip.is_visible()
    group.locator("[data-tip]").first.hover()
    told = tip.inner_text()
    assert re.search(r"TPF [\d.]+ \[[\d.]+, [\d.]+\]", told)
    assert "n = 30" in told
    group.focus()
    seen = set()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.add(tip.inner_text().splitlines()[0])
    assert seen == {"greedy", "LoPA on D2F, k = 0", "LoPA on D2F, k = 8"}
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_two_clicks_lead_from_a_run_to_what_a_sample_answered(page: Any, three: Path) -> None:
    page.goto(three.as_uri())
    page.locator("#board a", has_text="30 samples").first.click()
    page.get_by_role("searchbox").fill("p28")
    page.get_by_role("button", name="p28", exact=True).click()
    opened = page.locator("#opened")
    opened.locator(".side").first.wait_for()
    assert re.search(r"(right|wrong): answered .*, gold .*; its base was (right|wrong)", opened.inner_text())
    assert opened.locator(".side").count() == 2
    fits(page)
    page.reload()  # the address names the sample
    page.locator("#opened .side").first.wait_for()
    assert page.locator("#opened h2").inner_text() == "Problem p28"


def test_nothing_runs_sideways_and_a_telephone_scrolls_little(page: Any, three: Path, many: Path) -> None:
    for report in (three, many):
        page.goto(report.as_uri())
        fits(page)
        assert page.evaluate("document.documentElement.scrollHeight") < 15_000
        page.evaluate(UNFOLD)
        fits(page)


def test_paper_cuts_nothing_off(wide: Any, many: Path, tmp_path: Path) -> None:
    wide.goto(many.as_uri())
    wide.emulate_media(media="print")
    wide.set_viewport_size({"width": 1031, "height": HIGH})  # A4 on its side, less the margins
    wide.evaluate(UNFOLD)
    over = "(nodes) => nodes.filter((n) => n.getBoundingClientRect().right > 1032).map((n) => n.id || n.tagName)"
    assert wide.locator("table, svg, pre, p, li, h2, h3").evaluate_all(over) == []
    assert len(wide.pdf()) > 100_000
    assert wide.locator("#board tbody tr[hidden]").count() == 17  # printed, and folded again


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_readable_and_axe_finds_no_serious_fault(browser: Any, many: Path, scheme: str) -> None:
    samples = next((many.parent / "runs").glob("gsm8k-lopa-k07*.html"))
    for width in (WIDE, NARROW):
        for address in (many.as_uri(), f"{samples.as_uri()}#sample=p3", (many.parent / "replay.html").as_uri()):
            for page in quiet(browser, width, color_scheme=scheme):
                page.goto(address)
                page.evaluate(UNFOLD)
                for replay in page.locator(".replay").all():
                    replay.get_by_label("One step forward").click()
                assert page.evaluate(CONTRAST) == []
                assert _faults(page) == []
                page.evaluate("document.querySelector('h1').style.color = 'var(--line)'")
                assert page.evaluate(CONTRAST) != []  # the measure can fail


def _faults(page: Any) -> list[Any]:
    """Duplicate names, controls and links without a name; and what axe calls serious or worse."""
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    found = [("twice", name) for name in {name for name in ids if ids.count(name) > 1}]
    nameless = (
        "[...document.querySelectorAll('a, button, input, select')]"
        ".filter((n) => !(n.textContent.trim() || n.ariaLabel || n.labels?.length)).length"
    )
    found += [("no name", n)] if (n := page.evaluate(nameless)) else []
    if AXE.is_file():
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found += page.evaluate(
            "axe.run().then((told) => told.violations.filter((one) => ['serious', 'critical'].includes(one.impact))"
            ".map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 100))]))"
        )
    return found


def test_every_link_leads_somewhere(wide: Any, many: Path) -> None:
    wide.goto(many.as_uri())
    targets = wide.evaluate("[...document.querySelectorAll('a')].map((link) => link.getAttribute('href'))")
    inside = [target for target in targets if target.startswith("#")]
    assert len(inside) >= 7
    assert all(wide.locator(f"[id='{target[1:]}']").count() == 1 for target in inside)
    beside = {target for target in targets if not target.startswith("#")} - {ARTICLE}
    assert all((many.parent / target).is_file() for target in beside)
    wide.goto(f"{many.as_uri()}#table4")  # a link into something folded opens it
    assert wide.locator("#table4 table").is_visible()
    assert wide.locator("#table4 tr.none").first.is_hidden()
    wide.locator("#with-empty").check()
    assert wide.locator("#table4 tr.none").first.is_visible()


def _text(page: Any, selector: str) -> str:
    return str(page.locator(selector).first.inner_text()).replace("\u00a0", " ")
