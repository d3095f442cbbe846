"""Which engine decodes a plan."""

from __future__ import annotations

from typing import Any

from lopa_bench.engines.base import Engine
from lopa_bench.plan.plan import Plan


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
    from lopa_bench.engines.masked import MaskedEngine

    return MaskedEngine(plan)
