"""DiffusionGemma by its own sampler: `generate` of transformers' DiffusionGemmaForBlockDiffusion, with step records.

The model has no mask: a canvas starts as random tokens, each forward predicts all of it anew, and its own rules (in the
checkpoint's generation_config.json) say which tokens stay and when the canvas is done. So none of the decoders of
masked positions fits it. A forward here is a pass of the decoder, as in transformers' `tokens_per_forward`; the
encoder's pass over what stands left of a canvas belongs to the canvas's first forward. A position counts as filled in
the forward from which on its prediction no longer changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from decoders.types import Generation, Step
from lopa_bench.backends.autoregressive import CausalModel
from lopa_bench.backends.outcome import Outcome

CLASS = "DiffusionGemmaForBlockDiffusion"


@dataclass
class Watch:
    """Sees the logits of every forward, as a logits processor that changes nothing."""

    model: CausalModel
    texts: list[int] = field(default_factory=list)  # how many tokens stood left of the canvas
    tokens: list[list[int]] = field(default_factory=list)
    probs: list[list[float]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.model.forwards += 1
        best_W, token_W = scores[0].float().max(-1)
        prob_W = (best_W - torch.logsumexp(scores[0].float(), -1)).exp()
        self.texts.append(input_ids.shape[1])
        self.tokens.append(token_W.tolist())
        self.probs.append(prob_W.tolist())
        self.times.append(time.perf_counter())
        return scores


@torch.inference_mode()
def decode_canvases(model: CausalModel, prompt: Sequence[int], length: int, seed: int) -> Outcome:
    """At least `length` tokens behind the prompt, in whole canvases, of which the first `length` are the text; the end
    token ends it and is its last id.
    """
    import transformers

    began = time.perf_counter()
    torch.manual_seed(seed)  # of the noise: canvases, and the tokens that are drawn again
    watch = Watch(model)
    text = model.network.config.get_text_config()
    pad = text.pad_token_id if text.pad_token_id is not None else model.end_ids[0]
    model.network.generate(
        torch.tensor([list(prompt)], device=model.device), max_new_tokens=length, eos_token_id=list(model.end_ids),
        pad_token_id=pad, logits_processor=transformers.LogitsProcessorList([watch]),
    )  # fmt: skip
    seconds = [after - before for before, after in zip([began, *watch.times], watch.times)]
    total = time.perf_counter() - began
    if not all(math.isfinite(prob) for probs in watch.probs for prob in probs):
        return Outcome(None, "non_finite", error="the model's logits are not finite")
    steps, written = _steps(watch, len(prompt))
    ids = written[:length]
    end = next((i for i, token in enumerate(ids) if token in model.end_ids), None)
    reason = "length" if end is None else "eos"
    generation = Generation(tuple(ids if end is None else ids[: end + 1]), reason, len(written), tuple(steps))
    return Outcome(generation, reason, 0, seconds, seconds[0], total)


def _steps(watch: Watch, prompt: int) -> tuple[list[Step], list[int]]:
    """A record a forward, and all tokens of all canvases."""
    steps: list[Step] = []
    written: list[int] = []
    for start in dict.fromkeys(watch.texts):
        rounds = [i for i, at in enumerate(watch.texts) if at == start]
        final = watch.tokens[rounds[-1]]
        since = [_since([watch.tokens[i][place] for i in rounds]) for place in range(len(final))]
        left = len(final)
        for number, i in enumerate(rounds):
            places = [place for place, first in enumerate(since) if first == number]
            left -= len(places)
            encoded = (start if start == prompt else len(final)) if number == 0 else 0
            steps.append(_step(watch, i, start, places, left, len(final) + encoded))
        written += final
    return steps, written


def _since(predictions: Sequence[int]) -> int:
    """The first forward from which on a prediction is the last one."""
    changed = [i for i, token in enumerate(predictions) if token != predictions[-1]]
    return changed[-1] + 1 if changed else 0


def _step(watch: Watch, number: int, start: int, places: Sequence[int], left: int, processed: int) -> Step:
    return Step(
        window_start=start, window_width=len(watch.tokens[number]), branches=1, winner=0, scores=(),
        positions=tuple(start + place for place in places),
        tokens=tuple(watch.tokens[number][place] for place in places),
        probs=tuple(watch.probs[number][place] for place in places),
        masks_left=left, cached=start, tokens_processed=processed, kept=None,
    )  # fmt: skip
