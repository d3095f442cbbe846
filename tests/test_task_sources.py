"""Rows come from where the configuration says, checked, or the run stops with a message that helps."""

import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from tasks.sources import load as sources
from tasks.sources.load import canonical_sha256, load_split
from tasks.sources.split import HubSet, Split
from tasks.types import TaskError

ROWS = [{"question": "How many?", "answer": "#### 1"}, {"question": "How\u2028far?", "answer": "#### 2"}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
SPLIT = Split(
    title="GSM8K test",
    fields=("question", "answer"),
    hub=HubSet("openai/gsm8k", "test", 1319, ("main",), "7" * 40),
    embedded="rows.jsonl",
    embedded_title="embedded word problems",
)


def test_the_same_rows_from_every_format(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES.encode(), mtime=0))
    (tmp_path / "c.json").write_text(json.dumps(ROWS))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "d.parquet")
    for path in sorted(tmp_path.iterdir()):
        rows, source = load_split(SPLIT, str(path))
        assert rows == ROWS
        assert (source.kind, source.rows) == ("file", 2)


def test_a_relative_path_means_the_launch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    monkeypatch.chdir(tmp_path)
    assert load_split(SPLIT, "a.jsonl")[0] == ROWS


def test_auto_is_embedded_for_embedded_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_text(LINES)
    monkeypatch.setattr(sources, "EMBEDDED_DIR", tmp_path)
    rows, source = load_split(SPLIT, "auto", embedded_default=True)
    assert rows == ROWS
    assert (source.kind, source.name) == ("embedded", "embedded word problems")
    assert sources.resolve_source("auto", embedded_default=False) == "hub"


BROKEN = [  # file, content, message
    ("a.jsonl", b"", "a.jsonl has no rows"),
    ("a.jsonl", LINES.encode()[:-8], r"a\.jsonl, line 2: expected one JSON object a line, found '\{\"question\""),
    ("a.jsonl", b"<html>", r"a\.jsonl, line 1: .*found '<html>'"),
    (
        "a.jsonl",
        b"[1]\n",
        r"a\.jsonl, line 1: expected one JSON object a line, found a list; a file that is one list ends in \.json",
    ),
    (
        "a.jsonl",
        b'{"question": "x"}',
        r"row 1: no value for answer; found the fields question, expected question, answer",
    ),
    ("a.jsonl", b"\xff\xfe", r"a\.jsonl, line 1: not UTF-8"),
    ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)[:-12], r"a\.jsonl\.gz: damaged or truncated gzip file"),
    ("a.jsonl.gz", LINES.encode(), r"a\.jsonl\.gz: damaged or truncated gzip file"),
    ("a.json", b'[{"question"', r"a\.json: damaged JSON at line 1"),
    ("a.json", b'{"rows": []}', r"a\.json: expected a JSON list of objects, found dict"),
    ("a.parquet", b"PAR1", r"a\.parquet: damaged parquet file of 4 bytes"),
    ("a.csv", b"question,answer", r"a\.csv: unknown format, expected a file that ends in \.jsonl\.gz, \.jsonl, "),
]


@pytest.mark.parametrize(("file", "content", "message"), BROKEN)
def test_a_broken_file_is_named_with_what_was_found(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TaskError, match=message):
        load_split(SPLIT, str(tmp_path / file))


def test_a_missing_file_a_typing_error_and_a_needless_revision(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none\.jsonl does not exist .* a file with GSM8K test is wanted"):
        load_split(SPLIT, str(tmp_path / "none.jsonl"))
    with pytest.raises(TaskError, match=r"task\.source='hubb' is neither auto, embedded nor hub, and no such file"):
        load_split(SPLIT, "hubb")
    with pytest.raises(TaskError, match=r"task\.revision='v1' is for task\.source=hub only"):
        load_split(SPLIT, "embedded", revision="v1")


def test_an_original_is_known_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "anything.jsonl"
    path.write_text(LINES)
    sha256 = load_split(SPLIT, str(path))[1].sha256
    known = Split("GSM8K test", SPLIT.fields, originals={sha256: 2})
    assert load_split(known, str(path))[1].name == "GSM8K test (original file)"
    path.write_text(LINES + LINES)
    assert load_split(known, str(path))[1].name == "file anything.jsonl (4 rows in the format of GSM8K test)"


def _assert_refused_quickly(reason: str) -> None:
    begin = time.monotonic()
    with pytest.raises(TaskError, match=reason) as caught:
        load_split(SPLIT, "hub")
    assert time.monotonic() - begin < 10
    assert "openai/gsm8k main/test" in str(caught.value)
    assert "task.source=<path" in str(caught.value)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_mode_calls_nobody(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened in offline mode")

    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    _assert_refused_quickly(f"{variable} is set and the local cache does not hold it")


@pytest.fixture
def silent_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and never answers
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.usefixtures("empty_cache")
def test_a_network_that_hangs_is_given_up(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", silent_server)
    _assert_refused_quickly("cannot be reached")


class _FakeDataset(list):
    cache_files = ({"filename": f"/cache/main/0.0.0/{'7' * 40}/test.arrow"},)
    info = type("Info", (), {"download_checksums": None})
    _fingerprint = "f00d"


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    import datasets

    served: dict[str, list] = {"rows": ROWS * 700, "calls": []}

    def load_dataset(path: str, name: str | None, **settings: object) -> _FakeDataset:
        served["calls"].append((path, name, settings["split"], settings["revision"]))
        return _FakeDataset(served["rows"])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("tasks.sources.hub._offline_reason", lambda: None)
    return served


def test_the_hub_is_asked_for_the_pinned_revision(fake_hub: dict[str, list]) -> None:
    fake_hub["rows"] = (ROWS * 700)[:1319]
    rows, source = load_split(SPLIT, "hub")
    assert fake_hub["calls"] == [("openai/gsm8k", "main", "test", "7" * 40)]
    assert (source.kind, source.name, source.rows) == ("hub", "openai/gsm8k main/test", 1319)
    assert source.revision == "7" * 40
    assert source.sha256 == canonical_sha256(rows)


@pytest.mark.parametrize("rows", [1318, 1320])
def test_a_hub_set_with_rows_missing_or_added_is_refused(fake_hub: dict[str, list], rows: int) -> None:
    fake_hub["rows"] = (ROWS * 700)[:rows]
    with pytest.raises(TaskError, match=rf"openai/gsm8k main/test .* has {rows} rows, expected 1319"):
        load_split(SPLIT, "hub")


def test_a_cache_of_another_revision_is_refused(fake_hub: dict[str, list]) -> None:
    with pytest.raises(TaskError, match=r"the cache holds revision 7+, wanted 8+"):
        load_split(SPLIT, "hub", revision="8" * 40)
