"""Messages between processes: objects of JSON over a pipe or a socket, and the certainty that the other side is gone.

Nothing that comes in is executed or unpickled. Numbers keep their value: a float's text is exact.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end of a connection. `send` and `receive` raise EOFError when the other end is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, **message: Any) -> None:
        """One message, whole; several threads may send."""
        data = json.dumps(message, default=_plain).encode()
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError as error:
            raise EOFError(str(error)) from None

    def receive(self) -> Message:
        """The next message; waits for it."""
        try:
            message = json.loads(self._connection.recv_bytes())
        except (OSError, ValueError) as error:
            raise EOFError(str(error)) from None
        if not isinstance(message, dict):
            raise EOFError(f"no message but {type(message).__name__}")
        return message

    def close(self) -> None:
        """Both ends see it at once, also a thread here that waits for a message. The descriptor lives as long as this
        object: closed under such a thread, its number might be another file's by the next read.
        """
        with suppress(OSError, ValueError), socket.socket(fileno=os.dup(self._connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)


class Inbox:
    """Reads a channel in a thread, so that the end of the other side is noticed whatever this process is at.

    `at_end` is then called in that thread, with the last message that came; `receive` gives None from then on.
    """

    def __init__(self, channel: Channel, at_end: Callable[[Message | None], object] | None = None) -> None:
        self._channel, self._at_end = channel, at_end
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self.is_over = False
        threading.Thread(target=self._read, daemon=True).start()

    def receive(self, wait: bool = True) -> Message | None:
        """The next message; None if there is none: yet, or ever again (`is_over`)."""
        try:
            message = self._messages.get(block=wait and not (self.is_over and self._messages.empty()))
        except Empty:
            return None
        return message

    def _read(self) -> None:
        last: Message | None = None
        try:
            while True:
                last = self._channel.receive()
                self._messages.put(last)
        except EOFError:
            self.is_over = True
            self._messages.put(None)  # wakes who waits
            if self._at_end:
                self._at_end(last)


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch, and what json has no form of: tuples it takes itself, mappings are made dicts."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no message")
