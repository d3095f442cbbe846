"""The log-likelihood of a text under a masked diffusion model: not known, but bounded from below.

LLaDA (arXiv 2502.09992, eq. 6 and algorithm 3; get_log_likelihood.py): of a continuation of n tokens l are masked, l
drawn from 1 to n and which of them too; the sum of their log-probabilities times n / l has a mean that is at most the
log-likelihood. Here `mc_num` such copies are drawn at once, their l spread evenly as there, from a generator that is
seeded by the request, so that neither the order of the requests nor the batch changes a draw.

Shape suffixes: M copies, N tokens of the continuation, R rows of one call, W positions, V vocabulary.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from decoders.state import Borders
from lopa_bench.errors import ConfigError
from lopa_bench.models.kept import KeptNetwork
from lopa_bench.plan.identity import model_facts, network_key
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.validate import validate

if TYPE_CHECKING:
    import torch

    from lopa_bench.models.loaded import LoadedModel

KINDS = ("monte_carlo",)
COPIES = 128  # what LLaDA takes


def why_not(request: str) -> str:
    """Why a request for a likelihood is refused, and what would answer it."""
    return (
        f"{request}: this task asks for log-likelihoods, and a masked diffusion model has none that can be computed: "
        "decoding settings such as decoder.k would not count either. Allowed: tasks that generate "
        "(output_type: generate_until), or --model_args ...,likelihood=monte_carlo,mc_num=128,seed=0 for a seeded "
        "Monte-Carlo estimate of a lower bound (LLaDA), which is no likelihood of another kind of model"
    )


@dataclass
class Bound:
    """The estimate, as asked for. `forwards` counts the calls of the model so far, `requests` what was answered."""

    copies: int
    seed: int
    forwards: int = 0
    requests: int = 0
    cut: int = 0
    kept: KeptNetwork = field(default_factory=KeptNetwork, compare=False)
    _loaded: Scorer | None = field(default=None, compare=False)

    @classmethod
    def make(
        cls, kind: str | None, copies: int | None, seed: int | None, kept: KeptNetwork | None = None
    ) -> Bound | None:
        """What --model_args ask for, with the network that runs leave in `kept`; None without `likelihood`. Raises
        ConfigError.
        """
        if kind is None:
            for name, value in (("mc_num", copies), ("seed", seed)):
                if value is not None:
                    raise ConfigError(f"--model_args {name}={value} is read with likelihood=monte_carlo only")
            return None
        if kind not in KINDS:
            raise ConfigError(f"--model_args likelihood={kind} is not allowed; allowed: {', '.join(KINDS)}")
        for name, value, low in (("mc_num", copies, 1), ("seed", seed, 0)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
                raise ConfigError(f"--model_args {name}={value} is not allowed; allowed: an integer from {low}")
        return cls(COPIES if copies is None else copies, seed or 0, kept=kept or KeptNetwork())

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "estimate": "lower bound of the log-likelihood by Monte Carlo (LLaDA, arXiv 2502.09992, algorithm 3)",
            "mc_num": self.copies,
            "seed": self.seed,
            "requests": self.requests,
            "forwards": self.forwards,
            "contexts_cut": self.cut,
        }

    def of(self, config: Config, context: str, continuation: str) -> tuple[float, bool]:
        """The bound of a continuation in nats, and whether it is what greedy decoding gives: one token a call, the
        most confident position first. A context that is too long is cut on its left, as lm-eval does.
        """
        scorer = self._scorer(config)
        prefix, target = scorer.pair(context, continuation)
        room = scorer.room - len(target)
        if room < 1:
            raise ConfigError(
                f"a continuation of {len(target)} tokens has no room in model.max_length={scorer.room}; allowed: "
                f"{scorer.room - 1} tokens"
            )
        self.requests += 1
        if len(prefix) > room:
            self._say_cut(len(prefix), room)
        return self._bound(scorer, prefix[-room:], target), self._is_greedy(scorer, prefix[-room:], target)

    def of_text(self, config: Config, text: str) -> float:
        """The bound of a whole text in nats; one that is longer than the model's room is cut into pieces that each
        know one token before them.
        """
        scorer = self._scorer(config)
        ids = [scorer.first_id, *scorer.model.codec.ids_of(text)]
        self.requests += 1
        size = scorer.room - 1
        pieces = (range(begin, min(begin + size, len(ids))) for begin in range(1, len(ids), size))
        return sum(
            self._bound(scorer, ids[piece.start - 1 : piece.start], ids[piece.start : piece.stop]) for piece in pieces
        )

    def _scorer(self, config: Config) -> Scorer:
        if self._loaded is None:
            self._loaded = Scorer.load(config, self.kept)
        return self._loaded

    def _say_cut(self, tokens: int, room: int) -> None:
        if not self.cut:
            print(f"note: a context of {tokens} tokens is cut to its last {room} (model.max_length)", file=sys.stderr)
        self.cut += 1

    def _bound(self, scorer: Scorer, prefix: Sequence[int], target: Sequence[int]) -> float:
        if not target:
            return 0.0
        masked_MN = masks(len(target), self.copies, seed_of(self.seed, prefix, target))
        total = 0.0
        for part_RN in np.array_split(masked_MN, -(-self.copies // scorer.rows)):
            self.forwards += 1
            for row_N, logp_N in zip(part_RN, scorer.target_logp(prefix, target, part_RN), strict=True):
                total += len(target) / row_N.sum() * float(logp_N.sum())
        return total / self.copies

    def _is_greedy(self, scorer: Scorer, prefix: Sequence[int], target: Sequence[int]) -> bool:
        masked_N = np.ones(len(target), dtype=bool)
        while masked_N.any():
            self.forwards += 1
            place, token = scorer.most_confident(prefix, target, masked_N)
            if token != target[place]:
                return False
            masked_N[place] = False
        return True


def seed_of(seed: int, prefix: Sequence[int], target: Sequence[int]) -> int:
    """The seed of one request: by what is asked, and by nothing else."""
    digest = hashlib.sha256(f"{seed}\0{list(prefix)}\0{list(target)}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def masks(size: int, copies: int, seed: int) -> np.ndarray:
    """Which of `size` tokens each copy hides [M, N]: 1 to `size` of them, the numbers spread evenly from a random one
    on.
    """
    rng = np.random.default_rng(seed)
    first = int(rng.integers(1, size + 1))
    counts_M = np.round(np.linspace(first, first + (copies - 1) * (size / copies), copies)).astype(int)
    counts_M = (counts_M - 1) % size + 1
    masked_MN = np.zeros((copies, size), dtype=bool)
    for row_N, count in zip(masked_MN, counts_M, strict=True):
        row_N[rng.permutation(size)[:count]] = True
    return masked_MN


@dataclass(frozen=True)
class Scorer:
    """A loaded model, asked for whole texts: prefix and continuation in one call, without a cache."""

    model: LoadedModel
    room: int  # positions
    rows: int  # copies a call
    attention: str | None
    block: int
    grid: str

    @classmethod
    def load(cls, config: Config, kept: KeptNetwork) -> Scorer:
        """Raises ConfigError for what has no masks, CheckpointError."""
        from lopa_bench.models.loaded import load, open_checkpoint

        valid = validate(config)
        if valid.decoder is None or not isinstance(config.backend, LocalSettings):
            raise ConfigError(
                f"likelihood=monte_carlo needs a masked diffusion model in this process, not "
                f"decoder={config.decoder.name} on backend={config.backend.name}"
            )
        opened = open_checkpoint(config.model)
        keep = partial(kept.get, network_key(config, model_facts(config)))
        model = load(config.model, config.backend, config.run.batch, opened, keep)
        settings, network = valid.settings, opened.config
        grid = config.decoder.grid or network.grid
        room = min(config.model.max_length, network.max_positions)
        block = settings.block_size or settings.gen_length
        return cls(model, room, config.run.batch, settings.attention, block, grid)

    @cached_property
    def first_id(self) -> int:
        """What stands before a text without a context: the start token, else one that ends texts, as in lm-eval."""
        start = self.model.codec.start_id
        return self.model.vocabulary.end_ids[0] if start is None else start

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The ids of both, split as lm-eval does: spaces between them belong to the continuation."""
        codec = self.model.codec
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        start = [] if codec.start_id is None else [codec.start_id]
        before = codec.ids_of(context)
        whole = codec.ids_of(context + continuation)
        prefix = start + [one for place, one in enumerate(before) if place or [one] != start]
        return prefix or [self.first_id], whole[len(before) :]

    def target_logp(self, prefix: Sequence[int], target: Sequence[int], masked_RN: np.ndarray) -> Iterator[Any]:
        """For each row the log-probabilities of its masked tokens."""
        logits_of = self._logits(prefix, target, masked_RN)
        for row_N in masked_RN:
            logp_KV = next(logits_of).log_softmax(-1)
            yield logp_KV.gather(-1, logp_KV.new_tensor(np.asarray(target)[row_N]).long()[:, None])[:, 0]

    def most_confident(self, prefix: Sequence[int], target: Sequence[int], masked_N: np.ndarray) -> tuple[int, int]:
        """The place in the continuation whose best token is most probable, and that token; the mask is none."""
        logits_KV = next(self._logits(prefix, target, masked_N[None])).clone()
        logits_KV[:, self.model.vocabulary.mask_id] = -float("inf")
        best_K, token_K = logits_KV.softmax(-1).max(-1)
        at = int(best_K.argmax())
        return int(np.flatnonzero(masked_N)[at]), int(token_K[at])

    def _logits(self, prefix: Sequence[int], target: Sequence[int], masked_RN: np.ndarray) -> Iterator[torch.Tensor]:
        """For each row the logits [K, V] of its K masked positions, float32 or wider, from one call."""
        import torch

        from lopa_bench.models.network.segments import Segment

        network = self.model.network
        device = network.embed.weight.device
        at = len(prefix)
        ids_RW = np.tile(np.asarray([*prefix, *target], dtype=np.int64), (len(masked_RN), 1))
        ids_RW[:, at:][masked_RN] = self.model.vocabulary.mask_id
        with torch.inference_mode():
            segment = Segment(torch.from_numpy(ids_RW).to(device), mask=self._mask(at, len(target)))
            hidden_RWD = network([segment]).view(*ids_RW.shape, -1)
        for row, row_N in enumerate(masked_RN):  # one by one: a vocabulary is wide
            places_K = torch.from_numpy(at + np.flatnonzero(row_N) - network.config.shifted).to(device)
            with torch.inference_mode():
                logits_KV = network.logits(hidden_RWD[row, places_K])
            yield logits_KV.to(torch.promote_types(logits_KV.dtype, torch.float32))

    def _mask(self, prompt: int, length: int) -> torch.Tensor | None:
        """None where all see all; else the decoder's blocks."""
        import torch

        from lopa_bench.models.network.segments import block_causal_mask

        if self.attention != "block_causal":
            return None
        weight = self.model.network.embed.weight
        blocks_W = Borders(prompt, length, self.block, self.grid).attention_of(np.arange(prompt + length))
        return block_causal_mask(torch.from_numpy(blocks_W).to(weight.device), weight.dtype)
