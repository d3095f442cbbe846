"""Lookahead: rows beside the anchor in one forward, and which of them goes on (docs/lookahead.md)."""

from decoders.lookahead.confirm import Confirm
from decoders.lookahead.exact import Exact
from decoders.lookahead.gate import Gate
from decoders.lookahead.score import ByScore
from decoders.lookahead.select import Select

SELECTS: dict[str, type[Select]] = {select.name: select for select in (ByScore, Gate, Confirm, Exact)}
