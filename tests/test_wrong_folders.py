"""A damaged or mistaken checkpoint folder, of every family: one sentence that names the file, and no network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.check import check_model
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.settings.model import ModelSettings
from tests.warm import Warm

MODELS = Path(__file__).parent / "golden" / "models"
FAMILIES = ["dream_a", "llada_a", "sdar_a", "fdv2_a", "llada2_a", "sdar_moe_a", "llada_moe_a"]
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456789\n"


class Folder:
    """A copy of a good checkpoint, and ways to spoil it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = load_file(path / SINGLE)
        self.config = json.loads((path / "config.json").read_text())
        self.matrix = next(name for name, value in self.tensors.items() if len(set(value.shape)) == 2)

    def save(self, **changes: Tensor | None) -> None:
        changed: dict[str, Tensor | None] = {**self.tensors, **changes}
        save_file({name: value for name, value in changed.items() if value is not None}, self.path / SINGLE)

    def set(self, **changes: Any) -> None:
        (self.path / "config.json").write_text(json.dumps(self.config | changes))

    def key(self, name: str) -> str:
        """What this family calls a size."""
        theirs = {"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
        return name if name in self.config else theirs[name]

    def split(self, index: Callable[[dict[str, str]], Any] = lambda index: index, twice: str | None = None) -> None:
        """Two parts; the index is what `index` makes of it, and the tensor `twice` is in both."""
        names = sorted(self.tensors)
        halves = {part: set(names[i::2]) | ({twice} if twice else set()) for i, part in enumerate(PARTS)}
        for part, half in halves.items():
            save_file({name: self.tensors[name] for name in half}, self.path / part)
        where = {name: part for part, half in halves.items() for name in half}
        (self.path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index(where)}))
        (self.path / SINGLE).unlink()

    def cut(self, size: int) -> None:
        data = (self.path / SINGLE).read_bytes()
        (self.path / SINGLE).write_bytes(data[:size])

    def other(self, where: dict[str, str]) -> dict[str, str]:
        return {**where, self.matrix: next(part for part in PARTS if part != where[self.matrix])}


def missing_part(it: Folder) -> None:
    it.split()
    (it.path / PARTS[1]).unlink()


def pickle_alone(it: Folder) -> None:
    (it.path / SINGLE).rename(it.path / "pytorch_model.bin")


def a_folder_in_its_place(it: Folder) -> None:
    (it.path / SINGLE).unlink()
    (it.path / SINGLE).mkdir()


def with_nan(it: Folder) -> None:
    weight = it.tensors[it.matrix].clone()
    weight[-1, -1] = torch.nan
    it.save(**{it.matrix: weight})


def damaged_header(it: Folder) -> None:
    data = bytearray((it.path / SINGLE).read_bytes())
    data[8:12] = b"\xff\xfe{{"
    (it.path / SINGLE).write_bytes(data)


WRONG: dict[str, tuple[Callable[[Folder], Any], str]] = {
    "a part is missing": (missing_part, "names missing model-00002-of-00002"),
    "an index that is none": (lambda it: it.split(lambda where: []), r"weight_map=\[\]"),
    "an index that names another file": (
        lambda it: it.split(it.other),
        r"says that .* is in model-0000.*, and .* has it",
    ),
    "an index that names a tensor of no file": (lambda it: it.split(lambda w: w | {"odd": PARTS[0]}), "no part has it"),
    "an index that reaches elsewhere": (
        lambda it: it.split(lambda w: w | {"odd": "../a.safetensors"}),
        "of this folder",
    ),
    "a tensor in two parts": (lambda it: it.split(twice=it.matrix), "which another part has as well"),
    "a renamed tensor": (
        lambda it: it.save(**{it.matrix: None, "odd": it.tensors[it.matrix]}),
        "missing: .*extra: odd",
    ),
    "an extra tensor": (lambda it: it.save(odd=torch.zeros(2)), "extra: odd"),
    "a transposed matrix": (lambda it: it.save(**{it.matrix: it.tensors[it.matrix].T.contiguous()}), "misshapen"),
    "a matrix as a vector": (lambda it: it.save(**{it.matrix: it.tensors[it.matrix].flatten()}), "misshapen"),
    "quantised numbers": (
        lambda it: it.save(**{it.matrix: it.tensors[it.matrix].to(torch.int8)}),
        "quantised: .* int8",
    ),
    "NaN": (with_nan, "is damaged: NaN or infinite"),
    "a file that is cut short": (lambda it: it.cut(-100), "not a readable safetensors file"),
    "a header that is cut short": (lambda it: it.cut(100), "not a readable safetensors file"),
    "an empty file": (lambda it: it.cut(0), "not a readable safetensors file"),
    "a damaged header": (damaged_header, "not a readable safetensors file"),
    "a pointer of Git LFS": (lambda it: (it.path / SINGLE).write_text(POINTER), "is a pointer of Git LFS"),
    "a folder in the place of the file": (a_folder_in_its_place, "cannot be read"),
    "pickles alone": (pickle_alone, r"no weights: .*pytorch_model\.bin"),
    "no weights": (lambda it: (it.path / SINGLE).unlink(), "no weights"),
    "an adapter beside it": (lambda it: (it.path / "adapter_config.json").write_text("{}"), "an adapter's folder"),
    "no config.json": (lambda it: (it.path / "config.json").unlink(), r"config\.json is missing"),
    "config.json is a list": (lambda it: (it.path / "config.json").write_text("[]"), "allowed: a JSON object"),
    "config.json is a pointer": (lambda it: (it.path / "config.json").write_text(POINTER), "not valid JSON"),
    "another model_type": (lambda it: it.set(model_type="gpt2"), "model_type 'gpt2' is not supported"),
    "no model_type": (lambda it: it.set(model_type=None), "model_type None is not supported"),
    "yarn": (lambda it: it.set(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "rope_scaling: rope_type"),
    "linear positions": (lambda it: it.set(rope_scaling={"type": "linear", "factor": 2.0}), "rope_scaling: type"),
    "two rotary bases": (lambda it: it.set(rope_parameters={"rope_theta": 7.0}), "contradict each other"),
    "a mask outside the vocabulary": (lambda it: it.set(mask_token_id=97), "mask_token_id=97"),
    "an end outside the vocabulary": (lambda it: it.set(eos_token_id=[94, 97]), r"eos_token_id=\[94, 97\]"),
    "a mask that is the end": (lambda it: it.set(mask_token_id=96, eos_token_id=96), "eos_token_id=96"),
    "a larger vocabulary": (lambda it: it.set(vocab_size=98, embedding_size=None), "misshapen"),
    "a layer too many": (lambda it: it.set(**{it.key("num_hidden_layers"): 4}), "missing|moe_layer_freq"),
    "a layer too few": (lambda it: it.set(**{it.key("num_hidden_layers"): 1}), "extra|moe_layer_freq"),
    "heads that share unevenly": (lambda it: it.set(**{it.key("num_attention_heads"): 5}), "a multiple|a divisor|mis"),
    "weights of bits": (lambda it: it.set(quantization_config={"quant_method": "awq"}), "quantization_config"),
    "a key that nobody knows": (lambda it: it.set(something_new=0.5), "something_new=0.5 is not understood"),
    "another activation": (lambda it: it.set(hidden_act="gelu", activation_type="gelu"), '="gelu"'),
}


def judge_and_load(folder: Path) -> None:
    """What a run does with a folder."""
    check_model(ModelSettings(path=str(folder)))
    load_model(folder, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_folder_is_one_sentence(fault: str, family: str, tmp_path: Path) -> None:
    spoil, said = WRONG[fault]
    spoil(Folder(shutil.copytree(MODELS / family, tmp_path / "model")))
    with pytest.raises(CheckpointError, match=said) as caught:
        judge_and_load(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_folder_that_was_spoiled_is_a_good_one(family: str, tmp_path: Path) -> None:
    folder = Folder(shutil.copytree(MODELS / family, tmp_path / "model"))
    folder.split()
    judge_and_load(folder.path)


def test_a_run_on_a_wrong_folder_ends_with_status_2(tiny_model: Path, tmp_path: Path, warm: Warm) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / SINGLE).write_text(POINTER)
    done = warm.start(
        "model=dream", f"model.path={folder}", "task.source=embedded", "task.limit=1", cwd=tmp_path
    ).wait()
    said = f"error: {folder / SINGLE} is a pointer of Git LFS, not the weights; allowed: what git lfs pull gets\n"
    assert (done.code, done.out, done.err) == (2, "", said)
