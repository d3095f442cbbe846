"""Processes that something else started, all with one command line: torchrun, accelerate, srun, a Slurm array.

Each may be a worker of one run: the first that takes the run's lock leads it, the others find it by its key and join
(joining.py). Nobody waits for a number of them: a task of an array may start hours after the others.

Where a decode takes several ranks, a task of Slurm starts those of its worker itself. A launcher that counts processes
by WORLD_SIZE counts ranks: so many as one decode takes are the ranks of one decode; of several times as many, the first
of each group is a worker that starts its ranks itself, and the others have nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lopa_bench.backends.ranks.place import placed
from lopa_bench.errors import ConfigError
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config


@dataclass(frozen=True)
class Rank:
    """`number` among all of them, `local` among the workers of this machine."""

    launcher: str
    number: int
    local: int
    is_spread: bool  # over several machines, maybe
    is_spare: bool = False  # another process starts the ranks of its worker

    def __str__(self) -> str:
        return f"{self.launcher} {self.number}"


def rank_of(environment: Mapping[str, str], config: Config, is_alone: bool) -> Rank | None:
    """What the environment says this process is; None for a process like any other. `is_alone`: no job of a sweep.

    Raises ConfigError for settings that cannot be shared in this way.
    """
    rank = _found(environment)
    backend = config.backend
    if rank is None or not isinstance(backend, LocalSettings):
        return None
    if not is_alone:
        if rank.launcher == "array task":  # the jobs of a launcher's array are those of the sweep
            return None
        raise ConfigError(f"{rank} would make a whole sweep beside the others; allowed: one process with -m")
    if config.run.devices is not None:
        raise ConfigError(
            f"run.devices={config.run.devices} is not allowed as {rank}, one of several processes; allowed: null"
        )
    if backend.ranks > 1 and rank.launcher == "rank":
        if placed(backend.branch_ranks, backend.tensor_ranks, environment):
            return None  # the ranks of one decode
        rank = _of_group(rank, environment, backend.ranks)
    if backend.prefix_reuse == "approximate":
        raise ConfigError(f"backend.prefix_reuse=approximate is not allowed as {rank}: rows depend on who decoded what")
    if not config.resume:
        raise ConfigError(
            f"resume=false is not allowed as {rank}: each process would begin a run of its own; allowed: "
            "another run.out"
        )
    return rank


def _of_group(rank: Rank, environment: Mapping[str, str], size: int) -> Rank:
    """A worker for each `size` processes, all on one machine."""
    here = environment.get("LOCAL_WORLD_SIZE", "")
    if here and int(here) % size:
        raise ConfigError(
            f"LOCAL_WORLD_SIZE={here} processes were started on this machine for workers of {size} ranks each; "
            f"allowed: a multiple of {size} on each machine ({size} in all share a decode over machines)"
        )
    return replace(rank, local=rank.local // size, is_spare=rank.number % size > 0)


def _found(environment: Mapping[str, str]) -> Rank | None:
    def number(name: str, default: int | None = None) -> int:
        text = environment.get(name, "")
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdecimal()):
            raise ConfigError(f"the environment variable {name}={text} is not allowed; allowed: numbers from 0")
        return int(text)

    if environment.get("RANK") and environment.get("WORLD_SIZE"):
        world = number("WORLD_SIZE")
        if world > 1:
            return Rank("rank", number("RANK"), number("LOCAL_RANK", 0), number("LOCAL_WORLD_SIZE", 0) != world)
    if environment.get("SLURM_STEP_ID") and environment.get("SLURM_PROCID"):  # a batch script has no step
        tasks = number("SLURM_STEP_NUM_TASKS", number("SLURM_NTASKS", 1))
        if tasks > 1:
            is_spread = number("SLURM_STEP_NUM_NODES", number("SLURM_JOB_NUM_NODES", 2)) > 1
            return Rank("srun task", number("SLURM_PROCID"), number("SLURM_LOCALID", 0), is_spread)
    if environment.get("SLURM_ARRAY_TASK_ID"):
        first, last = number("SLURM_ARRAY_TASK_MIN", 0), number("SLURM_ARRAY_TASK_MAX", 0)
        if number("SLURM_ARRAY_TASK_COUNT", last - first + 1) > 1:
            return Rank("array task", number("SLURM_ARRAY_TASK_ID"), 0, True)
    return None
