"""What can be shown never decides how a run ends: any encoding, a closed pipe, a closed or full stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lopa_bench.console.listing import command
from tests.test_cli import write
from tests.test_records import sample
from tests.test_sweep import record, start
from tests.warm import ROOT

SAY = "from lopa_bench.system import streams; import sys; streams.secure(); "
QUIET = {"PYTHONIOENCODING", "PYTHONUTF8", "LC_ALL", "LANG"}


def python(code: str, shell: str = "exec", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`code` behind a secured start, with the streams that `shell` gives it."""
    env = {name: value for name, value in os.environ.items() if name not in QUIET} | {"PYTHONPATH": str(ROOT)}
    line = f'"$PYTHON" -c "$CODE" {shell}' if shell != "exec" else 'exec "$PYTHON" -c "$CODE"'
    return subprocess.run(
        ["bash", "-c", line], env=env | environment | {"PYTHON": sys.executable, "CODE": SAY + code},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "×1.91 84–93 数 é"),
        ("latin-1", "×1.91 84-93 \\u6570 é"),
        ("ascii", "x1.91 84-93 \\u6570 \\xe9"),
        ("cp1252", "×1.91 84–93 \\u6570 é"),
    ],
)
def test_what_an_encoding_lacks_is_replaced_and_never_raised(encoding: str, shown: str) -> None:
    code = "print('\\u00d71.91 84\\u201393 \\u6570 \\xe9'); print('\\u2212', file=sys.stderr)"
    done = python(code, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert done.stdout.decode(encoding) == shown + "\n"
    assert done.stderr.decode(encoding) == ("\u2212\n" if encoding == "utf-8" else "-\n")


def test_in_the_c_locale_all_is_shown_that_ascii_can_show() -> None:
    done = python("print('84\\u201393 \\udce9')", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stdout) == (0, b"84-93 \\udce9\n")


@pytest.mark.parametrize("shell", ["> /dev/full", ">&-", "2> /dev/full", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_full_or_closed_stream_raises_nothing_and_the_exit_status_stays(shell: str) -> None:
    code = "print('a' * 100_000); print('b', file=sys.stderr, flush=True); sys.exit(3)"
    assert python(code, shell).returncode == 3


def test_a_reader_that_has_seen_enough_ends_nothing_and_nothing_is_said_of_it() -> None:
    code = "[print(n, flush=True) for n in range(20_000)]; print('to its end', file=sys.stderr)"
    done = python(code, "| head -1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"to its end\n")


def test_a_closed_stream_leaves_its_number_to_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    python(f"file = open({str(path)!r}, 'w'); print('a table'); sys.stdout.flush(); file.write('rows')", ">&-")
    assert path.read_text() == "rows"


def test_why_stdout_could_not_be_written_is_known() -> None:
    code = "print('x'); print(repr(streams.failure(sys.stdout)), file=sys.stderr)"
    assert b"No space left" in python(code, "> /dev/full").stderr
    assert python(code).stderr == b"None\n"


def test_ls_on_a_full_disk_says_so_and_ends_as_it_should(tmp_path: Path) -> None:
    write(tmp_path, "a", [sample(0)], status="finished", n=1)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lopa_bench", "ls", str(tmp_path)], cwd=ROOT, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 0
    assert (
        done.stderr == b"warning: stdout could not be written (No space left on device); lopa-bench ls has the runs\n"
    )


@pytest.mark.slow
def test_a_sweep_on_an_ascii_terminal_finishes_and_its_last_line_is_the_json_line(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = start("-m", *settings, "task.limit=1", "decoder.k=0,1", "model.name='数'", f"run.out={tmp_path}")
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert out.isascii()
    values = json.loads(out.splitlines()[-1])
    assert (values["failed"], [row["model"] for row in values["table"]]) == (0, ["数", "数"])
    jobs = record(tmp_path)
    assert [job["status"] for job in jobs] == ["finished", "finished"]
    assert "数" in (Path(jobs[0]["folder"]) / "job.log").read_text(encoding="utf-8")  # the log has every character


def test_in_a_process_whose_stdout_is_not_its_own_nothing_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lopa_bench.system.streams import secure

    ours = sys.stdout
    secure()
    assert sys.stdout is ours
    write(tmp_path, "a", [sample(0)], status="finished", n=1)
    assert command(["ls", str(tmp_path)]) == 0
    assert "finished" in capsys.readouterr().out
