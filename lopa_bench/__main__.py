"""`python -m lopa_bench`, also installed as `lopa-bench`: runs, sweeps, and the commands `ls` and `show`."""

from __future__ import annotations

import os
import sys

FULL_ERROR = "HYDRA_FULL_ERROR"
COMMANDS = ("ls", "show")


def main() -> None:
    """Ends with the exit status that --help promises; wrong settings and wrong data are one message."""
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        from lopa_bench.listing import command

        sys.exit(command(sys.argv[1:]))
    from lopa_bench import entry, sweep
    from lopa_bench.signals import exit_code, stop_on_signals

    entry.prepare()
    stop_on_signals()
    verbose = os.environ.get(FULL_ERROR) == "1"
    os.environ[FULL_ERROR] = "1"  # so that Hydra hands its errors over instead of printing them
    code = 0
    try:
        entry.main()
    except KeyboardInterrupt as stop:
        code = exit_code(stop)
    except Exception as error:
        from lopa_bench.messages import explain

        message = explain(error)
        if verbose or message is None:
            sweep.conclude()
            raise
        print(message, file=sys.stderr)
        code = 2
    failed = sweep.conclude()
    sys.exit(code or failed)


if __name__ == "__main__":
    main()
