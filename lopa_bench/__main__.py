"""`python -m lopa_bench`: composes the configuration and starts the run. Heavy imports happen after validation."""

from __future__ import annotations

import os
import sys
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from lopa_bench.config import Config, register, validate
from lopa_bench.messages import explain

FULL_ERROR = "HYDRA_FULL_ERROR"


@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def job(settings: DictConfig) -> Any:
    """One run of one resolved configuration."""
    config = OmegaConf.to_object(settings)
    assert isinstance(config, Config)
    validate(config)
    from lopa_bench.run import run

    resolved: Any = OmegaConf.to_container(settings, resolve=True)
    return run(config, resolved)


def main() -> None:
    """Runs the job and turns wrong settings and wrong data into one message and exit status 2."""
    OmegaConf.register_new_resolver("lopa_token", lambda: os.urandom(2).hex(), use_cache=True)
    register()
    verbose = os.environ.get(FULL_ERROR) == "1"
    os.environ[FULL_ERROR] = "1"  # so that Hydra hands its errors over instead of printing them
    try:
        job()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        message = explain(error)
        if verbose or message is None:
            raise
        print(message, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
