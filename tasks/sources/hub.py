"""Rows from the Hugging Face Hub through `datasets`: pinned, and refused quickly when there is no network."""

from __future__ import annotations

import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from tasks.sources.files import Row
from tasks.sources.split import Split
from tasks.types import TaskError

OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
REACH_SECONDS = 5.0
COMMIT = re.compile(r"\b[0-9a-f]{40}\b")


def fetch_rows(split: Split, revision: str | None) -> tuple[list[Row], str]:
    """Rows of all configs and the revision they really have. Without a network only the local cache is read."""
    assert split.hub is not None
    obstacle = _offline_reason()
    rows: list[Row] = []
    found: set[str] = set()
    with _cache_only() if obstacle else nullcontext():
        for config in split.hub.configs:
            dataset = _load(split, config, revision, obstacle)
            rows.extend(dict(row) for row in dataset)
            found.add(_resolved_revision(dataset))
    if len(found) != 1:
        raise TaskError(f"{split.hub.name}: configs have different revisions, {sorted(found)}")
    resolved = found.pop()
    if revision and COMMIT.fullmatch(revision) and COMMIT.fullmatch(resolved) and resolved != revision:
        raise TaskError(f"{split.hub.name}: the cache holds revision {resolved}, wanted {revision}")
    return rows, resolved


def _load(split: Split, config: str | None, revision: str | None, obstacle: str | None) -> Any:
    from datasets import DownloadConfig, load_dataset

    assert split.hub is not None
    try:
        return load_dataset(
            split.hub.path,
            config,
            split=split.hub.split,
            revision=revision,
            download_config=DownloadConfig(max_retries=1, local_files_only=obstacle is not None),
        )
    except Exception as error:  # the libraries below raise a dozen types, some of them bare
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:200]
        reason = f"{obstacle} and the local cache does not hold it" if obstacle else first_line
        raise TaskError(
            f"could not load {split.hub.name} from the Hub: {reason}. "
            f"For {split.title} without the Hub give a local file: task.source=<path to a .jsonl, .jsonl.gz, .json or "
            f".parquet with the fields {', '.join(split.fields)}>"
        ) from error


def _resolved_revision(dataset: Any) -> str:
    """The commit in the download record or in the cache path, else the fingerprint of the data."""
    checksums = " ".join(dataset.info.download_checksums or {})
    paths = " ".join(file["filename"] for file in dataset.cache_files)
    match = COMMIT.search(checksums) or COMMIT.search(paths)
    return match.group() if match else f"fingerprint {dataset._fingerprint}"


def _offline_reason() -> str | None:
    for name in OFFLINE_VARIABLES:
        if os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}:
            return f"{name} is set"
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    return None if _reachable(endpoint) else f"{endpoint} cannot be reached"


def _reachable(endpoint: str) -> bool:
    """One HEAD request in a thread of its own, since the look-up of a name has no timeout that can be set."""
    answers: list[bool] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            urllib.request.urlopen(request, timeout=REACH_SECONDS).close()
            answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # an error page is an answer
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return bool(answers)


@contextmanager
def _cache_only() -> Iterator[None]:
    """Both libraries read their offline switch once, at import, so the variables of the environment come too late."""
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
