"""A store of torch.distributed whose answers are waited for no longer than somebody is willing to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import torch.distributed as dist

Question = tuple[Callable[[], Any], SimpleQueue[Any]]  # what to ask, and where its answer goes


class PatientStore:
    """Torch's client waits without end for a server that was stopped. Here RuntimeError is raised after `limit_s`, and
    from then on at once. Several threads may ask.
    """

    def __init__(self, store: dist.Store, limit_s: float) -> None:
        self.store, self.limit_s = store, limit_s
        self._is_lost = False
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        threading.Thread(target=_ask, args=(self._questions,), daemon=True).start()
        weakref.finalize(self, self._questions.put, None)

    def check(self, key: str) -> bool:
        """Whether somebody has set it."""
        return bool(self._answer(lambda: self.store.check([key])))

    def get(self, key: str) -> bytes:
        """The value of a key; waits until somebody sets it."""
        return bytes(self._answer(lambda: self.store.get(key)))

    def set(self, key: str, value: str) -> None:
        self._answer(lambda: self.store.set(key, value))

    def _answer(self, question: Callable[[], Any]) -> Any:
        answer: SimpleQueue[Any] = SimpleQueue()
        if not self._is_lost:
            self._questions.put((question, answer))
        try:
            found = answer.get(timeout=0 if self._is_lost else self.limit_s)
        except Empty:
            self._is_lost = True
            raise RuntimeError(f"the store gave no answer in {self.limit_s:g} s") from None
        if isinstance(found, Exception):
            raise found
        return found


def _ask(questions: SimpleQueue[Question | None]) -> None:
    """The work of a thread that may be stuck for ever. It holds the store no longer than a question takes."""
    while (asked := questions.get()) is not None:
        question, answer = asked
        try:
            answer.put(question())
        except Exception as error:
            answer.put(error)
        del asked, question, answer
