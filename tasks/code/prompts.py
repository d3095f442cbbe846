"""The prompt styles of the code tasks, with the stop strings that belong to each.

Facts about the styles of others (docs/scoring.md has the sources): lm_eval 0.4.8, the scripts of LoPA, those of
DiffuCoder, and evalplus 0.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.code.mbpp_shots import SHOTS
from tasks.types import Prompt, TaskError


@dataclass(frozen=True)
class Style:
    """`open_fence`: the prompt ends inside a code block, which the completion is to close."""

    stop: tuple[str, ...] = ()
    shots: int = 0
    open_fence: bool = False


EVALPLUS_STOP = ("<|endoftext|>", "<|endofmask|>", "</s>", "\nif __name__", "\ndef main(", "\nprint(")
EVALPLUS_BASE_STOP = {
    "humaneval": ("\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert "),
    "mbpp": ('\n"""', "\nassert"),
}
LM_EVAL_HUMANEVAL_STOP = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")

MBPP_STYLES = {
    "question": Style(),
    "lm_eval": Style(("[DONE]",), shots=3),
    "lm_eval_turn": Style(("[DONE]",), shots=3),
    "lopa": Style(("[DONE]",), shots=3),
    "diffucoder": Style(("```",), open_fence=True),
    "evalplus": Style((*EVALPLUS_STOP, "\n```\n"), open_fence=True),
    "evalplus_base": Style((*EVALPLUS_STOP, *EVALPLUS_BASE_STOP["mbpp"])),
    "lm_eval_instruct": Style(shots=3, open_fence=True),
    "opencompass": Style(shots=3),
    "opencompass_fence": Style(),
    "klass": Style(),
}
HUMANEVAL_STYLES = {
    "question": Style(),
    "lm_eval": Style(LM_EVAL_HUMANEVAL_STOP),
    "lopa": Style(),  # its scripts take the stop strings away (escape_until=true)
    "diffucoder": Style(("```",), open_fence=True),
    "evalplus": Style((*EVALPLUS_STOP, "\n```\n"), open_fence=True),
    "evalplus_base": Style((*EVALPLUS_STOP, *EVALPLUS_BASE_STOP["humaneval"])),
    "lm_eval_instruct": Style(LM_EVAL_HUMANEVAL_STOP, open_fence=True),
    "opencompass": Style(),
    "opencompass_read": Style(),
    "klass": Style(),
    "d3llm": Style(),
    "mbd_llada2": Style(("<|role_end|>", "</s>")),
}

LM_EVAL_MBPP = (
    "You are an expert Python programmer, and here is your task: {text} Your code should pass these tests:\n\n"
    "{tests}\n[BEGIN]\n"
)
DIFFUCODER = (
    "<|im_start|>system\nYou are an intelligent programming assistant to produce Python algorithmic solutions"
    "<|im_end|>\n<|im_start|>user\nCan you complete the following Python function?\n```python\n{code}\n```\n"
    "<|im_end|>\n<|im_start|>assistant\n```python\n"
)
EVALPLUS_USER = (
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:\n"
    "```\n{code}\n```\n"
)
EVALPLUS_ASSISTANT = (
    "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:\n"
    "```python\n"
)


def question(text: str) -> Prompt:
    """The bare question as a chat message."""
    return Prompt(text, ({"role": "user", "content": text},))


def code_style(style: str, code: str) -> Prompt:
    """The styles that show the problem as code: a signature with docstring, or a docstring with a test (MBPP+)."""
    code = code.strip()
    if style == "diffucoder":
        return Prompt(DIFFUCODER.replace("{code}", code))
    if style == "evalplus_base":
        return Prompt(code + "\n")
    # The last message is the beginning of the answer: the model goes on with it.
    user = {"role": "user", "content": EVALPLUS_USER.replace("{code}", code)}
    return Prompt(code + "\n", (user, {"role": "assistant", "content": EVALPLUS_ASSISTANT}))


def lm_eval_mbpp(text: str, tests: Sequence[str], shots: int, layout: str) -> Prompt:
    """Examples and question as one "text"; in one "turn" (--apply_chat_template) or as "turns" (and
    --fewshot_as_multiturn).
    """
    turns: list[dict[str, str]] = []
    for shot in SHOTS[:shots]:
        turns.append({"role": "user", "content": _mbpp_question(shot["text"], shot["test_list"])})
        turns.append({"role": "assistant", "content": shot["code"] + "\n[DONE]"})
    turns.append({"role": "user", "content": _mbpp_question(text, tests)})
    pairs = ["".join(turn["content"] for turn in turns[start : start + 2]) for start in range(0, len(turns), 2)]
    whole = "\n\n".join(pairs)
    messages = {"text": None, "turn": ({"role": "user", "content": whole},), "turns": tuple(turns)}
    return Prompt(whole, messages[layout])


def _mbpp_question(text: str, tests: Sequence[str]) -> str:
    """lm_eval shows exactly three tests, however many there are."""
    return LM_EVAL_MBPP.replace("{tests}", "\n".join(tests[:3])).replace("{text}", text)


def mbpp_text(row: Mapping[str, Any]) -> str:
    """The question of a row: `text` in the full set, `prompt` in the sanitized set and in MBPP+'s OriginFmt."""
    return row["text"] if "text" in row else mbpp_docstring(row).partition("\nassert")[0]


def mbpp_docstring(row: Mapping[str, Any]) -> str:
    """The question and its first test, as evalplus shows MBPP problems inside a docstring."""
    if "base_input" in row:
        return row["prompt"].strip().strip('"').strip()
    text = row["text"] if "text" in row else row["prompt"]
    return f"{text.strip()}\n{row['test_list'][0]}"


def auto_style(kind: str) -> str:
    """The bare question for the embedded sets, which the embedded models know; lm_eval's prompt for others."""
    return "question" if kind == "embedded" else "lm_eval"


def number_of_shots(style: Style, name: str, asked: int | None) -> int:
    """These tasks have a fixed list of examples, and most styles have none."""
    if asked is not None and asked > style.shots:
        raise TaskError(f"task.shots={asked}: task.prompt_style={name} has {style.shots} fixed examples")
    return style.shots if asked is None else asked
