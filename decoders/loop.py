"""The one loop of every confidence-driven decoder (LoPA algorithm 1, in the order in which the released code runs it).

A round verifies the branches that the previous round proposed, in one forward; takes the best; fills it from its own
logits of this very forward; and proposes the next branches. With k = 0 this is the base decoder.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from decoders.config import DecoderError
from decoders.lookahead import propose
from decoders.parts.caches import Cache
from decoders.parts.fills import Fill, Uniform, View, make_fill
from decoders.parts.scores import Score
from decoders.parts.windows import Window
from decoders.spec import Decoder
from decoders.state import Branch, first_end
from decoders.types import Decode, Generation, Prediction, Readout, Request, Step, Vocabulary

NOTHING = np.array([], dtype=np.int64)
NO_MASKS = View(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)


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
    return _Run(decoder, prompt, vocab, cached, seed, uniform).rounds()


class _Run:
    """The parts of one decode and what a round does with them."""

    def __init__(
        self,
        decoder: Decoder,
        prompt: Sequence[int],
        vocab: Vocabulary,
        cached: int,
        seed: int,
        uniform: Uniform,
    ):
        config = self.config = decoder.config
        self.vocab = vocab
        self.window: Window = decoder.window(config, len(prompt), vocab.mask_id)
        self.readout: Readout = decoder.readout(seed)
        self.cache: Cache = decoder.cache(config, self.window, self.readout, cached)
        layout = self.window.layout
        self.fill: Fill = make_fill(decoder.rule, config, layout, uniform)
        apart = np.random.default_rng([seed, 1]).random
        self.score: Score = decoder.scorer(config, layout, vocab, make_fill(decoder.rule, config, layout, apart))
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
                if finished is not None and self.score.settles(finished):
                    return self._generation(finished)
            self._check_progress()
            request = self.cache.request(branches)
            prediction = yield request
            views = [self._view(branch, row, request, prediction) for row, branch in enumerate(branches)]
            scores = self._scores(branches, views)
            # The first of equals: the anchor, then the better rank; but a branch without masks before both.
            winner = max(range(len(branches)), key=lambda row: (scores[row], len(views[row]) == 0, -row))
            if finished is not None and self.score.complete(finished) >= scores[winner]:
                self._record(request, branches, scores, 0, views[0], NOTHING, branches[0])
                return self._generation(finished)
            chosen, state = self._filled(branches[winner], views[winner])
            self.cache.settle(request, branches, winner)
            self._record(request, branches, scores, winner, views[winner], chosen, state)
            state.verify()
            if len(chosen) == len(views[winner]):
                yield from self._idle(state)
            branches = [state]
            if self.config.k != 0:
                branches = propose(state, views[winner], self.config, self.window.layout, self.vocab)

    def _idle(self, branch: Branch) -> Generator[Request, Prediction, None]:
        """The forwards that are spent on a text, or a block of it, that is full before its schedule ends."""
        while self.fill.idles(branch) and not self._ended(branch):
            self._check_progress()
            request = self.cache.request([branch])
            yield request
            self.fill.select(NO_MASKS, branch)
            self.cache.settle(request, [branch], 0)
            self._record(request, [branch], [self.score.complete(branch)], 0, NO_MASKS, NOTHING, branch)

    def _check_progress(self) -> None:
        """Every forward fills a position, except a released program's empty steps and its last, verifying round."""
        config, layout = self.config, self.window.layout
        idle = int(config.complete == "verify")
        if config.empty_steps == "run":
            idle += self.fill.steps * layout.blocks
        if len(self.steps) >= config.gen_length + idle:
            rule = type(self.fill).__name__
            raise RuntimeError(
                f"no end after {len(self.steps)} forwards for {config.gen_length} positions: a fault of {rule}, which "
                "must fill at least one mask a forward"
            )

    def _filled(self, branch: Branch, view: View) -> tuple[np.ndarray, Branch]:
        """What the rule fills of the winner's view [N], as indices into it, and the branch behind it."""
        chosen = NOTHING
        if len(view):
            chosen = np.arange(len(view))[self.fill.select(view, branch)]  # a rule may also answer with booleans [N]
            if len(np.unique(chosen)) < len(chosen):
                raise DecoderError(f"decoder.fill={self.config.fill} fills a position twice; allowed: each index once")
        return chosen, branch.filled(view.position[chosen], view.token[chosen], self.window.layout, self.vocab)

    def _view(self, branch: Branch, row: int, request: Request, prediction: Prediction) -> View:
        lo, hi = self.window.scope(branch)
        position = lo + np.flatnonzero(branch.ids[lo:hi] == self.vocab.mask_id)
        at = position - request.start
        block = self.window.layout.block_of(position)
        return View(
            position,
            block,
            prediction.token[row, at],
            prediction.prob[row, at],
            prediction.measure(self.config.fill_confidence or "prob")[row, at],
            np.array(branch.activated)[block],
            {name: prediction.extra[name][row, at] for name in self.readout.measures},
        )

    def _scores(self, branches: list[Branch], views: list[View]) -> list[float]:
        scores = [self.score.rate(branch, view) for branch, view in zip(branches, views)]
        if np.isnan(scores).any():
            raise DecoderError(f"decoder.score.kind={self.config.score.kind} scored a branch nan; allowed: a number")
        return scores

    def _complete(self, branch: Branch) -> bool:
        """No masks left (and no block to come), or none before the first end token."""
        return branch.masks_left == 0 or self._ended(branch)

    def _ended(self, branch: Branch) -> bool:
        """Whether the text is known up to its first end token, and nothing behind it is asked for."""
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
