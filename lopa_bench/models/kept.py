"""A network that stays loaded between the runs of one process, where these follow each other on the same weights.

Only its numbers stay. Threads, kernels, compiled steps, keys and values are each run's own, as if it had been loaded
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lopa_bench.models.device import free_devices

Keep = Callable[[Callable[[], Any]], Any]  # is told how a network is loaded, and gives that or one that is there


class KeptNetwork:
    """One network at most, so that no two take memory at once, with the key of whatever decides its numbers and where
    they lie (`network_key` of plan/identity.py).
    """

    def __init__(self) -> None:
        self._key: str | None = None
        self._network: Any = None

    def has(self, key: str) -> bool:
        return self._key == key

    def get(self, key: str, load: Callable[[], Any]) -> Any:
        """The network of this key. If it is not here, what is here is let go before `load` makes it."""
        if not self.has(key):
            self.drop()
            self._network = load()
            self._key = key
        return self._network

    def drop(self) -> None:
        if self._key is not None:
            self._key = self._network = None
            free_devices()


def anew(load: Callable[[], Any]) -> Any:
    """Keeps nothing."""
    return load()
