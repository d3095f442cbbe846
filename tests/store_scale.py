"""Writes and reads back many synthetic samples through the store, in a process of its own whose memory is measured.

python -m tests.store_scale FOLDER [SAMPLES] [STEPS]     one JSON line: rows/s and peak memory
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from lopa_bench.records.reading import iter_samples, iter_steps
from lopa_bench.records.repair import read_back
from lopa_bench.records.writing import RunStore, compact
from tests.test_records import sample, step


def main(folder: Path, samples: int, steps: int) -> dict[str, Any]:
    rows = [step(index) for index in range(steps)]
    began = time.perf_counter()
    with RunStore(folder) as store:
        for index in range(samples):
            store.add(sample(index, token_ids=list(range(128)), completion="word " * 128, prompt="text " * 200), rows)
    written = time.perf_counter()
    compact(store, read_back(folder, "r"))
    compacted = time.perf_counter()
    read = sum(table.num_rows for table in iter_samples(folder)), sum(table.num_rows for table in iter_steps(folder))
    done = time.perf_counter()
    assert read == (samples, samples * steps)
    total = samples * (1 + steps)
    return {
        "rows": total,
        "written_per_s": round(total / (written - began)),
        "compacted_per_s": round(total / (compacted - written)),
        "read_per_s": round(total / (done - compacted)),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    folder, *sizes = sys.argv[1:]
    samples, steps = map(int, sizes or (20_000, 128))
    print(json.dumps(main(Path(folder), samples, steps)))
