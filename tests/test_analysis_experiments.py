"""Every file of conf/experiment composes, is valid, and says what the article says."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from analysis import published
from analysis.figures.ablations import ABLATIONS
from analysis.figures.registry import FIGURES
from decoders import make_decoder
from decoders.config import settings
from lopa_bench.config import Config, validate
from lopa_bench.entry import prepare

FOLDER = Path(__file__).parents[1] / "conf" / "experiment"
FILES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))
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
    return config, settings(make_decoder(config.decoder).config)


@pytest.mark.parametrize("name", FILES)
def test_every_experiment_composes_and_is_valid(name: str) -> None:
    if name == "search_tpf" and importlib.util.find_spec("hydra_plugins") is None:
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


def test_every_ablation_names_a_figure_that_reads_it() -> None:
    for path in sorted((FOLDER / "ablation").glob("*.yaml")):
        read_by = path.read_text(encoding="utf-8").partition("Read by ")[2].partition(".")[0]
        names = {name.strip(" \n#").split(";")[0] for name in read_by.split(",")}
        assert names, path
        assert names <= set(FIGURES), path
    assert {spec.name for spec in ABLATIONS} <= {path.stem for path in (FOLDER / "ablation").glob("*.yaml")}
