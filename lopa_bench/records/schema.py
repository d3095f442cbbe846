"""The columns of a run: one explicit, versioned schema, independent of the values that a run happens to hold.

The columns are plain text here, so that importing this module costs nothing; `schema()` gives Arrow types.
A trailing "?" marks a column that may be null. Changes are additive: a new column is nullable and raises
SCHEMA_VERSION, no column is renamed, retyped or dropped, so that every file ever written can still be read.
Units and formulas: docs/metrics.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lopa_bench.errors import RecordError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 5

SERVER_ERRORS = ("timeout", "server_error", "unreachable", "refused", "invalid_reply", "empty")
ERROR_REASONS = ("prompt_too_long", "non_finite", "error", *SERVER_ERRORS)  # counted, but in no ratio
FINISH_REASONS = ("eos", "stop", "length", "other", *ERROR_REASONS)
NOT_SCORED = "not_scored"  # the score status of a decoded sample whose verdict is still to come
RUN_STATUSES = ("running", "finished", "interrupted", "failed")
JOB_STATUSES = (
    "finished", "failed", "out_of_memory", "exited", "vanished", "killed", "interrupted", "refused", "skipped",
    "not_started", "running",
)  # fmt: skip

_SAMPLES = """
run_id str              problem_id str          problem_index int64     sample_index int64
prompt_tokens int64?    window_tokens int64?    eos_tokens int64?       content_tokens int64?
rounds int64?           forwards int64?         rows int64?             tokens_processed int64?
prefill_s float64?      decode_s float64?       total_s float64?        finish_reason str
peak_memory_bytes int64?                        energy_j float64?
prompt str              completion str          answer_text str         extracted str?
gold str                correct bool?           scorer str              score_status str
score_details json      stop list<str>          token_ids list<int32>   token_source str
batch int64             approximate bool        error str?
wall_s float64?         seed int64?             concurrency int64?      cached_tokens int64?
attempts int64?         sent_s float64?         server_s float64?       ttft_s float64?
itl_s list<float32>?    machine str?            branch_ranks int64?     edits int64?
workers int64?
"""

_STEPS = """
run_id str              problem_id str          sample_index int64      step int32
window_start int32      window_width int32      branches int32          winner int32
winner_score float32?   anchor_score float32?   scores list<float32>
lookahead_positions list<int32>                 lookahead_tokens list<int32>
positions list<int32>   tokens list<int32>      probs list<float32>
masks_left int32        cached int32            tokens_processed int64  seconds float64?
lookahead_counts list<int32>?                   fresh_probs list<float32>?
bonus list<float32>?    gain list<float32>?     base_fills list<int32>?
taken_positions list<int32>?                    taken_tokens list<int32>?
taken_probs list<float32>?                      readout_bytes int64?    commit_bytes int64?
edit_positions list<int32>?                      edit_old list<int32>?   edit_new list<int32>?
"""

_RUN = """
run_id str              version str             schema_version int64    status str
created str             finished str?           task str                scorer str
source_kind str         source_name str         source_sha256 str       source_rows int64
source_revision str?    model str               model_path str?         model_sha256 str?
model_is_toy bool       decoder str             base str?               k str?
attention str?          backend str             device str              dtype str
seed int64              limit int64?            batch int64             config json
versions json           host json               git_revision str?       argv list<str>
n int64?                errors int64?           aggregates json?
accuracy float64?       tpf float64?            tps float64?            latency_s float64?
key str?                union_key str?          identity json?          shard str?
samples int64?
"""

_JOBS = """
job int64               status str              overrides list<str>     seconds float64?
folder str              run_id str?             path str?               error str?
exit_code int64?        signal int64?           started str?
n int64?                accuracy float64?       tpf float64?            tps float64?
"""


def _columns(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


COLUMNS: dict[str, dict[str, str]] = {
    "samples": _columns(_SAMPLES),
    "steps": _columns(_STEPS),
    "run": _columns(_RUN),
    "jobs": _columns(_JOBS),
}

ALLOWED: dict[tuple[str, str], tuple[str, ...]] = {
    ("samples", "finish_reason"): FINISH_REASONS,
    ("run", "status"): RUN_STATUSES,
    ("jobs", "status"): JOB_STATUSES,
}


@lru_cache
def schema(table: str) -> pa.Schema:
    """Arrow schema of `table` ("samples", "steps", "run" or "jobs"), with its version in the metadata."""
    import pyarrow as pa

    types = {
        "str": pa.string(),
        "json": pa.string(),
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "list<str>": pa.list_(pa.string()),
        "list<int32>": pa.list_(pa.int32()),
        "list<float32>": pa.list_(pa.float32()),
    }
    fields = [
        pa.field(name, types[kind.rstrip("?")], nullable=kind.endswith("?")) for name, kind in COLUMNS[table].items()
    ]
    return pa.schema(fields, {"lopa_bench.table": table, "lopa_bench.schema_version": str(SCHEMA_VERSION)})


def layout(table: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of `table`, or of some of its columns."""
    import pyarrow as pa

    whole = schema(table)
    return whole if columns is None else pa.schema([whole.field(name) for name in columns], whole.metadata)


def to_table(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table. Unknown names (a typo would lose a column) and missing values are errors."""
    import pyarrow as pa

    columns = _columns_of(table, list(rows))
    arrays = []
    for field in schema(table):
        kind, values = COLUMNS[table][field.name].rstrip("?"), columns[field.name]
        if kind in ("str", "json", "list<str>"):
            values = [_cell(kind, value) for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema(table))


def to_json(value: Any) -> str:
    """One line of strict JSON: NaN and infinity become null, other objects (paths, enums) their text."""
    return json.dumps(_finite(value), allow_nan=False, default=str)


def storable(text: str) -> str:
    """Text that UTF-8 can hold. Tokenizers can emit half a character; `token_ids` stay lossless."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _columns_of(table: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of the rows by column, checked: names, values that must be there, values out of a list."""
    kinds = COLUMNS[table]
    if unknown := sorted(set().union(*rows) - kinds.keys()):
        raise RecordError(f"unknown columns in {table}: {', '.join(unknown)}; known: {', '.join(kinds)}")
    columns = {name: [row.get(name) for row in rows] for name in kinds}
    if missing := [name for name, kind in kinds.items() if not kind.endswith("?") and None in columns[name]]:
        raise RecordError(f"columns of {table} without a value: {', '.join(missing)}")
    for (owner, name), allowed in ALLOWED.items():
        wrong = [value for value in columns[name] if value not in allowed] if owner == table else []
        if wrong:
            raise RecordError(f"{name} is {wrong[0]!r}; allowed: {', '.join(allowed)}")
    return columns


def _cell(kind: str, value: Any) -> Any:
    """The value as Arrow takes it. A JSON column takes any object, or text that already is JSON."""
    if kind == "json" and value is not None and not isinstance(value, str):
        return to_json(value)
    if isinstance(value, str):
        return storable(value)
    if kind == "list<str>" and value is not None:
        return [storable(item) for item in value]
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):  # numpy scalars
        return _finite(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
