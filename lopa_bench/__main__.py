"""`python -m lopa_bench`, also installed as `lopa-bench`: runs, sweeps, and the commands `ls`, `show` and `send`."""

from __future__ import annotations

import os
import sys

from lopa_bench.console.numbers import plain_lines
from lopa_bench.system import streams

FULL_ERROR = "HYDRA_FULL_ERROR"


def main() -> None:
    """Ends with the exit status that --help promises; wrong settings and wrong data are one message."""
    streams.secure()
    from lopa_bench.settings.arguments import COMMANDS, check

    if sys.argv[1:] == ["--version"]:
        from lopa_bench.system.environment import version_line

        print(version_line())
        return
    if not sys.argv[1:]:
        sys.argv.append("--help")
    if sys.argv[1] in COMMANDS:
        if sys.argv[1] == "send":
            from lopa_bench.tracking.send import command
        else:
            from lopa_bench.console.listing import command
        code = command(sys.argv[1:])
        _warn_of_lost_output()
        sys.exit(code)
    from lopa_bench import entry
    from lopa_bench.console.overview import asked_group, group_overview
    from lopa_bench.sweep import multirun as sweep
    from lopa_bench.system.signals import Exited, exit_code, stop_on_signals

    entry.prepare()
    stop_on_signals()
    verbose = os.environ.get(FULL_ERROR) == "1"
    os.environ[FULL_ERROR] = "1"  # so that Hydra hands its errors over instead of printing them
    code = 0
    try:
        if group := asked_group(sys.argv[1:]):
            print(plain_lines(group_overview(group, sys.argv[1:])))
        else:
            check(sys.argv[1:])
            entry.main()
    except KeyboardInterrupt as stop:
        code = exit_code(stop)
    except Exited as end:
        print(f"error: {end}; the run is not complete", file=sys.stderr)
        code = end.exit_code
    except Exception as error:
        from lopa_bench.console.explain import explain

        message = explain(error)
        if verbose or message is None:
            sweep.conclude()
            raise
        print(plain_lines(message), file=sys.stderr)
        code = getattr(error, "exit_code", 2)
    failed = sweep.conclude()
    _warn_of_lost_output()
    sys.exit(code or failed)


def _warn_of_lost_output() -> None:
    """Numbers that could not be printed are on disk all the same. Who closes a pipe has seen what they wanted."""
    lost = streams.failure(sys.stdout)
    if lost is not None and not isinstance(lost, BrokenPipeError):
        print(f"warning: stdout could not be written ({lost.strerror}); lopa-bench ls has the runs", file=sys.stderr)


if __name__ == "__main__":
    main()
