"""What a decoder says to a backend and gets back.

A decoder is a generator: it yields a `Request`, is sent the `Prediction`, and returns a `Generation`. It never sees
logits, a model or a device. Shapes: R rows (branches), W window positions. Positions count from the first prompt token.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

MEASURES = ("prob", "margin", "neg_entropy")  # by which masks can be ranked
CHANGE = "kl"  # what else a fill rule may ask for
SHADOW = "shadow"  # what a rule that takes tokens back may ask of filled positions


@dataclass(frozen=True)
class Vocabulary:
    """The ids a decoder must know. `end_ids` are all ids that end a text, the first one that of config.json; `size`
    counts the model's outputs.
    """

    mask_id: int
    end_ids: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Readout:
    """How logits become a prediction; constant over a decode.

    `measures`: what to compute beside the best token and its probability: "margin" (p1 - p2), "neg_entropy"
    (sum p ln(p + 1e-10), in nats) and "kl" (sum p ln((p + 1e-12) / (q + 1e-12)), in nats: q is the distribution that
    the position had in the last forward that read it, in the row that was followed; zeros if there was none), and
    "shadow": of filled positions inside `Request.shadow` alone, the probability of the token that stands there, as a
    further mask at that position gives it, which sees everything but the position itself.
    `penalty` is subtracted from the logit of the token that stands left of a position, if it is of the same block.
    `mask_logit`: "exclude" takes the mask id out before the softmax, "keep" leaves it in the normalisation (the
    released programs); it is never the best token either way. `temperature` above 0 draws the token from
    softmax(logits / temperature) instead, by a generator that starts from `seed`; all measures are then those of the
    tempered distribution, `prob` that of the drawn token (Dream's sampler).

    Behind the temperature, `top_p` leaves the most probable tokens until their sum passes it (the one that passes it
    stays), then `top_k` those that no k others beat; the others get probability 0. `cfg_scale` s above 0 takes
    u + (s + 1)(l - u) for the logits l, with u those of the text without its prompt (`Request.unconditional`). Ids in
    `never` get probability 0. To the logits of ids in `fading`, `Request.fade` is added. Ids in `last` may be the best
    token, and then have `prob` 0; `prob` of others is that of the distribution without them.
    """

    measures: frozenset[str] = frozenset()
    mask_logit: str = "exclude"
    temperature: float = 0.0
    seed: int = 0
    top_p: float = 1.0
    top_k: int | None = None
    cfg_scale: float = 0.0
    never: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    penalty: float = 0.0
    fading: tuple[int, ...] = ()


@dataclass(frozen=True)
class Keep:
    """Store what row `row` of the previous forward computed for positions [start, end) in the shared cache."""

    row: int
    start: int
    end: int


@dataclass(frozen=True)
class Request:
    """One model call: R rows of W tokens at positions [start, start + W) on top of the cached positions [0, start).

    `ids` [R, W] is filled up with mask ids behind a row's own `lengths` [R]; those places see and are seen by nobody.
    `blocks` [W] numbers the blocks for block-causal attention (a position sees blocks up to its own); None is full
    attention. `suffix` = (from, to) makes cached positions behind the window visible too. `keep` is carried out first.
    `follows` is the row of the previous call that these rows go on from.
    `behind` asks for the position behind each row as well, of which only a model of shifted logits says something.
    `unconditional` above 0: each row is carried a second time with masks in place of its first `unconditional`
    positions, the prompt, for the guidance of `Readout.cfg_scale`.
    `predict` = (from, to): of these positions everything is predicted, filled ones too, not masks alone.
    `shadow` = (from, to) appends to every row a mask for each of these positions, at the place that predicts it (its
    own, or with shifted logits the one before): it sees what the position sees but for the position itself, and the
    other shadows; no position sees a shadow.
    `fade` [R]: what is added to the logits of `Readout.fading` at every position of a row.
    """

    ids: np.ndarray
    lengths: np.ndarray
    start: int
    readout: Readout
    blocks: np.ndarray | None = None
    suffix: tuple[int, int] | None = None
    keep: Keep | None = None
    behind: bool = False
    follows: int = 0
    unconditional: int = 0
    predict: tuple[int, int] | None = None
    shadow: tuple[int, int] | None = None
    fade: np.ndarray | None = None

    @property
    def passes(self) -> int:
        """Rows of the model call for one of `ids`."""
        return 2 if self.unconditional else 1

    @property
    def shadows(self) -> int:
        """Columns that a row has more than positions."""
        return self.shadow[1] - self.shadow[0] if self.shadow else 0

    @property
    def positions_processed(self) -> int:
        """Shadows included."""
        return (int(self.ids.size) + len(self.ids) * self.shadows) * self.passes


@dataclass(frozen=True)
class Prediction:
    """What the model says of every masked position and of those that `Request.predict` names, all arrays [R, W]; other
    positions hold no meaning.

    `token`: the best id (never the mask id; the lowest on ties). `prob`: its probability, float32.
    `margin`, `neg_entropy`, `kl`, `shadow`: as asked for in the request's readout. All are [R, W + 1] if the request
    asks for what lies `behind`; the token of a position that the model says nothing of is -1 there.
    """

    token: np.ndarray
    prob: np.ndarray
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    def measure(self, name: str) -> np.ndarray:
        return self.prob if name == "prob" else self.extra[name]


class Edit(NamedTuple):
    """A filled position that changed; `new` is the mask id where its token was taken back."""

    position: int
    old: int
    new: int


@dataclass(frozen=True)
class Step:
    """One forward and what was made of it (METRICS.md, raw facts per step). Branch 0 is the anchor.

    Branch j assumes `lookahead_counts[j - 1]` positions more than the anchor or, in a draft, than the branch before it;
    without counts one each. `fresh_probs`: the probability that the row of the one without them gives to each, None
    where another token is its best. `bonus`, `gain`: to what each branch owes its score
    (decoders/lookahead/rewards.py). `taken_*`: what the confirmed steps of a draft filled in this forward before the
    winner's own fill, with the probabilities that confirmed it; `base_fills`: how many positions each step filled,
    theirs and the winner's. `edits`: what the rule changed of the winner's filled positions, in the same moment as it
    filled `positions`. What a way of lookahead or a rule does not have is None.
    `passes`: rows of the model call for one branch, 2 under classifier-free guidance.
    """

    window_start: int
    window_width: int
    branches: int
    winner: int
    scores: tuple[float, ...]
    positions: tuple[int, ...]  # filled in this step by the fill rule
    tokens: tuple[int, ...]
    probs: tuple[float, ...]
    masks_left: int
    cached: int
    tokens_processed: int
    kept: tuple[int, int] | None  # positions of this forward that the winner gives to the cache
    lookahead_positions: tuple[int, ...] = ()  # what branch 1, 2, ... assumes
    lookahead_tokens: tuple[int, ...] = ()
    lookahead_counts: tuple[int, ...] | None = None
    fresh_probs: tuple[float | None, ...] | None = None
    bonus: tuple[float | None, ...] | None = None
    gain: tuple[float | None, ...] | None = None
    taken_positions: tuple[int, ...] | None = None
    taken_tokens: tuple[int, ...] | None = None
    taken_probs: tuple[float, ...] | None = None
    base_fills: tuple[int, ...] | None = None
    passes: int = 1
    edits: tuple[Edit, ...] | None = None

    @property
    def base_steps(self) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]]:
        """Positions, tokens and probabilities of each step that this forward took, in order."""
        positions = (*(self.taken_positions or ()), *self.positions)
        tokens, probs = (*(self.taken_tokens or ()), *self.tokens), (*(self.taken_probs or ()), *self.probs)
        found, at = [], 0
        for count in self.base_fills or (len(positions),):
            part = slice(at, at + count)
            found.append((positions[part], tokens[part], probs[part]))
            at += count
        return found


@dataclass(frozen=True)
class Generation:
    """The result of a decode.

    `ids` end with the first end token if there is one (with `decode_tail` they hold the whole window). `window_tokens`
    counts all positions right of the prompt that were filled, text behind the end token included.
    `finish_reason` is "eos" or "length".
    """

    ids: tuple[int, ...]
    finish_reason: str
    window_tokens: int
    steps: tuple[Step, ...]

    @property
    def rounds(self) -> int:
        return len(self.steps)

    @property
    def forwards(self) -> int:
        """Model calls; a call that carries several branches is one call."""
        return len(self.steps)

    @property
    def rows(self) -> int:
        """Rows of all model calls."""
        return sum(step.branches * step.passes for step in self.steps)

    @property
    def edits(self) -> int | None:
        """Changes of filled positions, None for a decoder that makes none. No edit counts as a token."""
        counts = [len(step.edits) for step in self.steps if step.edits is not None]
        return sum(counts) if counts else None

    @property
    def tokens_processed(self) -> int:
        return sum(step.tokens_processed for step in self.steps)


Decode = Generator[Request, Prediction, Generation]
