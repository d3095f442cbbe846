"""Rules that change what they have filled: joint threshold writes over it, WINO and Saber take it back.

They answer with `decide`: which masks are filled, and what becomes of the filled positions of the same view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.parts.fills import Fill, View, top
from decoders.state import REMASK, Branch, Revision

NO_POSITIONS = np.array([], dtype=np.int64)


def taken_back(positions: np.ndarray) -> Revision:
    """These positions [N] become masks again."""
    return Revision(positions, np.full(len(positions), REMASK))


class JointThreshold(Fill):
    """LLaDA2.1's decoding (T2T, token to token): every mask with prob > tau_conf is filled, at least the
    `tokens_per_step` best, and in the same round every filled position whose best token is another one with prob >
    tau_edit is written over.

    A block that is full is looked at until nothing changes, `max_post_edit` times at most. `capped`: where that cap
    ends it, `verify` looks once more and changes nothing, so that the last forward has seen the block as it stays
    (SGLang); `end` does not (the model's own program). memory: (forwards over the full block,).
    """

    reads: ClassVar[Mapping[str, Any]] = {
        "tau_conf": 0.5,
        "tau_edit": 0.0,
        "max_post_edit": 16,
        "capped": "verify",
        "penalty": 0.0,
        "tokens_per_step": 1,
    }
    edits = True
    predicts_filled = True

    @property
    def budget(self) -> int:
        assert self.config.max_post_edit is not None
        return self.borders.blocks * (self.config.max_post_edit + 1)

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.tokens_per_step is not None
        passed = np.flatnonzero(view.prob > self.config.tau_conf)
        enough = len(passed) >= self.config.tokens_per_step
        return passed if enough else top(view.prob, self.config.tokens_per_step)

    def decide(self, view: View, branch: Branch) -> tuple[np.ndarray, Revision]:
        standing, cap = view.standing, self.config.max_post_edit
        assert standing is not None
        assert cap is not None
        chosen = self.select(view, branch)
        (looks,) = branch.memory or (0,)
        looks += len(view) == 0
        branch.memory = (looks,)
        other = standing.token != branch.ids[standing.position]
        changed = np.flatnonzero(other & (standing.prob > self.config.tau_edit))
        is_over = len(view) == 0 and (len(changed) == 0 or looks > cap)
        if looks > cap:
            changed = NO_POSITIONS
        if self.config.capped == "end":
            is_over |= len(chosen) == len(view) and looks >= cap
        settled = tuple({*view.block.tolist(), *standing.block.tolist()}) if is_over else ()
        return chosen, Revision(standing.position[changed], standing.token[changed], settled)


class Wino(Fill):
    """WINO (wide in, narrow out; arXiv 2507.18578): masks with prob > tau_conf are filled, and filled positions are
    masked again where a shadow, which does not see the token that stands there, gives it a probability < tau_back.

    At most .7 of the masks are filled, but 5 to 20 in any case, the most confident ones; the most confident one always.
    Fewer positions are taken back than were filled the forward before (30 before the first), those of the lowest
    probability, and none in a forward that fills one: each forward gains at least one, all in all. memory: (filled,).
    """

    reads: ClassVar[Mapping[str, Any]] = {"tau_conf": 0.6, "tau_back": 0.9}
    measures = ("shadow",)
    edits = True
    shadowed = True
    alone = "how many tokens it takes back goes by what its own forward before has filled"

    SHARE, LEAST, MOST, BEFORE = 0.7, 5, 20, 30

    def select(self, view: View, branch: Branch) -> np.ndarray:
        cap = min(max(int(self.SHARE * len(view)), self.LEAST), self.MOST)
        passed = np.flatnonzero(view.prob > self.config.tau_conf)
        return top(view.prob, cap) if len(passed) > cap else passed if len(passed) else top(view.prob, 1)

    def decide(self, view: View, branch: Branch) -> tuple[np.ndarray, Revision]:
        standing = view.standing
        assert standing is not None
        chosen = self.select(view, branch)
        (before,) = branch.memory or (self.BEFORE,)
        branch.memory = (len(chosen),)
        prob = standing.measure("shadow")
        doubtful = np.flatnonzero(prob < self.config.tau_back) if len(chosen) > 1 else NO_POSITIONS
        if len(doubtful) >= before:
            doubtful = top(-prob, int(before) - 1)
        return chosen, taken_back(standing.position[doubtful])


class Saber(Fill):
    """Saber (arXiv 2510.18165): masks with a probability above the mean of those with which all were filled so far, at
    least `tokens_per_step`; then those lose their token whose highest probability fell most since the forward before.

    Of F filled positions max(tokens_per_step // 2, (F + 7) // 8) are taken back, at most F - 1, of all blocks so far
    and of those just filled too; none in a forward after which no mask is left in them. A position that just came to
    take part has no forward before. memory: for each position the probability with which it was filled last, then the
    highest one of the forward before (nan: none).
    """

    reads: ClassVar[Mapping[str, Any]] = {"tokens_per_step": 2}
    edits = True
    predicts_filled = True
    alone = "it goes by how far a prediction moved since its own forward before"

    def select(self, view: View, branch: Branch) -> np.ndarray:
        filled_with, _ = self._memory(branch)
        least = self.config.tokens_per_step
        assert least is not None
        known = filled_with[~np.isnan(filled_with)]
        passed = np.flatnonzero(view.prob > (known.mean() if len(known) else 1.0))
        return passed if len(passed) >= least else top(view.prob, least)

    def decide(self, view: View, branch: Branch) -> tuple[np.ndarray, Revision]:
        standing, first = view.standing, self.borders.prompt
        assert standing is not None
        chosen = self.select(view, branch)
        filled_with, before = self._memory(branch)
        filled_with[view.position[chosen] - first] = view.prob[chosen]
        now = np.full(self.borders.length, np.nan)
        now[view.position - first], now[standing.position - first] = view.prob, standing.prob
        branch.memory = (*filled_with.tolist(), *now.tolist())
        if len(chosen) == len(view):
            return chosen, taken_back(NO_POSITIONS)
        full = np.sort(np.concatenate([standing.position, view.position[chosen]]))
        rise = now[full - first] - before[full - first]
        fallen = full[top(-np.where(np.isnan(rise), np.inf, rise), self._taken_back(len(chosen), rise))]
        return chosen[~np.isin(view.position[chosen], fallen)], taken_back(np.intersect1d(fallen, standing.position))

    def _taken_back(self, filled: int, rise: np.ndarray) -> int:
        """How many of the full positions are masked again; those without a forward before are not."""
        assert self.config.tokens_per_step is not None
        wanted = max(self.config.tokens_per_step // 2, (filled + 7) // 8)
        return min(wanted, filled - 1, int((~np.isnan(rise)).sum()))

    def _memory(self, branch: Branch) -> tuple[np.ndarray, np.ndarray]:
        """By position: the probability with which it was filled, and the highest one of the forward before."""
        length = self.borders.length
        if not branch.memory:
            return np.full(length, np.nan), np.zeros(length)
        return np.array(branch.memory[:length]), np.array(branch.memory[length:])
