"""Each pack of conf/experiment/protocol decodes a random model of its family, and asks what the publication asked."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analysis.protocols.packs import NAMES, Pack, pack
from decoders import DecoderConfig, Vocabulary, decode, make_decoder
from tasks.base import Task
from tasks.code.mbpp import Mbpp
from tasks.code.published import unquoted
from tasks.gsm8k import opencompass
from tasks.registry import make_task
from tasks.types import TaskConfig
from tests.golden_cases import backend

GOLDEN = json.loads((Path(__file__).parent / "golden" / "protocol_prompts.json").read_text())
FILES = {
    "gsm8k": "test.jsonl", "gsm8k_train": "train.jsonl", "math500": "math500.jsonl", "humaneval": "humaneval.jsonl",
    "mbpp": "mbpp.jsonl", "mbpp_sanitized": "sanitized-mbpp.jsonl",
}  # fmt: skip
SANITIZED = ("sdar/mbpp", "klass/llada_mbpp", "klass/dream_mbpp")
# What builds the prompts of a task and style, with how many examples and how they are drawn.
REFERENCES = {
    ("gsm8k", "lm_eval", 5, "lm_eval"): "lm_eval gsm8k",
    ("gsm8k", "lm_eval_turn", 5, "lm_eval_twice"): "lm_eval gsm8k, one turn",
    ("gsm8k", "lm_eval_turn", 5, "lm_eval"): "Fast-dLLM gsm8k",
    ("gsm8k", "lm_eval_turns", 4, "lm_eval"): "lm_eval gsm8k, 4 examples in turns",
    ("gsm8k", "lm_eval_cot", 8, "keyed"): "lm_eval gsm8k_cot",
    ("gsm8k", "lm_eval_cot_turns", 0, "keyed"): "lm_eval gsm8k_cot, no example, in turns",
    ("gsm8k", "lm_eval_cot_zeroshot", 0, "keyed"): "lm_eval gsm8k_cot_zeroshot",
    ("gsm8k", "lm_eval_cot_zeroshot_turn", 0, "keyed"): "lm_eval gsm8k_cot_zeroshot, one turn",
    ("gsm8k", "opencompass", 4, "keyed"): "opencompass gsm8k_gen_1d7fe4",
    ("gsm8k", "boxed", 0, "keyed"): "opencompass gsm8k_0shot_v2_gen_17d799",
    ("gsm8k", "dinfer", 4, "keyed"): "dInfer gsm8k_llada",
    ("math", "lm_eval", 4, "keyed"): "lm_eval minerva_math",
    ("math", "lm_eval_turn", 4, "keyed"): "lm_eval minerva_math, one turn",
    ("math", "lm_eval_turns", 0, "keyed"): "lm_eval minerva_math, no example",
    ("math", "opencompass", 4, "keyed"): "opencompass math_gen_265cce",
    ("math", "boxed", 0, "keyed"): "opencompass math_prm800k_500_0shot_cot_gen",
    ("humaneval", "lm_eval", 0, "keyed"): "lm_eval humaneval",
    ("humaneval", "lopa", 0, "keyed"): "lm_eval humaneval",
    ("humaneval", "lm_eval_instruct", 0, "keyed"): "lm_eval humaneval_instruct",
    ("humaneval", "opencompass", 0, "keyed"): "opencompass humaneval_gen_8e312c",
    ("humaneval", "opencompass_read", 0, "keyed"): "opencompass humaneval_openai_sample_evals",
    ("mbpp", "lm_eval", 3, "keyed"): "lm_eval mbpp",
    ("mbpp", "lm_eval_turn", 3, "keyed"): "lm_eval mbpp, one turn",
    ("mbpp", "lopa", 3, "keyed"): "lm_eval mbpp, in turns",
    ("mbpp", "lm_eval_instruct", 3, "keyed"): "lm_eval mbpp_instruct",
    ("mbpp", "opencompass", 3, "keyed"): "opencompass mbpp_gen_830460",
    ("mbpp", "opencompass_fence", 0, "keyed"): "opencompass sanitized_mbpp_mdblock",
    ("humaneval", "klass", 0, "keyed"): "KLASS humaneval",
    ("humaneval", "d3llm", 0, "keyed"): "d3LLM humaneval",
    ("mbpp", "klass", 0, "keyed"): "KLASS mbpp",
    ("humaneval", "mbd_llada2", 0, "keyed"): "Diffulex llada2 humaneval",
    **{(kind, style, 0, "keyed"): f"{who} {task}"
       for style, who in (("klass", "KLASS"), ("mbd_sdar", "Diffulex sdar"), ("mbd_llada2", "Diffulex llada2"),
                          ("fast_dllm_v2", "Fast-dLLM v2"))
       for kind, task in (("gsm8k", "gsm8k"), ("math", "math500"))},
}  # fmt: skip
NETWORKS = {
    "llada": "llada_a", "dream": "dream_a", "fast_dllm_v2": "fdv2_a", "sdar": "sdar_a", "llada2_moe": "llada2_a",
    "llada_moe": "llada_moe_a",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows of each benchmark, and eight to draw examples from."""
    made = tmp_path_factory.mktemp("rows")
    for name, file in FILES.items():
        (made / file).write_text("".join(json.dumps(row) + "\n" for row in GOLDEN["rows"][name]))
    return made


@cache
def asked(folder: Path, task: str, file: str, style: str, shots: int, draw: str, scorer: str | None) -> Task:
    source = str(folder / FILES[file])
    return make_task(TaskConfig(task, None, source, None, None, shots, draw, style, None, scorer), False)


@pytest.mark.parametrize("name", NAMES)
def test_a_pack_asks_what_the_reference_harness_asks_byte_for_byte(name: str, folder: Path) -> None:
    settings = pack(name).task
    kind = settings["name"].removesuffix("500")
    how = settings["prompt_style"], settings["shots"], settings["shots_style"]
    file = {"math": "math500"}.get(kind, "mbpp_sanitized" if name in SANITIZED else kind)
    task = asked(folder, "math500" if kind == "math" else kind, file, *how, settings["scorer"])
    reference = GOLDEN["prompts"][REFERENCES[(kind, *how)]]
    for problem, rest in zip(task.problems, reference["rest"], strict=True):
        prompt = task.prompt(problem)
        said = prompt.text if prompt.messages is None else json.dumps(list(prompt.messages))
        assert said == reference["common"] + rest


def test_every_reference_prompt_is_one_of_a_pack() -> None:
    """None is left over, and no style is recorded that nobody asks for."""
    used = set()
    for name in NAMES:
        task = pack(name).task
        key = task["name"].removesuffix("500"), task["prompt_style"], task["shots"], task["shots_style"]
        used.add(REFERENCES[key])
    assert used == set(GOLDEN["prompts"])


def shrunk(one: Pack) -> DecoderConfig:
    """The decoder of a pack with two blocks of at most eight positions, one where it has one."""
    decoder = one.decoder
    block = min(8, decoder.block_size or 8)
    length = 8 if decoder.block_size in (None, decoder.gen_length) else 2 * block
    sizes: dict[str, Any] = {"gen_length": length, "block_size": None if decoder.block_size is None else block}
    sizes |= {"steps": decoder.steps and length, "sub_block_size": decoder.sub_block_size and 4}
    return make_decoder(replace(decoder, **sizes)).config


@pytest.mark.parametrize("name", NAMES)
def test_a_pack_decodes_a_random_model_of_its_family(name: str) -> None:
    config = shrunk(pack(name))
    local = backend(NETWORKS[pack(name).model["layout"]])
    vocab = Vocabulary(local.config.mask_id, local.config.end_ids, local.config.vocab_size)
    prompt = [token for token in range(12) if token not in (vocab.mask_id, *vocab.end_ids)][:9]
    outcome = local.decode(decode(make_decoder(config), prompt, vocab, seed=3))
    assert outcome.generation is not None, outcome.error
    assert 0 < len(outcome.generation.ids) <= config.gen_length
    assert outcome.generation.rows >= outcome.generation.forwards > 0


# --- scoring in the manner of OpenCompass


@pytest.mark.parametrize(
    ("completion", "number", "right"),
    [
        ("The answer is 1450", "1450", True), ("so 1450.0", "1450.0", True), ("1,450", "450", False),
        ("It is 1450.\nQuestion: and 7?", "1450", True), ("-1450", "-1450", False), ("none", None, False),
        ("", None, False), ("9" * 5000, "9" * 5000, False), ("1450\nThe answer is 3", "3", False),
    ],
)  # fmt: skip
def test_opencompass_takes_the_last_number_before_another_question(
    completion: str, number: str | None, right: bool
) -> None:
    assert opencompass.last_number(completion) == number
    assert opencompass.is_equal(number, "It is 1450.\n#### 1,450") == right


def test_the_opencompass_verdict_stands_in_the_row_when_it_is_asked_for(folder: Path) -> None:
    task = asked(folder, "gsm8k", "gsm8k", "opencompass", 4, "keyed", "opencompass")
    score = task.score(task.problems[0], f"She makes 9 * 2 = ${task.problems[0].gold}. The answer is 3")
    assert (score.correct, score.extracted, score.details["opencompass"]) == (False, "3", "3")
    assert "opencompass" not in asked(folder, "gsm8k", "gsm8k", "boxed", 0, "keyed", None).score(
        task.problems[0], "3"
    ).details  # fmt: skip


@pytest.mark.parametrize(
    "completion",
    [
        "[BEGIN]\n 'def f(x):\n  return x' \n[DONE] \n\n ",
        "'def f(x):\n  return x'\n[DONE] more",
        "def f(x):\n  return x",
    ],
)
def test_programs_in_the_quotes_of_opencompass_examples_are_found(completion: str, folder: Path) -> None:
    assert unquoted(completion) == "def f(x):\n  return x"
    task = asked(folder, "mbpp", "mbpp", "opencompass", 3, "keyed", None)
    assert isinstance(task, Mbpp)
    told = completion.replace("f(x)", "remove_Occ(s, ch)").replace("return x", "return s")
    assert task.extract(task.problems[0], told).program.strip() == "def remove_Occ(s, ch):\n  return s"


@pytest.mark.parametrize("completion", ["'''doc'''\nx = 1", "  x = 1", "", "it's", "[BEGIN]x"])
def test_what_is_in_no_such_quotes_is_left_as_it_is(completion: str) -> None:
    assert unquoted(completion) == completion.removeprefix("[BEGIN]")
