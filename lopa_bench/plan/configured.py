"""A composed configuration, judged. Nothing heavy is imported, and nothing loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lopa_bench.settings.config import Config
from lopa_bench.settings.validate import Validated


def configured(
    config: Config, resolved: Mapping[str, Any], is_alone: bool = False
) -> tuple[Config, Mapping[str, Any], Validated]:
    """A configuration, the same as plain data, and what it comes to. `is_alone`: it is no job of a sweep.

    Raises ConfigError, BackendError, DecoderError or TaskError.
    """
    from lopa_bench.plan.users_code import distrust_bytecode, targets
    from lopa_bench.settings.unread import check_read, check_read_alone
    from lopa_bench.settings.validate import validate
    from lopa_bench.system.libraries import check_libraries

    if any(targets(resolved)):
        distrust_bytecode()
    valid = validate(config)
    check_read(config)
    if is_alone:
        check_read_alone(config)
    check_libraries()
    return config, resolved, valid
