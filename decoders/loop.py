"""The one loop of every confidence-driven decoder (LoPA algorithm 1, in the order in which the released code runs it).

A round verifies the branches that the previous round proposed, in one forward; takes the best; fills it from its own
logits of this very forward; and proposes the next branches. With k = 0 this is the base decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decoders.caches import Cache
from decoders.fills import Fill, Uniform, View, make_fill
from decoders.lookahead import COMPLETE, creation_mix, propose, score
from decoders.spec import Decoder
from decoders.state import Branch, first_end
from decoders.types import Decode, Generation, Prediction, Readout, Request, Step, Vocabulary
from decoders.windows import Window


def decode(
    decoder: Decoder,
    prompt: Sequence[int],
    vocab: Vocabulary,
    cached: int = 0,
    seed: int = 0,
    uniform: Uniform | None = None,
) -> Decode:
    """Decodes one text. Yields a Request a round, expects its Prediction, returns the Generation.

    `cached` prompt positions are already in the backend's cache. `seed` rules what is drawn at random; `uniform(n)`
    gives the n numbers in [0, 1) instead. Raises ValueError for an empty prompt.
    """
    if not len(prompt):
        raise ValueError("an empty prompt cannot be decoded: at least one token is needed")
    uniform = uniform or np.random.default_rng(seed).random
    return _Run(decoder, prompt, vocab, cached, decoder.readout(seed), uniform).rounds()


class _Run:
    """The parts of one decode and what a round does with them."""

    def __init__(
        self,
        decoder: Decoder,
        prompt: Sequence[int],
        vocab: Vocabulary,
        cached: int,
        readout: Readout,
        uniform: Uniform,
    ):
        config = self.config = decoder.config
        self.vocab = vocab
        self.window: Window = decoder.window(config, len(prompt), vocab.mask_id)
        self.cache: Cache = decoder.cache(config, self.window, readout, cached)
        self.fill: Fill = make_fill(decoder.rule, config, self.window.layout, uniform)
        self.prompt = prompt
        self.steps: list[Step] = []

    def rounds(self) -> Decode:
        branches = [self.window.open(self.prompt)]
        while True:
            for branch in branches:
                self.window.advance(branch)
            if self._complete(branches[0]):
                return self._generation(branches[0])
            finished = None
            if self.config.complete != "verify":
                branches, finished = self._set_aside_complete(branches)
                if finished is not None and self._unbeatable():
                    return self._generation(finished)
            self._check_progress()
            request = self.cache.request(branches)
            prediction = yield request
            branches, over = self._round(branches, finished, request, prediction)
            if over:
                return self._generation(branches[0])

    def _check_progress(self) -> None:
        """Every forward fills a position, except a released program's empty steps and its last, verifying round."""
        config = self.config
        idle = (config.complete == "verify") + (config.steps or 0 if config.empty_steps == "run" else 0)
        if len(self.steps) >= config.gen_length + idle:
            raise RuntimeError(f"no end after {len(self.steps)} forwards for {config.gen_length} positions: a bug")

    def _round(
        self, branches: list[Branch], finished: Branch | None, request: Request, prediction: Prediction
    ) -> tuple[list[Branch], bool]:
        """Chooses the winner, fills it, and proposes the next branches; True if a finished branch won the decode."""
        views = [self._view(branch, row, request, prediction) for row, branch in enumerate(branches)]
        scores = [
            self._score(branch, view, row, request, prediction)
            for row, (branch, view) in enumerate(zip(branches, views))
        ]
        winner = int(np.argmax(scores))  # the first of equals: the anchor, then the better rank
        if finished is not None and creation_mix(finished, COMPLETE, self.config) > scores[winner]:
            self._record(request, branches, scores, 0, views[0], np.array([], dtype=np.int64), branches[0])
            return [finished], True
        view, branch = views[winner], branches[winner]
        chosen = self.fill.select(view, branch) if len(view) else np.array([], dtype=np.int64)
        state = branch.filled(view.position[chosen], view.token[chosen], self.window.layout, self.vocab)
        self.cache.settle(request, branches, winner)
        self._record(request, branches, scores, winner, view, chosen, state)
        state.verify()
        if self.config.k == 0:
            return [state], False
        rank = prediction.measure(self.config.confidence or "prob")[winner, view.position - request.start]
        return propose(state, view, rank, self.config, self.window.layout, self.vocab), False

    def _view(self, branch: Branch, row: int, request: Request, prediction: Prediction) -> View:
        lo, hi = self.window.scope(branch)
        position = lo + np.flatnonzero(branch.ids[lo:hi] == self.vocab.mask_id)
        at = position - request.start
        block = self.window.layout.block_of(position)
        forced = prediction.measure(self.config.fill_confidence or "prob")
        return View(
            position,
            block,
            prediction.token[row, at],
            prediction.prob[row, at],
            forced[row, at],
            np.array(branch.activated)[block],
        )

    def _score(self, branch: Branch, view: View, row: int, request: Request, prediction: Prediction) -> float:
        at = view.position - request.start
        confidence = prediction.measure(self.config.confidence or "prob")[row, at]
        entropy = prediction.extra.get("neg_entropy")
        return score(
            branch,
            view,
            confidence,
            entropy if entropy is None else entropy[row, at],
            self.fill,
            self.config,
            self.vocab,
        )

    def _complete(self, branch: Branch) -> bool:
        """No masks left (and no block to come), or none before the first end token."""
        if branch.masks_left == 0:
            return True
        if self.config.decode_tail or not branch.ended:
            return False
        end = first_end(branch.ids, len(self.prompt), self.vocab)
        return not (branch.ids[len(self.prompt) : end] == self.vocab.mask_id).any()

    def _set_aside_complete(self, branches: list[Branch]) -> tuple[list[Branch], Branch | None]:
        """The branches that need a model call, and the best-ranked one without any mask.

        A branch that holds an end token and masks behind it is verified like any other: it has to win by its score.
        """
        complete = [branch.masks_left == 0 for branch in branches]
        finished = [branch for branch, done in zip(branches, complete) if done]
        return [branch for branch, done in zip(branches, complete) if not done], finished[0] if finished else None

    def _unbeatable(self) -> bool:
        """Whether a complete branch wins whatever the others score."""
        return self.config.score.kind == "next_fill" or (
            self.config.score.kind == "mean" and self.config.score.creation_weight == 0
        )

    def _record(
        self,
        request: Request,
        branches: list[Branch],
        scores: list[float],
        winner: int,
        view: View,
        chosen: np.ndarray,
        state: Branch,
    ) -> None:
        extras = [branch.extra for branch in branches[1:] if branch.extra is not None]
        kept = self.cache.keep
        self.steps.append(
            Step(
                window_start=request.start,
                window_width=request.ids.shape[1],
                branches=len(branches),
                winner=winner,
                scores=tuple(scores),
                lookahead_positions=tuple(extra.position for extra in extras),
                lookahead_tokens=tuple(extra.token for extra in extras),
                positions=tuple(view.position[chosen].tolist()),
                tokens=tuple(view.token[chosen].tolist()),
                probs=tuple(view.prob[chosen].tolist()),
                masks_left=state.masks_left,
                cached=request.start,
                tokens_processed=request.positions_processed,
                kept=(kept.start, kept.end) if kept else None,
            )
        )

    def _generation(self, branch: Branch) -> Generation:
        prompt = len(self.prompt)
        end = first_end(branch.ids, prompt, self.vocab)
        stop = len(branch.ids) if end is None or self.config.decode_tail else end + 1
        ids = branch.ids[prompt:stop]
        assert not (ids == self.vocab.mask_id).any(), "a mask id in the result"
        filled = int((branch.ids[prompt:] != self.vocab.mask_id).sum())
        return Generation(tuple(ids.tolist()), "length" if end is None else "eos", filled, tuple(self.steps))
