"""The published values (analysis/published) and the notes that must stand beside them."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "published"

Row = Mapping[str, str]

PIPELINE = "d2f"  # the decoder here that the publications call D2F
# What the publications call a model, and the choice in conf/model that stands for it.
MODELS = {
    "Dream": "dream_instruct",
    "D2F-Dream": "d2f_dream",
    "D2F-Dream-Instruct": "d2f_dream",
    "D2F-Dream-7B-Instruct": "d2f_dream",
    "D2F-Dream-Base": "d2f_dream_base",
    "D2F-Dream-7B-Base": "d2f_dream_base",
    "D2F-Dream-7B-Base + LoPA": "d2f_dream_base",
    "DiffuCoder": "diffucoder",
    "D2F-DiffuCoder": "d2f_diffucoder",
    "Qwen3-8B": "qwen3_8b",
    "SDAR-4B-Chat": "sdar_4b_chat",
    "SDAR-8B-Chat": "sdar_8b_chat",
    "LLaDA2.0-flash": "llada2_flash",
    "LLaDA-2.0-flash-100BA6B": "llada2_flash",
}
# What the publications call a system, and the kind of device that stands for it.
PLATFORMS = {"LoPA-Dist-NV": "cuda", "LoPA-Dist-Ascend": "npu", "HuggingFace": "cuda", "HuggingFace CUDA": "cuda"}


@lru_cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of a published table, as text, in the order of the publication."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def number(row: Row, column: str) -> float | None:
    """A value of a row; None where the publication has none."""
    text = row.get(column, "")
    return float(text) if text else None


@lru_cache
def notes(name: str) -> tuple[str, ...]:
    """Known inconsistencies of what the publication says in a table or figure ("table2", "figure4")."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^- \[([^\]]+)\] (.+)$", text, re.MULTILINE)
    return tuple(note for names, note in found if name in names.split(", "))


def hyperparameters(model: str, task: str) -> dict[str, float] | None:
    """Table 5 as decoder settings."""
    for row in rows("table5_hyperparameters"):
        if (row["model"], row["task"]) == (model, task):
            return _settings(row, k=int(row["branches"]))
    return None


def system_settings(setting: str) -> dict[str, float]:
    """A row of table 6 (S1 to S18) as decoder settings; BPn is n rows a call, so k = n - 1."""
    row = next(row for row in rows("table6_settings") if row["setting"] == setting)
    return _settings(row, k=int(row["bp_size"]) - 1) | {"gen_length": int(row["seq_len"])}


def _settings(row: Row, k: int) -> dict[str, float]:
    return {
        "k": k,
        "block_size": int(row["block_size"]),
        "tau_add": float(row["tau_add"]),
        "tau_act": float(row["tau_act"]),
        "tau_conf": float(row["tau_conf"]),
    }
