"""Prompts of question-and-answer tasks, and the two ways to draw few-shot examples."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from tasks.types import Prompt, TaskError

LM_EVAL_FEWSHOT_SEED = 1234
QUESTION = "{question}"  # its place in a frame


@dataclass(frozen=True)
class Shot:
    """A solved example. `id` tells which row of the train split it is."""

    id: str
    question: str
    answer: str


def completion_prompt(question: str, shots: Sequence[Shot], frame: str) -> Prompt:
    """Shots and question as one text, laid out as lm_eval does; `frame` is e.g. "Q: {question}\\nA:".

    The question is inserted, not formatted, since problems and frames hold other braces.
    """
    blocks = [frame.replace(QUESTION, shot.question) + " " + shot.answer for shot in shots]
    return Prompt("\n\n".join([*blocks, frame.replace(QUESTION, question)]))


def chat_prompt(question: str, shots: Sequence[Shot], frame: str, shot_frame: str | None = None) -> Prompt:
    """Each shot as a user and an assistant turn (lm_eval's --apply_chat_template --fewshot_as_multiturn)."""
    messages = []
    for shot in shots:
        messages.append({"role": "user", "content": (shot_frame or frame).replace(QUESTION, shot.question)})
        messages.append({"role": "assistant", "content": shot.answer})
    messages.append({"role": "user", "content": frame.replace(QUESTION, question)})
    return Prompt(completion_prompt(question, shots, frame).text, tuple(messages))


def turn_prompt(question: str, shots: Sequence[Shot], frame: str, system: str | None = None) -> Prompt:
    """Shots and question in one user turn (lm_eval's --apply_chat_template alone), a system turn before it if told."""
    prompt = completion_prompt(question, shots, frame)
    turns = [{"role": "system", "content": system}] if system is not None else []
    return Prompt(prompt.text, (*turns, {"role": "user", "content": prompt.text}))


@dataclass(frozen=True)
class Style:
    """How a publication or a harness puts a question.

    `layout`: "text", plain text; "turn", all of it in one user turn; "turns", each shot as two turns. `shots`: its own
    examples, None for drawn ones. `shot_frame`: that of the examples, if it is another one. `system`: a system turn.
    """

    frame: str
    stop: tuple[str, ...]
    layout: str = "text"
    shots: tuple[Shot, ...] | None = None
    shot_frame: str | None = None
    system: str | None = None

    def prompt(self, question: str, shots: Sequence[Shot]) -> Prompt:
        if self.layout == "turn":
            return turn_prompt(question, shots, self.frame, self.system)
        if self.layout == "turns":
            return chat_prompt(question, shots, self.frame, self.shot_frame)
        return completion_prompt(question, shots, self.frame)

    def number_of_shots(self, asked: int | None, name: str) -> int:
        """Of a style with examples of its own. Raises TaskError for more than it has."""
        most = len(self.shots or ())
        if asked is not None and asked > most:
            raise TaskError(f"task.shots={asked}: task.prompt_style={name} has {most} fixed examples")
        return most if asked is None else asked


# The ways to ask for a boxed answer in one turn (`{question}` is replaced, so braces stand as they are).
BOXED = "{question}\nPlease reason step by step, and put your final answer within \\boxed{}."
KLASS_SYSTEM = (
    "Your task is to answer the question below. Give step by step reasoning before you answer, and when you're ready "
    "to answer, please use the format 'The final answer is'."
)
# Diffulex writes the chat markup of SDAR and LLaDA2 out (diffulex_bench/tasks, github.com/SJTU-DENG-Lab/Diffulex, MIT).
MBD_SDAR = "<|im_start|>user\n" + BOXED + "<|im_end|>\n<|im_start|>assistant\n"
LLADA2_TURN = (
    "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>{turn}<|role_end|><role>ASSISTANT</role>"
)
MBD_LLADA2 = LLADA2_TURN.replace("{turn}", "{question}\nLet's think step by step\n")


def asked_without_examples(boxed_in_v2: str, v2_stop: tuple[str, ...]) -> dict[str, Style]:
    """The zero-shot styles that GSM8K and MATH share; `boxed_in_v2` is how Fast-dLLM v2 rewrites lm_eval's prompt."""
    return {
        "boxed": Style(BOXED, (), "turn", ()),
        "fast_dllm_v2": Style(boxed_in_v2, v2_stop, "turn", ()),
        "klass": Style(QUESTION, (), "turn", (), system=KLASS_SYSTEM),
        "mbd_sdar": Style(MBD_SDAR, ("<|im_end|>", "</s>"), "text", ()),
        "mbd_llada2": Style(MBD_LLADA2, ("<|role_end|>", "</s>"), "text", ()),
    }


def keyed_draw(key: str, pool: Sequence[Shot], count: int, excluded: Container[str]) -> list[Shot]:
    """Draws `count` examples with a generator seeded by `key` (the question).

    Nothing but the key and the pool decides, so neither the order of the problems, nor a shard, nor the number of
    processes changes a prompt. Rows whose question is in `excluded` (the problems themselves) are passed over.
    """
    rng = random.Random(hashlib.sha256(key.encode()).digest())
    drawn: list[Shot] = []
    for index in permutation(len(pool), rng):
        if len(drawn) == count:
            break
        if pool[index].question not in excluded:
            drawn.append(pool[index])
    if len(drawn) < count:
        raise TaskError(f"task.shots={count}, but only {len(drawn)} of {len(pool)} train rows are no test problems")
    return drawn


def permutation(size: int, rng: random.Random) -> Iterator[int]:
    """`rng.sample(range(size), size)`, drawn only as far as it is read."""
    left = list(range(size))
    for last in range(size - 1, -1, -1):
        place = rng.randrange(last + 1)
        yield left[place]
        left[place] = left[last]


def lm_eval_draws(train_rows: int, count: int) -> Iterator[list[int]]:
    """The train rows that one lm_eval 0.4.8 process draws for its first, second, ... problem.

    All draws come from one generator (source: lm_eval/api/samplers.py, ContextSampler.sample), so they depend on how
    many problems the process had before: of `world` processes each starts a generator anew and takes every world-th row
    (lm_eval/api/task.py, doc_iterator), so that rank 1 of 8 gives row 1 the examples that a single process gives row 0.
    """
    rng = random.Random(LM_EVAL_FEWSHOT_SEED)
    while True:
        yield rng.sample(range(train_rows), count)
