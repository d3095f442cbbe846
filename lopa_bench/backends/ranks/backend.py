"""The local backend of one rank: the same decodes, of whose rows it computes a part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lopa_bench.backends.local import LocalBackend, Pending, Running
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.ranks.link import Link
from lopa_bench.backends.ranks.session import Protocol, RankedSession
from lopa_bench.backends.session import Session
from lopa_bench.models.network.segments import KVCache
from lopa_bench.models.network.static import Network


class RankedBackend(LocalBackend):
    """Feeds the same decoders on all ranks. All of them have to decode the same texts in the same order."""

    def __init__(
        self,
        model: Network,
        link: Link,
        protocol: Protocol,
        max_length: int | None = None,
        prefix_reuse: str = "off",
        turn: Callable[[], None] = lambda: None,
    ):
        """`turn` is called before the first forward and before each that follows a finished sample: whoever takes the
        samples may take their time, and the other ranks wait for that as long as it lives.
        """
        super().__init__(model, max_length, prefix_reuse)
        self.link = link
        self.protocol = protocol
        self.turn = turn
        self._has_paused = True

    def stream(self, decodes: Iterable[Pending], batch: int = 1) -> Iterator[tuple[int, Outcome]]:
        for finished in super().stream(decodes, batch):
            yield finished
            self._has_paused = True

    def _session(self, cache: KVCache) -> Session:
        return RankedSession(cache, self.config.shifted, self.config.mask_id, self.link, self.protocol)

    def _forward(self, entries: list[Running]) -> None:
        if self._has_paused:
            self.turn()
            self._has_paused = False
        super()._forward(entries)
