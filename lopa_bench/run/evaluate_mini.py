"""Accuracy and tokens per forward of the embedded models: `python -m lopa_bench.run.evaluate_mini`.

Uses the project's decoders, tasks and local backend, on the embedded sets. The autoregressive twin (a folder in
Qwen2's layout) is decoded greedily as `decoder=ar` does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from decoders import DecoderConfig, decode, make_decoder
from lopa_bench.backends.autoregressive import decode_text, load_causal
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.models.loaded import LoadedModel, load
from lopa_bench.models.mini.architecture import BLOCK
from lopa_bench.models.mini.training.batches import LONGEST_ANSWER
from lopa_bench.run.completion import complete
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings
from tasks.base import Task
from tasks.registry import make_task
from tasks.types import TaskConfig

WEIGHTS = Path(__file__).parents[1] / "models" / "mini" / "weights"
ATTENTIONS = ("block_causal", "full")
LOOKAHEADS = (1, 2, 4, 8, 14)
TASKS = ("gsm8k", "mbpp", "humaneval")
MAX_LENGTH = 512
TOGETHER = 16  # samples in one model call


@dataclass(frozen=True)
class Row:
    """One line of the table. `forwards` is a mean per problem; `tpf` is content tokens over forwards, summed."""

    task: str
    decoder: str
    attention: str
    accuracy: float
    tpf: float
    forwards: float
    tokens: float
    problems: int

    def __str__(self) -> str:
        return (
            f"{self.task:10} {self.decoder:26} {self.attention:13} {100 * self.accuracy:6.1f} {self.tpf:6.2f} "
            f"{self.forwards:8.1f} {self.tokens:7.1f} {self.problems:5d}"
        )


HEADING = f"{'task':10} {'decoder':26} {'attention':13} {'acc %':>6} {'TPF':>6} {'forwards':>8} {'tokens':>7} {'n':>5}"


def decoders(attention: str, floor: float | None) -> Iterator[tuple[str, DecoderConfig]]:
    """The decoders of the table, by label."""
    common: dict[str, Any] = {"attention": attention, "block_size": BLOCK, "gen_length": LONGEST_ANSWER}
    yield "greedy", DecoderConfig(name="greedy", **common)
    yield "threshold 0.9", DecoderConfig(name="fast_dllm", tau_conf=0.9, **common)
    yield "D2F", DecoderConfig(name="d2f", **common)
    for k in LOOKAHEADS:
        yield f"LoPA k={k}", DecoderConfig(name="lopa", k=k, **common)
    if floor is not None:
        for k in LOOKAHEADS:
            yield f"LoPA k={k} floor={floor:g}", DecoderConfig(name="lopa", k=k, floor=floor, **common)


def measure(task: Task, loaded: LoadedModel, label: str, config: DecoderConfig) -> Row:
    """One decoder on all problems of a task."""
    decoder = make_decoder(config)
    backend = LocalBackend(loaded.network, MAX_LENGTH)
    prompts = [loaded.encode(task.prompt(problem)) for problem in task.problems]
    waiting = [Pending(ids, partial(decode, decoder, ids, loaded.vocabulary)) for ids in prompts]
    texts, tokens, forwards = [""] * len(waiting), 0, 0
    for index, outcome in backend.stream(waiting, TOGETHER):
        if outcome.generation is None:
            continue
        result = complete(outcome.generation.ids, loaded.vocabulary.end_ids, task.stop, loaded.decode)
        texts[index] = result.answer
        tokens += result.content_tokens
        forwards += outcome.generation.forwards
    return row(task, label, str(config.attention), texts, tokens, forwards)


def measure_twin(task: Task, folder: Path, threads: int) -> Row:
    """Greedy decoding of the autoregressive twin; every token, the end token too, takes one forward."""
    model = load_causal(ModelSettings(path=str(folder), layout="causal"), LocalSettings(device="cpu", threads=threads))
    texts, tokens, forwards = [], 0, 0
    for problem in task.problems:
        outcome = decode_text(model, model.codec.encode(task.prompt(problem)), LONGEST_ANSWER, 0.0, 0)
        assert outcome.generation is not None
        result = complete(outcome.generation.ids, model.end_ids, task.stop, model.codec.decode)
        texts.append(result.answer)
        tokens, forwards = tokens + result.content_tokens, forwards + outcome.generation.forwards
    return row(task, "autoregressive", "causal", texts, tokens, forwards)


def row(task: Task, label: str, attention: str, texts: Sequence[str], tokens: int, forwards: int) -> Row:
    scores = task.score_all(list(zip(task.problems, texts, strict=True)))
    count = len(texts)
    accuracy = sum(score.correct is True for score in scores) / count
    return Row(
        task.name, label, attention, accuracy, tokens / forwards, forwards / count, tokens / count, count
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=WEIGHTS / "mini")
    parser.add_argument("--limit", type=int, default=None, help="problems of each task; all by default")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--attentions", nargs="+", choices=ATTENTIONS, default=ATTENTIONS)
    parser.add_argument("--floor", type=float, default=None, help="also LoPA with this floor for its candidates")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    autoregressive = json.loads((args.weights / "config.json").read_text("utf-8"))["model_type"] == "qwen2"
    print(HEADING)
    for name in args.tasks:
        task = make_task(TaskConfig(name=name, source="embedded", limit=args.limit), embedded_default=True)
        if autoregressive:
            print(measure_twin(task, args.weights, args.threads), flush=True)
            continue
        loaded = load(ModelSettings(path=str(args.weights)), LocalSettings(device="cpu", threads=args.threads))
        for attention in args.attentions:
            for label, config in decoders(attention, args.floor):
                print(measure(task, loaded, label, config), flush=True)


if __name__ == "__main__":
    main()
