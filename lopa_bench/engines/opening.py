"""Which engine decodes a plan."""

from __future__ import annotations

import os
from typing import Any

from lopa_bench.engines.base import Engine
from lopa_bench.plan.plan import Plan
from lopa_bench.settings.backend import LocalSettings

# Read by torch as it is loaded: what breaks between ranks is told in one sentence, not in C++ traces.
QUIET = ("TORCH_CPP_LOG_LEVEL", "FATAL")


def open_engine(plan: Plan, run_folder: Any) -> Engine:
    """The engine for a plan's backend and decoder. Raises CheckpointError or BackendError."""
    if plan.config.backend.name != "local":
        from lopa_bench.engines.server import ServerEngine

        return ServerEngine(plan, run_folder)
    if plan.config.decoder.name == "ar":
        from lopa_bench.engines.autoregressive import AutoregressiveEngine

        return AutoregressiveEngine(plan)
    if plan.config.decoder.name == "diffusion_gemma":
        from lopa_bench.engines.autoregressive import DiffusionGemmaEngine

        return DiffusionGemmaEngine(plan)
    if _is_shared(plan):
        os.environ.setdefault(*QUIET)
        from lopa_bench.engines.ranked import RankedEngine

        return RankedEngine(plan)
    from lopa_bench.engines.masked import MaskedEngine

    return MaskedEngine(plan)


def followed(plan: Plan) -> bool:
    """Whether this process was launched as a further rank of a decode; it has then done its part."""
    if not (_is_shared(plan) and os.environ.get("RANK", "0") != "0"):
        return False
    os.environ.setdefault(*QUIET)
    from lopa_bench.engines.ranked import followed

    return followed(plan)


def dismiss(plan: Plan) -> None:
    """Tells ranks that were launched beside this one that there is nothing to decode."""
    if _is_shared(plan) and os.environ.get("WORLD_SIZE", "1") != "1":
        os.environ.setdefault(*QUIET)
        from lopa_bench.engines.ranked import dismiss

        dismiss(plan)


def _is_shared(plan: Plan) -> bool:
    return isinstance(plan.config.backend, LocalSettings) and plan.config.backend.ranks > 1
