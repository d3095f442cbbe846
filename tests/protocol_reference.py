"""Records the prompts that the reference harnesses build, for tests/golden/protocol_prompts.json.

    HF_HUB_OFFLINE=1 PYTHONPATH=FOLDER python -m tests.protocol_reference

FOLDER holds lm_eval 0.4.9.2 and opencompass 0.5.4 (`pip install --no-deps --target FOLDER lm-eval==0.4.9.2
opencompass==0.5.4 antlr4-python3-runtime==4.11.0`, and what of theirs is missing). What neither can build is told here
a second time, as its publication's program does it, apart from the task that it checks. The rows are the first three of
each benchmark; the rows for examples are a train split of eight.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from tests.benchmark_files import GSM8K_TEST, GSM8K_TRAIN, HUMANEVAL, MATH500, MBPP, MBPP_SANITIZED, ROOT

GOLDEN = ROOT / "tests" / "golden" / "protocol_prompts.json"
Messages = list[dict[str, str]]


def rows() -> dict[str, list[dict[str, Any]]]:
    """Three rows of each benchmark, and eight for examples."""
    from tasks.sources.files import read_rows

    def first(path: Path, count: int, start: int = 0) -> list[dict[str, Any]]:
        return [dict(row) for row in read_rows(path, path.name)[0][start : start + count]]

    keep = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
    return {
        "gsm8k": first(GSM8K_TEST, 3),
        "gsm8k_train": first(GSM8K_TRAIN, 8),
        "math500": first(MATH500, 3),
        "humaneval": [{name: row[name] for name in keep} for row in first(HUMANEVAL, 3)],
        "mbpp": first(MBPP, 3, start=10),
        "mbpp_sanitized": first(MBPP_SANITIZED, 3, start=20),
    }


# --- lm_eval

LM_EVAL = {  # key: its task file, the rows, examples, and whether a template is applied to one turn or to several
    "lm_eval gsm8k": ("gsm8k/gsm8k.yaml", "gsm8k", 5, None),
    "lm_eval gsm8k, one turn": ("gsm8k/gsm8k.yaml", "gsm8k", 5, "turn"),
    "lm_eval gsm8k, 4 examples in turns": ("gsm8k/gsm8k.yaml", "gsm8k", 4, "turns"),
    "lm_eval gsm8k_cot": ("gsm8k/gsm8k-cot.yaml", "gsm8k", 8, None),
    "lm_eval gsm8k_cot, no example, in turns": ("gsm8k/gsm8k-cot.yaml", "gsm8k", 0, "turns"),
    "lm_eval gsm8k_cot_zeroshot": ("gsm8k/gsm8k-cot-zeroshot.yaml", "gsm8k", 0, None),
    "lm_eval gsm8k_cot_zeroshot, one turn": ("gsm8k/gsm8k-cot-zeroshot.yaml", "gsm8k", 0, "turn"),
    "lm_eval minerva_math": ("minerva_math/minerva_math_algebra.yaml", "math500", 4, None),
    "lm_eval minerva_math, one turn": ("minerva_math/minerva_math_algebra.yaml", "math500", 4, "turn"),
    "lm_eval minerva_math, no example": ("minerva_math/minerva_math_algebra.yaml", "math500", 0, "turns"),
    "lm_eval humaneval": ("humaneval/humaneval.yaml", "humaneval", 0, None),
    "lm_eval humaneval_instruct": ("humaneval/humaneval_instruct.yaml", "humaneval", 0, "turn"),
    "lm_eval mbpp": ("mbpp/mbpp.yaml", "mbpp", 3, None),
    "lm_eval mbpp, one turn": ("mbpp/mbpp.yaml", "mbpp", 3, "turn"),
    "lm_eval mbpp, in turns": ("mbpp/mbpp.yaml", "mbpp", 3, "turns"),
    "lm_eval mbpp_instruct": ("mbpp/mbpp_instruct.yaml", "mbpp", 3, "turn"),
}


def of_lm_eval(data: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, list[str]]]:
    for name in ("evaluate", "sacrebleu", "rouge_score"):  # loaded by metrics that no prompt needs
        sys.modules[name] = MagicMock()
    sys.modules["evaluate"].load.return_value.compute.return_value = [{"pass@1": 1.0}]
    import lm_eval.tasks
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.utils import load_yaml_config

    root = Path(lm_eval.tasks.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.jsonl" for name in data}
        for name, path in files.items():
            path.write_text("".join(json.dumps(row) + "\n" for row in data[name]))
        for key, (file, name, shots, layout) in LM_EVAL.items():
            config = load_yaml_config(str(root / file))
            splits = {"test": str(files[name]), "train": str(files["gsm8k_train" if name == "gsm8k" else name])}
            config |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": splits}}
            config.pop("process_docs", None)  # of golds
            if name != "gsm8k":
                config.pop("training_split", None)
            task = ConfigurableTask(config=config)
            task.set_fewshot_seed(1234)
            how: dict[str, Any] = {"gen_prefix": None}
            if layout is not None:
                how = {
                    "apply_chat_template": True,
                    "fewshot_as_multiturn": layout == "turns",
                    "chat_template": lambda turns, add_generation_prompt=True: json.dumps(turns),
                }
            found = []
            for doc in task.eval_docs:
                how["gen_prefix"] = task.doc_to_prefix(doc)
                found.append(task.fewshot_context(doc, shots, **how))
            yield key, [json.dumps(json.loads(text)) if layout else text for text in found]
            if key == "lm_eval gsm8k":  # its program for LLaDA puts lm_eval's text into one turn by itself
                yield "Fast-dLLM gsm8k", [json.dumps([{"role": "user", "content": text}]) for text in found]


# --- OpenCompass: its templates put the fields of a row in place of {field} and leave other braces alone

OPENCOMPASS = {
    "opencompass gsm8k_gen_1d7fe4": ("gsm8k/gsm8k_gen_1d7fe4.py", "gsm8k"),
    "opencompass gsm8k_0shot_v2_gen_17d799": ("gsm8k/gsm8k_0shot_v2_gen_17d799.py", "gsm8k"),
    "opencompass math_gen_265cce": ("math/math_gen_265cce.py", "math500"),
    "opencompass math_prm800k_500_0shot_cot_gen": ("math/math_prm800k_500_0shot_cot_gen.py", "math500"),
    "opencompass humaneval_gen_8e312c": ("humaneval/humaneval_gen_8e312c.py", "humaneval"),
    "opencompass humaneval_openai_sample_evals": ("humaneval/humaneval_openai_sample_evals_gen_dcae0e.py", "humaneval"),
    "opencompass mbpp_gen_830460": ("mbpp/mbpp_gen_830460.py", "mbpp"),
    "opencompass sanitized_mbpp_mdblock": ("mbpp/sanitized_mbpp_mdblock_0shot_nocot_gen_a2e416.py", "mbpp_sanitized"),
}
ROLES = {"HUMAN": "user", "BOT": "assistant"}


def of_opencompass(data: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, list[str]]]:
    folder = next(Path(p) / "opencompass" for p in sys.path if (Path(p) / "opencompass").is_dir())
    for key, (file, name) in OPENCOMPASS.items():
        tree = ast.parse((folder / "configs" / "datasets" / file).read_text())
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        turns = [{word.arg: word.value for word in call.keywords} for call in calls]
        parts = [
            {"role": ROLES[ast.literal_eval(turn["role"])], "content": ast.literal_eval(turn["prompt"])}
            for turn in turns
            if {"role", "prompt"} == set(turn)
        ]
        yield (
            key,
            [json.dumps([part | {"content": _filled(part["content"], row)} for part in parts]) for row in data[name]],
        )


def _filled(text: str, row: dict[str, Any]) -> str:
    fields = row | {"text": row.get("text", row.get("prompt"))}
    for name, value in fields.items():
        text = text.replace("{" + name + "}", "\n".join(value) if name == "test_list" else str(value))
    return text


# --- what publications' own programs build, read in them


def told(data: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, list[str]]]:
    system = (
        "Your task is to answer the question below. Give step by step reasoning before you answer, and when you're "
        "ready to answer, please use the format 'The final answer is'."
    )

    def each(name: str, build: Callable[[Any], str | Messages]) -> list[str]:
        found = [build(row[asked[name]] if name in asked else row) for row in data[name]]
        return [one if isinstance(one, str) else json.dumps(one) for one in found]

    def user(text: str, before: str | None = None) -> Messages:
        turns = [] if before is None else [{"role": "system", "content": before}]
        return [*turns, {"role": "user", "content": text}]

    def sdar(question: str) -> str:
        boxed = "Please reason step by step, and put your final answer within \\boxed{}."
        return f"<|im_start|>user\n{question}\n{boxed}<|im_end|>\n<|im_start|>assistant\n"

    def llada2(turn: str) -> str:
        system = "<role>SYSTEM</role>detailed thinking off<|role_end|>"
        return f"{system}<role>HUMAN</role>{turn}<|role_end|><role>ASSISTANT</role>"

    boxed_v2 = "Please reason step by step, and put your final answer within \\boxed{{}}."
    asked = {"gsm8k": "question", "math500": "problem"}
    for task in asked:
        yield f"KLASS {task}", each(task, lambda question: user(question, system))
        yield f"Diffulex sdar {task}", each(task, sdar)
        yield f"Diffulex llada2 {task}", each(task, lambda question: llada2(f"{question}\nLet's think step by step\n"))
    yield "Fast-dLLM v2 gsm8k", each("gsm8k", lambda question: user(f"Question: {question}\n{boxed_v2}"))
    yield "Fast-dLLM v2 math500", each("math500", lambda problem: user(f"Problem:\n{problem}\n\n{boxed_v2}"))
    yield "KLASS humaneval", each("humaneval", lambda row: user(row["prompt"], "You complete only Python code."))
    yield (
        "KLASS mbpp",
        each(
            "mbpp_sanitized",
            lambda row: user(
                f"You are an expert Python programmer, and here is your task: {row['prompt']} Your code should pass "
                f"these tests:\n\n{row['test_list']}\n[BEGIN]"
            ),
        ),
    )
    yield (
        "Diffulex llada2 humaneval",
        each(
            "humaneval",
            lambda row: llada2(
                "Write a solution to the following problem and make sure that it passes the tests:\n"
                f"```python\n{row['prompt']}\n```\n\nPlease enclose your code within delimiters as follows:\n"
                "```python\n# YOUR CODE HERE\n```\n\n"
            ),
        ),
    )
    begin = "Write a solution to the following problem and make sure that it passes the tests:\n```python\n"
    yield "d3LLM humaneval", each("humaneval", lambda row: user(begin + row["prompt"] + "\n```\n "))
    yield "dInfer gsm8k_llada", each("gsm8k", lambda question: user(_dinfer(question)))


def _dinfer(question: str) -> str:
    """lm_eval's layout over the four examples of evaluations/tasks/gsm8k/gsm8k-llada.yaml, which are OpenCompass' but
    for two asterisks that are lost; each answer ends with a line end.
    """
    folder = next(Path(p) / "opencompass" for p in sys.path if (Path(p) / "opencompass").is_dir())
    source = (folder / "configs" / "datasets" / "gsm8k" / "gsm8k_gen_1d7fe4.py").read_text()
    turns = [ast.literal_eval(text) for text in re.findall(r"dict\(role='\w+', prompt=(.*)\),\n", source)]
    text = ""
    for ask, answer in zip(turns[:8:2], turns[1:8:2], strict=True):
        text += ask + " " + answer.replace("2/5*", "2/5") + "\n\n"
    return text + f"Question: {question}\nLet's think step by step\nAnswer:"


def main() -> None:
    data = rows()
    prompts = {}
    for source in (of_lm_eval, of_opencompass, told):
        for key, texts in source(data):
            same = (len(set(letters)) == 1 for letters in zip(*texts))
            common = texts[0][: sum(takewhile(bool, same))]
            prompts[key] = {"common": common, "rest": [text[len(common) :] for text in texts]}
    GOLDEN.write_text(json.dumps({"rows": data, "prompts": prompts}, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(prompts)} prompts of 3 problems in {GOLDEN} ({GOLDEN.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
