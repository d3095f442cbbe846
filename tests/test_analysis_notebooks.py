"""The notebooks run from their first cell to their last in a kernel of their own, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.analysis_runs import report_runs

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_runs(tmp_path_factory.mktemp("outputs"))


def test_there_are_four() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["ablations", "error_analysis", "scaling", "systems"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_on_small_recorded_runs_and_shows_what_it_promises(
    path: Path, outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in (("LOPA_BENCH_OUTPUTS", outputs), ("IPYTHONDIR", tmp_path), ("JUPYTER_RUNTIME_DIR", tmp_path)):
        monkeypatch.setenv(name, str(folder))
    book = nbformat.read(path, as_version=4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    assert any("dataframe" in output.get("data", {}).get("text/html", "") for output in cells[0].outputs)
    last = [output["data"] for output in cells[-1].outputs if "image/png" in output.get("data", {})]
    assert "<figcaption>" in last[-1]["text/html"]  # it ends with a picture, and says what it shows
    for cell in cells:
        shown = {kind for output in cell.outputs for kind in output.get("data", {})}
        if cell.source.startswith("figure("):
            assert "image/png" in shown, cell.source
        if cell.source.startswith("table("):
            assert "text/html" in shown, cell.source
