"""From a composed configuration to its run, in this process."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from lopa_bench.settings.config import Config

if TYPE_CHECKING:
    from lopa_bench.records.runs import Run


def run_here(settings: DictConfig, is_alone: bool = False) -> Run:
    """One run of one configuration, alone or as a job of a sweep. It is judged before anything heavy is imported."""
    from lopa_bench.plan.users_code import distrust_bytecode, targets
    from lopa_bench.settings.unread import check_read, check_read_alone
    from lopa_bench.settings.validate import validate
    from lopa_bench.system.libraries import check_libraries

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    config = OmegaConf.to_object(settings)
    assert isinstance(config, Config)
    resolved: Any = OmegaConf.to_container(settings, resolve=True)
    if any(targets(resolved)):
        distrust_bytecode()
    valid = validate(config)
    check_read(config)
    if is_alone:
        check_read_alone(config)
    check_libraries()
    from lopa_bench.run.runner import run

    return run(config, resolved, valid)
