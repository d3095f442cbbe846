"""The process of one job of a sweep: `python -m lopa_bench.sweep.child FOLDER OVERRIDE...`, as jobs.py starts it.

It runs the folder's settings.yaml and leaves its last words in outcome.json. A process that ends without them was
ended from outside or by os._exit.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lopa_bench.console.explain import explain
from lopa_bench.console.numbers import plain_lines
from lopa_bench.errors import Locked
from lopa_bench.records.schema import to_json
from lopa_bench.run.start import run_here
from lopa_bench.settings.config import structured
from lopa_bench.sweep.jobs import OUTCOME, SETTINGS
from lopa_bench.system.out_of_memory import is_out_of_memory
from lopa_bench.system.signals import die_with_parent, exit_code, status_of, stop_on_signals
from lopa_bench.system.storage import whole_file
from lopa_bench.system.streams import secure


def main() -> int:
    secure()
    die_with_parent()
    stop_on_signals()
    folder = Path(sys.argv[1])
    del sys.argv[1]  # the record shows the overrides
    loaded = OmegaConf.load(folder / SETTINGS)
    settings = OmegaConf.merge(structured(loaded.backend.name), loaded)
    try:
        result = run_here(settings)  # type: ignore[arg-type]  # a mapping merged into a mapping
    except SystemExit as end:
        outcome, code = _outcome("exited", f"sys.exit({end.code!r})"), status_of(end)
        traceback.print_exc()
    except KeyboardInterrupt as stop:
        outcome, code = _outcome("interrupted", None), exit_code(stop)
    except BaseException as error:
        outcome, code = _failure(error)
    else:
        outcome, code = _outcome("finished", None), 0
        outcome |= {"run_id": result.folder.name, "path": str(result.folder), "numbers": result.aggregates}
    with whole_file(folder / OUTCOME) as file:
        file.write(to_json(outcome).encode())
    return code


def _failure(error: BaseException) -> tuple[dict[str, Any], int]:
    message = explain(error)
    if message is not None:
        print(plain_lines(message), file=sys.stderr)
        return _outcome("refused" if isinstance(error, Locked) else "failed", message.removeprefix("error: ")), 2
    traceback.print_exc()
    status = "out_of_memory" if is_out_of_memory(error) else "failed"
    return _outcome(status, traceback.format_exception_only(error)[-1].strip().splitlines()[0]), 1


def _outcome(status: str, error: str | None) -> dict[str, Any]:
    return {"status": status, "error": error}


if __name__ == "__main__":
    sys.exit(main())
