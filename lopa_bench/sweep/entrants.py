"""A sweep in which every entrant has a grid of its own: the jobs of one after those of another, not all combinations.

Hydra's own sweeper makes all combinations of its values, but a threshold of one decoder is no setting of another. Here
`hydra.sweeper.entrants` names decoders, each with its overrides as on a command line: values with commas are its grid.
`hydra.sweeper.params` and the command line hold for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from lopa_bench.errors import ConfigError

# Hydra knows plugins by name and takes only names in the package `hydra_plugins`, so this one has such a name.
TARGET = "hydra_plugins.lopa_bench.Entrants"
ALLOWED = "allowed: overrides as on a command line, such as 'decoder=fast_dllm decoder.tau_conf=0.9,0.8'"


class Entrants(Sweeper):
    """Launches the jobs of `jobs_of`, as Hydra's basic sweeper launches its own."""

    def __init__(self, params: Mapping[str, str] | None = None, entrants: Any = None) -> None:
        self.params, self.entrants = params or {}, entrants
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        assert self.launcher is not None
        assert self.config is not None
        jobs = jobs_of(self.entrants, _common(self.params, arguments))
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        self.validate_batch_is_legal(jobs)
        results = self.launcher.launch(jobs, initial_job_idx=0)
        for result in results:
            _ = result.return_value  # raises what the job raised
        return [results]


def register() -> None:
    """Makes the sweeper known to Hydra."""
    Plugins.instance().class_name_to_class[TARGET] = Entrants


def expected(config: DictConfig) -> list[list[str]]:
    """The overrides of each job of a sweep with this configuration. Raises ConfigError."""
    sweeper = config.hydra.sweeper
    return jobs_of(sweeper.entrants, _common(sweeper.params or {}, config.hydra.overrides.task))


def _common(params: Mapping[Any, Any] | DictConfig, arguments: Sequence[str]) -> list[Override]:
    """What holds for every entrant; the command line has the last word."""
    return OverridesParser.create().parse_overrides(
        [*(f"{name!s}={value!s}" for name, value in params.items()), *arguments]
    )


def jobs_of(entrants: Any, common: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job: for each entrant all combinations of its own values and the common ones.

    Raises ConfigError for entrants that are none, and for a common override that would replace an entrant's own.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    if not isinstance(entrants, Mapping | DictConfig) or not entrants:
        raise ConfigError(f"hydra.sweeper.entrants={entrants} holds no entrant; allowed: names with overrides")
    shared = {_name(one) for one in common}
    jobs: list[list[str]] = []
    for name, words in entrants.items():
        own = _parsed(str(name), words)
        for one in own:
            if _name(one) in shared:
                raise ConfigError(
                    f"{_name(one)} is set by hydra.sweeper.entrants.{name} and cannot be set for all entrants; "
                    f"allowed: an entrant of your own, '+hydra.sweeper.entrants.NAME=\"{_name(one)}=...\"'"
                )
        jobs += [job for batch in BasicSweeper.split_arguments([*own, *common], None) for job in batch]
    return jobs


def _parsed(name: str, words: Any) -> list[Override]:
    """The overrides of one entrant: a text with spaces between them, or a list."""
    found = words.split() if isinstance(words, str) else list(words) if isinstance(words, Sequence) else []
    if not found or not all(isinstance(word, str) and "=" in word for word in found):
        raise ConfigError(f"hydra.sweeper.entrants.{name}={words} is not allowed; {ALLOWED}")
    try:
        return OverridesParser.create().parse_overrides(found)
    except Exception as error:  # Hydra's own, of several types
        reason = str(error).split("\n")[0]
        raise ConfigError(f"hydra.sweeper.entrants.{name}={words} cannot be read ({reason}); {ALLOWED}") from error


def _name(override: Override) -> str:
    return str(override.get_key_element()).lstrip("+~")
