"""docs/decoders.md says what the code does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from decoders import DecoderConfig, make_decoder
from tests.toy import fixed, run
from tests.worked_examples import EXAMPLES, render

PAGE = (Path(__file__).parents[1] / "docs" / "decoders.md").read_text()


def block(header: str) -> str:
    found = re.search(rf"```{re.escape(header)}\n(.*?)\n```", PAGE, re.DOTALL)
    assert found, f"docs/decoders.md has no block {header!r}"
    return found[1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name: str) -> None:
    """`python -m tests.worked_examples` prints the blocks anew."""
    assert block(f"text worked:{name}") == render(EXAMPLES[name])


def test_every_decoder_and_setting_is_described() -> None:
    from dataclasses import fields

    from decoders import BASES

    for name in [*BASES, "lopa"]:
        assert f"## {name}\n" in PAGE
    for field in fields(DecoderConfig):
        assert re.search(rf"\b{field.name}\b", PAGE), f"docs/decoders.md does not mention {field.name}"


def test_the_example_of_a_new_decoder_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's file and YAML, as they stand: alone, and as the base of lopa."""
    import yaml

    (tmp_path / "leftmost.py").write_text(block("python file:leftmost.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = yaml.safe_load(block("yaml file:conf/decoder/leftmost.yaml"))
    settings = {key: value for key, value in settings.items() if not str(value).startswith("${")}
    model = fixed([0.5, 0.5, 0.95, 0.5])
    alone = run(model, DecoderConfig(**settings, gen_length=4))
    assert [step.positions for step in alone.steps] == [(1, 3), (2,), (4,)]
    target = settings["target"]
    over = run(model, DecoderConfig(name="lopa", base="leftmost", target=target, k=1, gen_length=4))
    assert over.forwards < alone.forwards
    assert make_decoder(DecoderConfig(**settings, gen_length=4)).config.cache == "none"
    sys.modules.pop("leftmost")
