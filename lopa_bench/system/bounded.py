"""A call that is waited for no longer than is said, and that is done with once it was given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

LATE_SECONDS = 2.0  # for what is to be closed after an error


def bounded(
    call: Callable[[], object],
    seconds: float,
    given_up: threading.Event | None = None,
    late: Callable[[Any], object] = lambda _: None,
) -> Any:
    """What the call returns, waited for no longer than this: TimeoutError then, and what it raises otherwise.

    `given_up` is set with the error. `late` gets what the call returns after that (None if it raises), in its thread.
    """
    given_up = given_up or threading.Event()
    lock = threading.Lock()
    outcome: list[tuple[Any, BaseException | None]] = []

    def attempt() -> None:
        try:
            found: tuple[Any, BaseException | None] = (call(), None)
        except BaseException as error:
            found = (None, error)
        with lock:
            if found[1] is not None:
                given_up.set()
            is_late = given_up.is_set()
            outcome.append(found)
        if is_late:
            late(found[0])

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    with lock:
        if not outcome:
            given_up.set()
            raise TimeoutError(f"no answer within {seconds:g} s")
    value, error = outcome[0]
    if error is not None:
        thread.join(LATE_SECONDS)  # it closes what is open
        raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    return value
