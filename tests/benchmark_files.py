"""Where the original benchmark files lie, for the tests that need one whole (marked `data`).

The folder is `LOPA_BENCH_DATA`, else `shared/data` beside the project; docs/scoring.md says where the files come from.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMED = os.environ.get("LOPA_BENCH_DATA")
FOLDER = Path(NAMED) if NAMED else ROOT.parent / "shared" / "data"

GSM8K_TEST, GSM8K_TRAIN = FOLDER / "gsm8k" / "test.jsonl", FOLDER / "gsm8k" / "train.jsonl"
MATH500 = FOLDER / "math500" / "test.jsonl"
HUMANEVAL = FOLDER / "humaneval" / "HumanEval.jsonl.gz"
HUMANEVAL_PLUS = FOLDER / "humaneval_plus" / "HumanEvalPlus.jsonl.gz"
HUMANEVAL_PLUS_MINI = FOLDER / "humaneval_plus" / "HumanEvalPlus-Mini.jsonl.gz"
HUMANEVAL_PLUS_ORIGIN = FOLDER / "humaneval_plus" / "HumanEvalPlus-OriginFmt.jsonl.gz"
MBPP, MBPP_SANITIZED = FOLDER / "mbpp" / "mbpp.jsonl", FOLDER / "mbpp" / "sanitized-mbpp.json"
MBPP_PLUS = FOLDER / "mbpp_plus" / "MbppPlus.jsonl.gz"
MBPP_PLUS_ORIGIN = FOLDER / "mbpp_plus" / "MbppPlus-OriginFmt.jsonl.gz"
ALL = (
    GSM8K_TEST, GSM8K_TRAIN, MATH500, HUMANEVAL, HUMANEVAL_PLUS, HUMANEVAL_PLUS_MINI, HUMANEVAL_PLUS_ORIGIN, MBPP,
    MBPP_SANITIZED, MBPP_PLUS, MBPP_PLUS_ORIGIN,
)  # fmt: skip


def missing() -> list[str]:
    """The benchmark files that are not there."""
    return [str(path.relative_to(FOLDER)) for path in ALL if not path.is_file()]


def golden_prompts(key: str) -> list[dict[str, Any]]:
    """Prompts as lm_eval builds them (tests/golden/README.md), e.g. those of `gsm8k-k5-rank0of1`."""
    return json.loads((ROOT / "tests" / "golden" / "prompts.json").read_text())[key]
