"""From a composed configuration to its run, in this process."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from lopa_bench.plan.configured import configured
from lopa_bench.settings.config import Config

if TYPE_CHECKING:
    from lopa_bench.models.kept import KeptNetwork
    from lopa_bench.records.runs import Run


def run_here(settings: DictConfig, is_alone: bool = False, kept: KeptNetwork | None = None) -> Run:
    """One run of one configuration, alone or as a job of a sweep. It is judged before anything heavy is imported.
    `kept`: where its network is taken from, if an earlier run left it there, and stays for the next.
    """
    from lopa_bench.run.workers.launched import rank_of

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    config = OmegaConf.to_object(settings)
    assert isinstance(config, Config)
    resolved: Any = OmegaConf.to_container(settings, resolve=True)
    judged = configured(config, resolved, is_alone)
    rank = rank_of(os.environ, config, is_alone)
    from lopa_bench.run.runner import run

    return run(*judged, rank, kept)
