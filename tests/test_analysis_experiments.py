"""Every file of conf/experiment composes, is valid, and says what the article says."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from analysis.figures.ablations import ABLATIONS
from analysis.figures.registry import FIGURES
from analysis.protocols import packs
from analysis.study import Study
from analysis.tables import published
from decoders import resolve_settings
from decoders.config import ScoreConfig, settings
from lopa_bench.entry import prepare
from lopa_bench.settings.config import Config
from lopa_bench.settings.validate import validate
from lopa_bench.sweep.entrants import expected
from tasks.sources.taken import bounds
from tests.analysis_runs import simulate, write_run
from tests.extras import has_plugin

FOLDER = Path(__file__).parents[1] / "conf" / "experiment"
FILES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))
ONE_SETTING = {f"ablation_{spec.name}" for spec in ABLATIONS}
RELEASED = {"complete": "verify", "decode_tail": True, "mask_logit": "keep"}


@pytest.fixture(scope="module", autouse=True)
def hydra() -> Iterator[None]:
    prepare()
    with initialize_config_module("conf", version_base="1.3"):
        yield


@lru_cache
def composed(name: str) -> tuple[Config, dict[str, Any]]:
    """The configuration and its resolved decoder settings."""
    whole = compose("config", overrides=[f"+experiment={name}"], return_hydra_config=False)
    config = OmegaConf.to_object(whole)
    assert isinstance(config, Config)
    validate(config)
    return config, settings(resolve_settings(config.decoder))


@pytest.mark.parametrize("name", packs.NAMES)
def test_the_settings_that_a_table_compares_are_those_that_hydra_composes(name: str) -> None:
    config, decoder = composed(f"protocol/{name}")
    one = packs.pack(name)
    assert settings(one.decoder) == decoder
    for ours, theirs, names in (
        (one.model, asdict(config.model), packs.OF_THE_MODEL),
        (one.task, asdict(config.task), packs.OF_THE_TASK),
    ):
        assert {key: ours.get(key, packs.UNSET.get(key)) for key in names} == {key: theirs[key] for key in names}


@pytest.mark.parametrize("name", FILES)
def test_every_experiment_composes_and_is_valid(name: str) -> None:
    if name == "search_tpf" and not has_plugin("hydra_optuna_sweeper"):
        pytest.skip("the extra optuna is not installed")
    composed(name)


@pytest.mark.parametrize("file", ["table1_dream", "table2_diffucoder"])
def test_there_is_one_experiment_for_each_row_of_tables_1_and_2(file: str) -> None:
    for row in published.rows(file):
        stem = row["model"].lower().replace("-", "_")
        config, decoder = composed(f"{file[:6]}/{stem}_{row['decoding']}_{row['task']}")
        assert (config.task.name, config.model.name) == (row["task"], published.MODELS[row["model"]])
        assert (config.decoder.name == "lopa") == (row["decoding"] == "lopa")
        assert decoder["decode_tail"] is True
        wanted = published.hyperparameters(row["model"], row["task"])
        if wanted:
            names = wanted if row["decoding"] == "lopa" else wanted.keys() - {"k"}
            assert {name: decoder[name] for name in names} == {name: wanted[name] for name in names}


def test_there_is_one_experiment_for_each_row_of_table_6() -> None:
    for row in published.rows("table6_settings"):
        _, decoder = composed(f"table6/{row['setting'].lower()}")
        wanted = published.system_settings(row["setting"])
        assert {name: decoder[name] for name in wanted} == wanted
        assert {name: decoder[name] for name in RELEASED} == RELEASED


def test_there_is_one_experiment_for_each_row_of_table_4() -> None:
    for row in published.rows("table4_ablation"):
        model = published.MODELS[row["model"]]
        config, decoder = composed(f"table4/{model}_{row['setting'].lower()}_{row['task']}")
        assert (config.model.name, config.task.name, config.run.preset) == (model, row["task"], "lopa_dist")
        assert decoder == composed(f"table6/{row['setting'].lower()}")[1]


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("ablation/")])
def test_an_ablation_is_valid_in_all_its_jobs_and_read_by_the_figures_that_it_names(name: str, tmp_path: Path) -> None:
    """Runs with the settings of every job, then each figure: every value of the sweep must be on its axis."""
    jobs = _jobs(name)
    for index, overrides in enumerate(jobs):
        config = OmegaConf.to_object(compose("config", overrides=[f"+experiment={name}", *overrides]))
        assert isinstance(config, Config)
        validate(config)
        wanted = vars(config.decoder)
        write_run(tmp_path, f"run-{index:02}", wanted, simulate(6, wanted["k"], wanted["tau_conf"] or 0.9, seed=index))
    study = Study.of(tmp_path)
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").replace("\n#", "")
    read_by = re.search(r"Read by ([a-z0-9_, ]+)", text)
    assert read_by
    for figure_name in read_by[1].split(", "):
        figure = FIGURES[figure_name].draw(study)
        assert figure is not None, figure_name
        if figure_name in ONE_SETTING:
            assert len(figure.axes[0].get_xticks()) == len(jobs)
    assert len(jobs) == max(map(len, study.series(*_varied(jobs))))  # one series holds them all


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "arena/dream" else [pytest.mark.slow])
        for name in FILES
        if name.startswith("arena/")
    ],
)
def test_an_arena_is_valid_in_all_its_jobs_and_has_two_splits_without_a_common_problem(name: str) -> None:
    whole = compose("config", overrides=[f"+experiment={name}"], return_hydra_config=True)
    OmegaConf.set_readonly(whole.hydra, False)
    whole.hydra.overrides.task = [f"+experiment={name}"]
    splits: dict[tuple[int, int | None], list[list[str]]] = {}
    for job in expected(whole):
        rows = next(word.removeprefix("task.rows=") for word in job if word.startswith("task.rows="))
        splits.setdefault(bounds(rows), []).append([word for word in job if not word.startswith("task.rows=")])
    (first, last), (behind, _) = sorted(splits)
    assert first == 1
    assert last is not None
    assert last < behind
    assert splits[first, last] == splits[max(splits)]  # each decoder and setting on both
    decoders = []
    for job in splits[first, last]:
        config = OmegaConf.to_object(compose("config", overrides=job))
        assert isinstance(config, Config)
        validate(config)
        decoders.append(str(config.decoder))
    assert len(set(decoders)) == len(decoders)


def test_every_ablation_figure_has_a_sweep() -> None:
    assert ONE_SETTING | {"ablation_tau_conf"} <= set(FIGURES)
    assert {name.removeprefix("ablation_") for name in ONE_SETTING} <= {path.stem for path in FOLDER.glob("ablation/*")}


def _jobs(name: str) -> list[tuple[str, ...]]:
    """The overrides of each job of a sweep."""
    whole = compose("config", overrides=[f"+experiment={name}"], return_hydra_config=True)
    sweep = [f"{key}={value}" for key, value in whole.hydra.sweeper.params.items()]
    parsed = OverridesParser.create().parse_overrides(sweep)
    choices = [[f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()] for one in parsed]
    return list(itertools.product(*choices))


def _varied(jobs: list[tuple[str, ...]]) -> list[str]:
    """The settings that a sweep varies, and those that follow from them."""
    names = [override.partition("=")[0].removeprefix("decoder.") for override in jobs[0]]
    follow = {"tau_conf": ["tau_act"], "attention": ["cache"], "score": [f"score.{n}" for n in vars(ScoreConfig())]}
    return [one for name in names for one in ([name] if name != "score" else []) + follow.get(name, [])]
