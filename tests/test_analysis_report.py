"""The report: everything from one folder of runs, in one page that works from disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.figures.registry import FIGURES
from analysis.report import write_report
from analysis.study import Study
from tests.analysis_runs import many_runs, simulate, sweep, write_run

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over k and thresholds on two tasks, and every ablation with two values."""
    root = tmp_path_factory.mktemp("outputs")
    sweep(root, n=10)
    sweep(root, n=6, task="mbpp", ks=(0, 3, 7))
    ablations: list[dict[str, Any]] = [
        {"score": {"kind": "next_fill"}}, {"confidence": "prob"}, {"forced": "global"}, {"attention": "block_causal"},
        {"block_size": 32}, {"floor": 0.4},
    ]  # fmt: skip
    from decoders.config import ScoreConfig

    for index, changes in enumerate(ablations):
        settings = {"name": "lopa", "k": 3} | changes
        if "score" in settings:
            settings["score"] = ScoreConfig(**settings["score"])
        write_run(root, f"ablation-{index}", settings, simulate(10, 3, 0.9, seed=20 + index))
    write_run(root, "stopped", {"name": "d2f"}, simulate(2, 0, 0.9, seed=9), status="interrupted")
    return root


@pytest.fixture(scope="module")
def report(outputs: Path) -> Path:
    return write_report(Study.of(outputs), outputs / "report")


def test_every_table_and_figure_is_on_the_page_and_in_files(report: Path) -> None:
    page, folder = report.read_text(encoding="utf-8"), report.parent
    for number in range(1, 8):
        assert f'id="table{number}"' in page
        for suffix in ("csv", "md", "tex"):
            assert (folder / "tables" / f"table{number}.{suffix}").stat().st_size > 0
    for name in FIGURES:
        assert f'id="{name}"' in page
        for suffix in ("png", "pdf"):
            assert (folder / "figures" / f"{name}.{suffix}").stat().st_size > 1000
    assert page.count("<img") == page.count('src="data:image/png;base64,') == len(FIGURES)
    assert "1 unfinished ones are left out" in page
    assert "left out: interrupted" in page


def test_the_page_asks_for_nothing_outside_itself(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["'](?!data:|#)|url\(|@import|fetch\(""", page)


def test_published_and_toy_numbers_are_named_as_such(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert '<th scope="col">published</th>' in page
    assert "mini (toy)" in page
    assert "not what a 7B model reaches" in page


def test_all_axes_of_all_figures_are_named(outputs: Path) -> None:
    study = Study.of(outputs)
    for name, plot in FIGURES.items():
        figure = plot.draw(study)
        assert figure is not None, name
        for ax in figure.axes:
            assert ax.get_ylabel() or ax.get_yticklabels()[0].get_text(), name
            assert ax.get_xlabel() or ax.get_ylabel(), name


def test_one_table_or_figure_alone(outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table1", str(outputs), "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("### Table 1.")
    assert main(["figure5", str(outputs), "--to", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "figure5.pdf").exists()
    assert (tmp_path / "tables" / "table1.tex").exists()


def test_a_folder_without_runs_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "no finished run under" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert main(["figure5", str(tmp_path)]) == 2


def test_the_report_loads_no_torch(outputs: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from analysis.__main__ import main; "
        f"main(['figure4', {str(outputs)!r}, '--to', {str(tmp_path)!r}]); "
        "import analysis.report, analysis.replay.tokens; "
        "print([name for name in ('torch', 'transformers', 'datasets', 'wandb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"


def notebooks() -> list[Path]:
    return sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_notebooks_run_on_a_small_recorded_run_and_hold_no_output(
    path: Path, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOPA_BENCH_OUTPUTS", str(outputs))
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), str(path), "exec"), names)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_and_its_replay_work_in_chromium(report: Path, width: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    said: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto(report.as_uri())
        loaded = page.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth > 100)")
        assert len(loaded) == len(FIGURES)
        assert all(loaded)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        _use_the_replay(page)
        browser.close()
    assert said == []


def _use_the_replay(page: Any) -> None:
    """By mouse, by keyboard, and what a screen reader is told."""
    replay = page.locator("[data-replay]")
    filled, live = replay.locator(".side").first.locator(".token.filled"), replay.locator("[aria-live]")
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
    page.keyboard.press(" ")
    assert replay.get_attribute("data-playing") == "true"
    page.wait_for_function("Number(document.querySelector('[data-replay]').dataset.frame) > 1")
    page.keyboard.press(" ")
    assert replay.get_attribute("data-playing") == "false"
    assert replay.locator("table tr.won").count() >= 1
    hidden = replay.locator(".token.masked").first
    assert hidden.get_attribute("aria-hidden") == "true"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a child process as Linux reports it")
def test_a_hundred_runs_are_reported_in_a_minute_and_two_gibibytes(tmp_path: Path) -> None:
    """100 runs x 1,319 samples x 60 steps. The minute is CPU time: other tests may share the machine."""
    many_runs(tmp_path)
    code = (
        "import resource, time; from analysis.__main__ import main; "
        f"status = main(['report', {str(tmp_path)!r}]); "
        "print(status, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    status, cpu_s, kibibytes = map(float, done.stdout.split()[-3:])
    print(f"{cpu_s:.1f} s of CPU, {time.perf_counter() - started:.1f} s by the clock, {kibibytes / 2**20:.2f} GiB")
    assert status == 0
    assert cpu_s < 60
    assert kibibytes < 2 * 2**20
