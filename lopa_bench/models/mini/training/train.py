"""Trains an embedded model: `python -m lopa_bench.models.mini.training.train --kind dream --out DIR`.

The budget counts tokens, not seconds, so that the diffusion model and its autoregressive twin see equally much.
Stage 1 starts causal, as Dream starts from an autoregressive model, and turns into diffusion; stage 2 goes on with
less varied phrasing and fewer drills at a lower learning rate.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from lopa_bench.models.mini.architecture import mini_config
from lopa_bench.models.mini.problems.make_sets import embedded_questions
from lopa_bench.models.mini.problems.mixture import Mixture, training_problems
from lopa_bench.models.mini.tokenizer import train_tokenizer
from lopa_bench.models.mini.training.batches import Batcher, encode
from lopa_bench.models.mini.training.export import export
from lopa_bench.models.mini.training.learner import Learner, initialise
from lopa_bench.models.mini.training.noising import Batch, NoiseConfig, causal_batch, diffusion_batch

TOKENS_PER_BATCH = 3072
TOKENS_PER_PROBLEM = 50  # a little below the mean, so that about every problem is seen once
TOKENIZER_PROBLEMS = 8000
REPORT_EVERY = 50  # steps


@dataclass(frozen=True)
class Stage:
    """`causal_until`, `causal_floor`, `causal_fall`: causal batches only up to that progress, then their share falls
    linearly (over `causal_fall`) to the floor.
    """

    share: float  # of the tokens
    rate: float
    mixture: Mixture
    noise: NoiseConfig
    causal_until: float
    causal_floor: float
    causal_fall: float = 0.25

    def causal_share(self, progress: float) -> float:
        if progress < self.causal_until:
            return 1.0
        return max(self.causal_floor, 1 - (progress - self.causal_until) / self.causal_fall)


STAGES = (
    Stage(
        0.67, 2.5e-3, Mixture(variety=0.7), NoiseConfig(ramp=0.6),
        causal_until=0.3, causal_floor=0.2,
    ),
    Stage(
        0.33, 1.2e-3, Mixture(variety=0.5, drill=0.06), NoiseConfig(ramp=0.35),
        causal_until=0, causal_floor=0.12, causal_fall=0.01,
    ),
)  # fmt: skip


@dataclass
class Training:
    """What a training run is asked for, and how far it is."""

    kind: str
    out: Path
    seed: int
    tokens: int
    save_minutes: float
    done: int = 0
    saved: float = field(default_factory=time.monotonic)
    started: float = field(default_factory=time.monotonic)
    losses: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=80)))

    def report(self, step: int) -> None:
        seconds = time.monotonic() - self.started
        losses = " ".join(f"{kind} {np.mean(values):.3f}" for kind, values in sorted(self.losses.items()))
        speed = self.done / max(seconds, 1e-9)
        print(
            f"step {step} tokens {self.done} wall {seconds / 60:.1f} min cpu {time.process_time() / 60:.1f} min "
            f"{speed:.0f} tok/s loss {losses}",
            flush=True,
        )


def train(run: Training, compiled: bool) -> None:
    """Trains the tokenizer, then the model through all stages."""
    rng = np.random.default_rng(run.seed)
    exclude = embedded_questions()
    corpus = islice(training_problems(STAGES[0].mixture, run.seed, exclude), TOKENIZER_PROBLEMS)
    tokenizer = train_tokenizer(f"{problem.question}\n{problem.answer}" for problem in corpus)
    learner = Learner(initialise(mini_config(), run.seed), STAGES[0].rate, compiled)
    for number, stage in enumerate(STAGES):
        learner.start(stage.rate)
        tokens = int(stage.share * run.tokens)
        problems = training_problems(stage.mixture, run.seed + number, exclude)
        examples = encode(islice(problems, tokens // TOKENS_PER_PROBLEM), tokenizer, rng)
        print(f"stage {number + 1}: {tokens} tokens, {len(examples)} problems", flush=True)
        train_stage(run, stage, learner, Batcher(examples, TOKENS_PER_BATCH, rng), tokens, tokenizer, rng)
    save(run, learner, tokenizer)


def train_stage(
    run: Training, stage: Stage, learner: Learner, batcher: Batcher, tokens: int, tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    start = run.done
    while run.done < start + tokens:
        progress = (run.done - start) / tokens
        batch = draw_batch(run.kind, stage, progress, batcher, rng)
        run.losses[batch.kind].append(learner.step(batch, progress))
        run.done += batch.inputs.numel()
        if learner.steps % REPORT_EVERY == 0:
            run.report(learner.steps)
        if time.monotonic() - run.saved > 60 * run.save_minutes:
            save(run, learner, tokenizer)


def draw_batch(kind: str, stage: Stage, progress: float, batcher: Batcher, rng: np.random.Generator) -> Batch:
    rows = batcher.draw()
    if kind == "ar" or rng.random() < stage.causal_share(progress):
        return causal_batch(rows)
    return diffusion_batch(rows, stage.noise, rng)


def save(run: Training, learner: Learner, tokenizer: Tokenizer) -> None:
    """Writes the moving average; an interrupted run leaves its last one."""
    export(learner.average, tokenizer, run.kind, run.out)
    run.saved = time.monotonic()
    print(f"saved {run.out} after {run.done} tokens, {time.process_time() / 60:.1f} CPU minutes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("dream", "ar"), default="dream", help="diffusion model or AR twin")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=7_000_000, help="of both stages together")
    parser.add_argument("--threads", type=int, default=1, help="one is fastest per core at this size")
    parser.add_argument("--save-minutes", type=float, default=4.0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False, help="needs a C compiler")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    run = Training(args.kind, args.out, args.seed, args.tokens, args.save_minutes)
    train(run, args.compile)


if __name__ == "__main__":
    main()
