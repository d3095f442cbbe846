"""A remembered checksum is that of the bytes that are there now, or it is not remembered."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import pytest

from lopa_bench.errors import CheckpointError
from lopa_bench.plan import checksums
from lopa_bench.plan.checksums import files_sha256, remembered_sha256, texts_sha256, weights_sha256
from tasks import remembered as memory


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LOPA_BENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lopa_bench" / "checksums"


def written(path: Path, content: bytes, time_ns: int = 10**18) -> Path:
    """A file whose size and time say nothing of what is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(time_ns, time_ns))
    return path


def test_untouched_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")
    first = remembered_sha256([weights])
    assert first == files_sha256([weights])
    monkeypatch.setattr(checksums, "files_sha256", lambda _: pytest.fail("read again"))
    assert remembered_sha256([weights]) == first


def test_other_bytes_of_the_same_size_and_time_are_seen_at_once(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    for number in range(30):
        written(weights, b"%09d" % number)
        assert remembered_sha256([weights]) == files_sha256([weights]), number


def test_a_replaced_file_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")
    first = remembered_sha256([weights])
    written(tmp_path / "other", b"two").replace(weights)
    assert remembered_sha256([weights]) == files_sha256([weights]) != first


def test_two_shards_that_changed_places_are_seen(tmp_path: Path) -> None:
    files = [written(tmp_path / name, content) for name, content in (("a", b"one"), ("b", b"two"))]
    first = remembered_sha256(files)
    files[0].rename(tmp_path / "c")
    files[1].rename(files[0])
    (tmp_path / "c").rename(files[1])
    assert remembered_sha256(files) == files_sha256(files) != first


def test_a_link_that_leads_elsewhere_is_seen(tmp_path: Path) -> None:
    """A folder that is a link, and a snapshot of the Hub, whose files are links to blobs."""
    for name, content in (("v1", b"one"), ("v2", b"two")):
        written(tmp_path / name / "model.safetensors", content)
    folder, snapshot = tmp_path / "model", tmp_path / "snapshot" / "model.safetensors"
    snapshot.parent.mkdir()
    for link, targets in (
        (folder, [tmp_path / "v1", tmp_path / "v2"]),
        (snapshot, [tmp_path / "v1/model.safetensors", tmp_path / "v2/model.safetensors"]),
    ):
        sums = set()
        for target in targets:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            sums.add(weights_sha256(folder if link == folder else snapshot.parent))
        assert len(sums) == 2


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")

    def read_and_change(files: list[Path]) -> str:
        sha256 = files_sha256(files)
        written(weights, b"two")
        return sha256

    monkeypatch.setattr(checksums, "files_sha256", read_and_change)
    remembered_sha256([weights])
    assert not cache.exists()


@pytest.mark.parametrize(("since_ms", "waits_ms"), [(0, 20), (5, 15), (19, 1), (20, None), (5000, None)])
def test_a_file_of_this_moment_waits_until_the_clock_of_files_has_ticked(
    since_ms: int, waits_ms: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write within the same tick would leave the same times behind."""
    weights, waited = written(tmp_path / "model.safetensors", b"one"), []
    changed = weights.stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: changed + since_ms * 1_000_000)
    monkeypatch.setattr(time, "sleep", lambda seconds: waited.append(round(seconds * 1000)))
    remembered_sha256([weights])
    assert waited == ([] if waits_ms is None else [waits_ms])


def test_times_of_the_future_prove_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")
    monkeypatch.setattr(time, "time_ns", lambda: weights.stat().st_ctime_ns - 1)
    assert remembered_sha256([weights]) == files_sha256([weights])
    assert not cache.exists()


def test_a_damaged_memory_is_no_memory(tmp_path: Path, cache: Path) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")
    right = remembered_sha256([weights])
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    position = whole.index(right.encode())
    other_digit = b"0" if right[0] != "0" else b"1"
    damaged = [b"", whole[:-20], b"\0" * len(whole), b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000]
    damaged += [whole[:position] + other_digit + whole[position + 1 :], right.encode()]
    for content in damaged:
        entry.write_bytes(content)
        assert remembered_sha256([weights]) == right
        assert entry.read_bytes() == whole  # mended


@pytest.mark.parametrize("obstacle", ["a file", "a folder in the place of the entry", "no home", "a full disk"])
def test_without_a_memory_sums_are_right_all_the_same(
    obstacle: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")
    if obstacle == "a file":
        written(cache.parents[1], b"")
    elif obstacle == "a folder in the place of the entry":
        remembered_sha256([weights])
        (entry,) = cache.iterdir()
        entry.unlink()
        entry.mkdir()
    elif obstacle == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(pwd, "getpwuid", lambda _: {}[0])
        assert memory.cache_folder() is None
    else:
        monkeypatch.setattr(Path, "write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert remembered_sha256([weights]) == files_sha256([weights])
    assert remembered_sha256([weights]) == files_sha256([weights])


def test_nothing_unfinished_stays_in_the_memory(tmp_path: Path, cache: Path) -> None:
    weights = written(tmp_path / "model.safetensors", b"one")
    for content in (b"one", b"two"):
        remembered_sha256([written(weights, content)])
    assert [path.suffix for path in cache.iterdir()] == [".json", ".json"]


def test_a_text_beside_the_weights_counts_by_name_and_content(tmp_path: Path) -> None:
    def texts() -> str:
        return texts_sha256(tmp_path / "model")

    written(tmp_path / "model/tokenizer.json", b"{}")
    sums = {texts()}
    written(tmp_path / "model/chat_template.jinja", b"one")
    sums.add(texts())
    written(tmp_path / "model/chat_template.jinja", b"two")
    sums.add(texts())
    (tmp_path / "model/chat_template.jinja").rename(tmp_path / "model/other.jinja")
    sums.add(texts())
    assert len(sums) == 4
    (tmp_path / "model/folder.json").mkdir()
    assert texts() in sums
    (tmp_path / "model/lost.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"lost\.json cannot be read: No such file"):
        texts()


def test_what_takes_long_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(memory, "PATIENCE_SECONDS", 0.01)
    with memory.said_if_slow("reading"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "reading ...\n"
    monkeypatch.setattr(memory, "PATIENCE_SECONDS", 10)
    with memory.said_if_slow("reading"):
        pass
    assert capsys.readouterr().err == ""
