"""The report: everything from one folder of runs, in one page that works from disk."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.figures.registry import FIGURES
from analysis.page.about import ARTICLE
from analysis.report import write_report
from analysis.study import Study
from tests.analysis_runs import many_runs, report_runs

ROOT = Path(__file__).parents[1]

# These runs are on no split of the problems, and their steps lack what a branch was rewarded for.
DRAWN = {name: plot for name, plot in FIGURES.items() if name not in ("arena", "rewarded")}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_runs(tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="module")
def report(outputs: Path) -> Path:
    return write_report(Study.of(outputs), outputs / "report")


def test_every_table_and_figure_is_on_the_page_and_in_files(report: Path) -> None:
    page, folder = report.read_text(encoding="utf-8"), report.parent
    for number in range(1, 8):
        assert f'id="table{number}"' in page
        for suffix in ("csv", "md", "tex"):
            assert (folder / "tables" / f"table{number}.{suffix}").stat().st_size > 0
    for name in DRAWN:
        assert f'id="{name}"' in page
        for suffix in ("png", "pdf"):
            assert (folder / "figures" / f"{name}.{suffix}").stat().st_size > 1000
    assert "<img" not in page
    assert page.count("<figure") == len(DRAWN) + 1  # that of the leaderboard
    assert "not finished and left out: 1." in page
    assert "left out: interrupted" in page


def test_every_panel_has_marks_that_tell_what_they_are(report: Path) -> None:
    panels = re.findall(r'<svg [^>]*class="panel".*?</svg>', report.read_text(encoding="utf-8"), re.DOTALL)
    assert len(panels) > len(DRAWN)
    assert [panel[:200] for panel in panels if "data-tip=" not in panel] == []


def test_the_pages_load_nothing_and_link_to_what_lies_beside_them(report: Path) -> None:
    pages = [report, *report.parent.glob("runs/*.html")]
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"""src=["'](?!data:)|<link (?!rel="icon" href="data:)|url\((?!#)|@import|fetch\(""", text)
        links = set(re.findall(r'href="([^"#]*)["#]', text)) - {"", "data:,", ARTICLE}
        assert {link for link in links if not (page.parent / link).is_file()} == set()


def test_published_and_toy_numbers_are_named_as_such(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert '<th scope="col">published</th>' in page
    assert "mini (toy)" in page
    assert "not what a 7B model reaches" in page


def test_all_axes_of_all_figures_are_named(outputs: Path) -> None:
    study = Study.of(outputs)
    for name, plot in DRAWN.items():
        figure = plot.draw(study)
        assert figure is not None, name
        for ax in figure.axes:
            assert ax.get_ylabel() or _has_names(ax), name
            siblings = ax.get_shared_x_axes().get_siblings(ax)  # a second y axis has the x axis of the first
            assert ax.get_label() == "<colorbar>" or any(one.get_xlabel() for one in siblings), name


def _has_names(ax: Any) -> bool:
    """Whether the ticks of y are names of things, which need no unit."""
    labels = [label.get_text() for label in ax.get_yticklabels()]
    return bool(labels) and not any(label.replace("\N{MINUS SIGN}", "-").lstrip("-")[:1].isdigit() for label in labels)


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
