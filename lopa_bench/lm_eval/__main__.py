"""`python -m lopa_bench.lm_eval`: lm-eval's own command line, with --model lopa_bench (docs/lm_eval.md)."""

from __future__ import annotations

import os
import sys

from lopa_bench.system import streams


def main() -> None:
    """Ends with lm-eval's exit status; 2 for wrong settings and data, which are one message."""
    streams.secure()
    from lopa_bench.console.explain import explain
    from lopa_bench.console.numbers import plain_lines
    from lopa_bench.system.signals import exit_code, stop_on_signals

    try:
        import lm_eval.__main__
        import lm_eval.evaluator

        from lopa_bench.lm_eval.model import LopaBench
        from lopa_bench.lm_eval.results import reporting
    except Exception as error:
        print(f"error: {_why_not(error)}", file=sys.stderr)
        sys.exit(2)
    stop_on_signals()
    LopaBench.reads_device = any(word.startswith(("--dev", "--config", "-C")) for word in sys.argv)
    lm_eval.evaluator.evaluate = reporting(lm_eval.evaluator.evaluate)
    try:
        lm_eval.__main__.cli_evaluate()
    except KeyboardInterrupt as stop:
        sys.exit(exit_code(stop))
    except Exception as error:
        message = explain(error, LopaBench.words)
        if message is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(plain_lines(message), file=sys.stderr)
        sys.exit(2)


def _why_not(error: Exception) -> str:
    """Why lm-eval cannot be imported. 0.4.9, .1 and .2 name a class that transformers 5 has no longer."""
    from importlib.metadata import PackageNotFoundError, version

    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    try:
        found = (
            f"lm-eval {version('lm-eval')} with transformers {version('transformers')} cannot be imported ({reason})"
        )
    except PackageNotFoundError:
        return f"lm-eval is not installed ({reason}); allowed: pip install 'lopa-bench[lm_eval]', 0.4.9 to 0.4.13"
    return f"{found}; allowed: lm-eval 0.4.10 to 0.4.13, or 0.4.9 to 0.4.9.2 with transformers 4"


if __name__ == "__main__":
    main()
