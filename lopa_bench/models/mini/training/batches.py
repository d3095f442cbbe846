"""Problems as token rows, and batches of rows whose prompts have exactly the same length.

Prompts are never padded: decoding feeds the bare prompt from position 0, so training must see the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from lopa_bench.models.mini.architecture import BLOCK
from lopa_bench.models.mini.problems.problem import Problem
from lopa_bench.models.mini.tokenizer import END_ID, SEP_ID, number_ids

LONGEST_PROMPT = 112
LONGEST_ANSWER = 128
SMALLEST_GROUP = 8  # rarer shapes are dropped: they would make small, slow batches

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Example:
    """`number` marks the number tokens of an answer's arithmetic, `result` those right after an equals sign."""

    prompt: npt.NDArray[np.int16]
    answer: npt.NDArray[np.int16]
    number: Bools
    result: Bools


@dataclass(frozen=True)
class Rows:
    """B rows of P prompt tokens and N answer tokens; after its answer a row repeats the end token, as decoding does.

    `lengths` [B] are the answers' lengths with one end token; `number` and `result` are [B, N].
    """

    tokens: Ints
    prompt: int
    lengths: Ints
    number: Bools
    result: Bools

    @property
    def window(self) -> int:
        return self.tokens.shape[1] - self.prompt

    def resize(self, window: int) -> Rows:
        """Rows with another window: shorter, or longer by end tokens; no more rows than keep the number of tokens."""
        count = max(2, min(len(self.tokens), self.tokens.size // (self.prompt + window)))
        more = ((0, 0), (0, max(0, window - self.window)))
        end = self.prompt + window
        return Rows(
            np.pad(self.tokens[:count], more, constant_values=END_ID)[:, :end],
            self.prompt,
            np.minimum(self.lengths[:count], window),
            np.pad(self.number[:count], more)[:, :window],
            np.pad(self.result[:count], more)[:, :window],
        )


def encode(problems: Iterable[Problem], tokenizer: Tokenizer, rng: np.random.Generator) -> list[Example]:
    """Half of the completions go without <sep>, so that HumanEval's bare prompt can be fed with or without it."""
    problems = list(problems)
    questions = tokenizer.encode_batch([problem.question for problem in problems])
    answers = tokenizer.encode_batch([problem.answer for problem in problems])
    numbers, equals = number_ids(tokenizer), tokenizer.token_to_id("=")
    examples = []
    for problem, question, answer in zip(problems, questions, answers, strict=True):
        bare = problem.kind == "completion" and rng.random() < 0.5
        prompt = np.array(question.ids if bare else [*question.ids, SEP_ID], np.int16)
        ids = np.array([*answer.ids, END_ID], np.int16)
        number = np.isin(ids, numbers) if problem.facts else np.zeros(len(ids), np.bool_)
        result = number & np.concatenate([[False], ids[:-1] == equals])
        if len(prompt) <= LONGEST_PROMPT and len(ids) <= LONGEST_ANSWER:
            examples.append(Example(prompt, ids, number, result))
    return examples


class Batcher:
    """Draws batches of about `tokens_per_batch` tokens from examples grouped by prompt length and window."""

    def __init__(self, examples: list[Example], tokens_per_batch: int, rng: np.random.Generator):
        self.examples, self.tokens_per_batch, self.rng = examples, tokens_per_batch, rng
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, example in enumerate(examples):
            blocks = -(-len(example.answer) // BLOCK)
            if rng.random() < 0.3:  # a block of nothing but end tokens, as decoding may activate it
                blocks = min(blocks + 1, LONGEST_ANSWER // BLOCK)
            groups[len(example.prompt), blocks * BLOCK].append(index)
        self.shapes = [shape for shape, members in groups.items() if len(members) >= SMALLEST_GROUP]
        self.members = [rng.permutation(groups[shape]) for shape in self.shapes]
        self.next = [0] * len(self.shapes)
        size = np.array([len(m) * sum(shape) for m, shape in zip(self.members, self.shapes, strict=True)], float)
        self.chances = size / size.sum()

    def draw(self) -> Rows:
        """A batch from a group drawn by its share of tokens; a group is walked through in order, round and round."""
        group = int(self.rng.choice(len(self.shapes), p=self.chances))
        members, (prompt, window) = self.members[group], self.shapes[group]
        count = min(len(members), max(1, self.tokens_per_batch // (prompt + window)))
        chosen = np.take(members, range(self.next[group], self.next[group] + count), mode="wrap")
        self.next[group] = (self.next[group] + count) % len(members)
        return stack([self.examples[index] for index in chosen], prompt, window)


def stack(examples: list[Example], prompt: int, window: int) -> Rows:
    count = len(examples)
    tokens = np.full((count, prompt + window), END_ID, np.int64)
    number, result = np.zeros((count, window), np.bool_), np.zeros((count, window), np.bool_)
    for row, example in enumerate(examples):
        length = len(example.answer)
        tokens[row, :prompt] = example.prompt
        tokens[row, prompt : prompt + length] = example.answer
        number[row, :length], result[row, :length] = example.number, example.result
    lengths = np.array([len(example.answer) for example in examples])
    return Rows(tokens, prompt, lengths, number, result)
