"""From a composed configuration to a run: in this process, or, in a sweep, in a process of its own."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lopa_bench import ROOT
from lopa_bench.console.overview import choices_overview, settings_overview
from lopa_bench.models.device import device_kinds, several
from lopa_bench.run.start import run_here
from lopa_bench.settings.arguments import with_devices
from lopa_bench.settings.config import register
from lopa_bench.sweep import entrants
from lopa_bench.system.signals import Exited


def prepare() -> None:
    """Makes the schema and the resolvers of conf/ known. To be called before `job`."""
    OmegaConf.register_new_resolver("lopa_token", lambda: os.urandom(4).hex(), use_cache=True, replace=True)
    OmegaConf.register_new_resolver("lopa_devices", lambda: ",".join(device_kinds()), replace=True)
    OmegaConf.register_new_resolver("lopa_several", several, replace=True)
    OmegaConf.register_new_resolver("lopa_choices", lambda: choices_overview(sys.argv[1:]), replace=True)
    OmegaConf.register_new_resolver("lopa_settings", settings_overview, replace=True)
    register()
    entrants.register()


failures: list[Exception] = []  # of the one job of this process


# By its place, not as a package: a folder `conf` where the command is started is the user's.
@hydra.main(version_base="1.3", config_path=str(ROOT / "conf"), config_name="config")
def job(settings: DictConfig) -> Any:
    """One job of Hydra: the run, or the process that runs it. What a sweep's job returns, the sweeper gets."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        from lopa_bench.sweep.jobs import supervise

        return supervise(settings)
    try:
        return run_here(settings, is_alone=True)
    except SystemExit as end:  # of a library or a task: Hydra's own come before the run
        traceback.print_exc()
        failures.append(Exited(end))
    except Exception as error:  # Hydra would print a line of its own and hide the cause
        failures.append(error)
    return None


def main() -> None:
    """Runs what the command line asks for. Raises what went wrong, in Hydra or in the run."""
    sys.argv[1:] = with_devices(sys.argv[1:])
    job()
    if failures:
        raise failures[0]
