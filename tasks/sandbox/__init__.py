"""Runs programs that nobody trusts and says whether they pass their tests; docs/scoring.md tells how."""

from tasks.sandbox.runner import Limits, Verdict, run_job, run_jobs

__all__ = ["Limits", "Verdict", "run_job", "run_jobs"]
