"""The one loop of every confidence-driven decoder (LoPA algorithm 1, in the order in which the released code runs it).

A round verifies the branches that the previous round proposed, in one forward; takes the best; fills it from its own
logits of this very forward; and proposes the next branches. What is proposed and what is best is the business of
decoders/lookahead. With k = 0 this is the base decoder.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from decoders.lookahead.forward import NO_MASKS, NOTHING, Choice, Forward
from decoders.lookahead.rewards import looked_ahead
from decoders.lookahead.select import Parts, Select
from decoders.lookahead.tape import Tape
from decoders.parts.caches import Cache
from decoders.parts.fills import Fill, Uniform
from decoders.parts.first_position import make_fill
from decoders.parts.windows import Window
from decoders.spec import Decoder
from decoders.state import Branch, first_end
from decoders.types import Decode, Edit, Generation, Prediction, Request, Step, Vocabulary


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
        self.decoder, config = decoder, decoder.config
        self.config = config
        self.vocab = vocab
        self.prompt = prompt
        self.window: Window = decoder.window(config, len(prompt), vocab.mask_id)
        borders = self.window.borders
        self.cache: Cache = decoder.cache(config, self.window, decoder.readout(seed, vocab), cached)
        tape = Tape(uniform)
        self.fill: Fill = make_fill(decoder.rule, config, borders, tape.draw)
        draft = make_fill(decoder.rule, config, borders, tape.ahead)
        apart = np.random.default_rng([seed, 1]).random
        score = decoder.scorer(config, borders, vocab, make_fill(decoder.rule, config, borders, apart))
        self.parts = Parts(config, vocab, len(prompt), self.window, self.cache, self.fill, draft, tape, score)
        self.select: Select = decoder.select(self.parts)
        self.edits = decoder.rule.edits
        self.steps: list[Step] = []
        self.stores = 0  # forwards that only stored a block; there is one a block at most

    def rounds(self) -> Decode:
        start = yield from self._stored(self.window.open(self.prompt))
        branches = self.select.open(start)
        while (done := self.select.end(branches)) is None:
            self._check_progress()
            request = self._asked(self.cache.request(branches), branches)
            prediction = yield request
            forward = Forward(branches, request, prediction, self.config, self.window, self.vocab, self.edits)
            choice = self.select.choose(forward)
            if choice.end is not None:
                self._record(forward, choice)
                return self._generation(choice.end)
            self.cache.settle(request, branches, choice.winner)
            self.cache.follows = choice.winner
            choice.state.verify()
            if self.edits:
                self.cache.saw(request, choice.winner, choice.state)
            self._record(forward, choice)
            if len(choice.chosen) == len(choice.view):
                yield from self._idle(choice.state)
            anchor = yield from self._stored(choice.state)
            branches = self.select.propose(anchor, forward, choice.winner)
        return self._generation(done)

    def _asked(self, request: Request, branches: list[Branch]) -> Request:
        """The request with what the rule wants to know of filled positions, and what holds an end down at its time."""
        rule = self.fill
        if request.readout.fading:
            request = replace(request, fade=np.array([rule.fade(branch) for branch in branches]))
        if not (rule.predicts_filled or rule.shadowed):
            return request
        scopes = [self.window.scope(branch) for branch in branches]
        lo, hi = min(scope[0] for scope in scopes), max(scope[1] for scope in scopes)
        shadow = (lo, hi) if rule.shadowed else None
        if not rule.predicts_filled:
            return replace(request, shadow=shadow)
        # A block may be kept from a forward that ends with it, whose last position says what stands behind it.
        return replace(request, predict=(max(lo, request.start), hi), shadow=shadow, behind=self.window.revisits)

    def _idle(self, branch: Branch) -> Generator[Request, Prediction, None]:
        """The forwards that are spent on a text, or a block of it, that is full before its schedule ends."""
        while self.fill.idles(branch) and not self.parts.ended(branch):
            self._check_progress()
            request = self.cache.request([branch])
            prediction = yield request
            self.fill.select(NO_MASKS, branch)
            self.cache.settle(request, [branch], 0)
            forward = Forward([branch], request, prediction, self.config, self.window, self.vocab)
            score = self.parts.score.complete(branch)
            self._record(forward, Choice(0, NO_MASKS, NOTHING, branch, (score,)))

    def _stored(self, branch: Branch) -> Generator[Request, Prediction, Branch]:
        """`branch` after the forwards that only store finished blocks, with what they hand over filled in. Nothing
        would read the last block, so it is not stored.
        """
        while (request := self.cache.store(branch)) is not None:
            self.window.advance(branch)
            if self.parts.complete(branch):
                break
            prediction = yield request
            forward = Forward([branch], request, prediction, self.config, self.window, self.vocab)
            view = forward.view(0) if self.window.hands_over else NO_MASKS  # of what lies behind, if it is a mask
            if (view.token < 0).any():
                self.decoder.check_shift(shifted=False)
            state = self.parts.with_tokens(branch, view.position, view.token)
            self.cache.settle(request, [branch], 0)
            chosen = np.arange(len(view))
            self._record(forward, Choice(0, view, chosen, state, (self.parts.score.complete(branch),)))
            self.stores += len(view) == 0
            state.verify()
            branch = state
        return branch

    def _check_progress(self) -> None:
        """Every forward fills a position, but for one that stores a block, a released program's empty steps and its
        last, verifying round, and what a rule that edits may spend.
        """
        config, borders = self.config, self.window.borders
        idle = int(config.complete == "verify") + self.fill.budget
        if config.empty_steps == "run":
            idle += self.fill.steps * borders.blocks
        if len(self.steps) - self.stores >= config.gen_length + idle:
            rule = type(self.fill).__name__
            raise RuntimeError(
                f"no end after {len(self.steps)} forwards for {config.gen_length} positions: a fault of {rule}, which "
                f"must fill at least one mask a forward, all in all, but for {self.fill.budget}"
            )

    def _record(self, forward: Forward, choice: Choice) -> None:
        request, branches, view, chosen = forward.request, forward.branches, choice.view, choice.chosen
        kept = self.cache.keep
        self.steps.append(
            Step(
                window_start=request.start,
                window_width=request.ids.shape[1],
                branches=len(branches),
                winner=choice.winner,
                scores=choice.scores,
                positions=tuple(view.position[chosen].tolist()),
                tokens=tuple(view.token[chosen].tolist()),
                probs=tuple(view.prob[chosen].tolist()),
                masks_left=choice.state.masks_left,
                cached=request.start,
                tokens_processed=request.positions_processed,
                kept=(kept.start, kept.end) if kept else None,
                passes=request.passes,
                edits=self._edits(branches[choice.winner], choice.state) if self.edits else None,
                **looked_ahead(self.select, forward, choice),
            )
        )

    def _edits(self, fed: Branch, state: Branch) -> tuple[Edit, ...]:
        """What a round changed of the positions that were filled."""
        changed = np.flatnonzero((fed.ids != self.vocab.mask_id) & (fed.ids != state.ids[: len(fed.ids)]))
        return tuple(Edit(int(i), int(fed.ids[i]), int(state.ids[i])) for i in changed)

    def _generation(self, branch: Branch) -> Generation:
        prompt = len(self.prompt)
        end = first_end(branch.ids, prompt, self.vocab)
        stop = len(branch.ids) if end is None or self.config.decode_tail else end + 1
        ids = branch.ids[prompt:stop]
        assert not (ids == self.vocab.mask_id).any(), "a mask id in the result"
        filled = int((branch.ids[prompt:] != self.vocab.mask_id).sum())
        return Generation(tuple(ids.tolist()), "length" if end is None else "eos", filled, tuple(self.steps))
