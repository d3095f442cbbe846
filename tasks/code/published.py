"""How publications and other harnesses put a programming problem in turns (docs/protocols.md).

Sources: lm_eval 0.4.9 (MIT) humaneval_instruct and mbpp_instruct; OpenCompass (Apache-2.0) humaneval_gen_8e312c,
humaneval_openai_sample_evals_gen_dcae0e, mbpp_gen_830460 and sanitized_mbpp_mdblock_0shot_nocot_gen_a2e416; KLASS
(src/llada_evaluation.py, MIT); Diffulex (humaneval_dinfer_dmax_chat, MIT); d3LLM (utils_LLaDA/eval_llada.py,
Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.code.mbpp_shots import SHOTS
from tasks.prompts import LLADA2_TURN
from tasks.types import Prompt

CODE, TEXT, TESTS = "{code}", "{text}", "{tests}"  # their places

HUMANEVAL_TURNS = {
    "lm_eval_instruct": "Write a solution to the following problem and make sure that it passes the tests:\n"
    "```python\n{code}\n```\n",
    "opencompass": "Complete the following python code:\n{code}",
    "opencompass_read": "Read the following function signature and docstring, and fully implement the function "
    "described. Your response should only contain the code for this function.\n{code}",
    "klass": CODE,
    "d3llm": "Write a solution to the following problem and make sure that it passes the tests:\n"
    "```python\n{code}\n```\n ",
    "mbd_llada2": "Write a solution to the following problem and make sure that it passes the tests:\n"
    "```python\n{code}\n```\n\nPlease enclose your code within delimiters as follows:\n"
    "```python\n# YOUR CODE HERE\n```\n\n",
}
HUMANEVAL_BEGINS = "Here is the completed function:\n```python\n{code}\n"  # lm_eval_instruct goes on behind it
KLASS_SYSTEM = "You complete only Python code."

MBPP_TURNS = {
    "lm_eval_instruct": "You are an expert Python programmer, and here is your task:\n{text}\n"
    "Your code should pass these tests:\n{tests}",
    "opencompass": "You are an expert Python programmer, and here is your task: {text} "
    "Your code should pass these tests:\n\n {tests}  \n",
    "opencompass_fence": "You are an expert Python programmer, and here is your task:\n{text}\n"
    "Your code should pass these tests:\n\n{tests}\n You should submit your final solution in the following format: "
    "```python\n\n```",
    "klass": "You are an expert Python programmer, and here is your task: {text} "
    "Your code should pass these tests:\n\n{tests}\n[BEGIN]",
}
MBPP_BEGINS = "\n```python\n"


def humaneval_turns(style: str, code: str) -> Prompt:
    """A function to complete; `code` is the row's `prompt`."""
    turn = HUMANEVAL_TURNS[style].replace(CODE, code)
    if style == "mbd_llada2":
        return Prompt(LLADA2_TURN.replace("{turn}", turn))
    messages = [_user(turn)]
    if style == "klass":
        messages.insert(0, {"role": "system", "content": KLASS_SYSTEM})
    if style == "lm_eval_instruct":
        messages.append(_assistant(HUMANEVAL_BEGINS.replace(CODE, code)))
    return Prompt(turn, tuple(messages))


def mbpp_turns(style: str, text: str, tests: Sequence[str], shots: int) -> Prompt:
    """A function to write, behind `shots` of the three examples."""
    if style == "lm_eval_instruct":
        return _lm_eval_instruct(text, tests, shots)
    if style == "opencompass":
        return _opencompass(text, tests, shots)
    listed = str(list(tests)) if style == "klass" else "\n".join(tests)
    turn = MBPP_TURNS[style].replace(TESTS, listed).replace(TEXT, text)
    return Prompt(turn, (_user(turn),))


def _lm_eval_instruct(text: str, tests: Sequence[str], shots: int) -> Prompt:
    """Examples and question in one turn, as --apply_chat_template alone has them; it shows exactly three tests."""

    def turn(text: str, tests: Sequence[str]) -> str:
        return MBPP_TURNS["lm_eval_instruct"].replace(TESTS, "\n".join(tests[:3])).replace(TEXT, text)

    examples = [turn(shot["text"], shot["test_list"]) + f"{MBPP_BEGINS} {shot['code']}\n```" for shot in SHOTS[:shots]]
    whole = "\n\n".join([*examples, turn(text, tests)])
    return Prompt(whole, (_user(whole), _assistant(MBPP_BEGINS)))


def _opencompass(text: str, tests: Sequence[str], shots: int) -> Prompt:
    """Its examples have their programs in quotes, and a space behind each test but the first of all."""
    messages = []
    for shot in SHOTS[:shots]:
        lines = [test.rstrip() + " \n" for test in shot["test_list"]]
        if shot is SHOTS[0]:
            lines[0] = lines[0].replace(" \n", "\n")
        listed = "".join(lines)
        turn = MBPP_TURNS["opencompass"].replace("{tests}  \n", listed).replace(TEXT, shot["text"])
        messages += [_user(turn), _assistant(f"[BEGIN]\n '{shot['code'].rstrip()}' \n[DONE] \n\n ")]
    turn = MBPP_TURNS["opencompass"].replace(TESTS, "\n".join(tests)).replace(TEXT, text)
    messages += [_user(turn), _assistant("[BEGIN]\n")]
    return Prompt(turn, tuple(messages))


def unquoted(completion: str) -> str:
    """The program of an answer in the manner of OpenCompass' MBPP examples: `[BEGIN] 'program' [DONE]`."""
    text = completion.partition("[DONE]")[0]
    told = text.lstrip().removeprefix("[BEGIN]")
    if told.lstrip().startswith("'") and not told.lstrip().startswith("'''"):
        return told.lstrip()[1:].rstrip().removesuffix("'")
    return told if told != text.lstrip() else text


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}
