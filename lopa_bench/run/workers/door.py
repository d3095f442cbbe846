"""How processes on several machines find the one that leads their run: a file beside the runs, and a socket.

The file tells the address and a secret, to its owner alone. Both sides prove that they know the secret before anything
else is read, and nothing that comes over the socket is executed.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from types import TracebackType
from typing import Any

from lopa_bench.system.channel import Channel, Message
from lopa_bench.system.storage import whole_file

PATIENCE_SECONDS = 10.0  # for the other side to say its first word
GONE_SECONDS = 60  # after which a machine that answers nothing is taken for lost


def place_of(runs: Path, key: str) -> Path:
    """The file that says where the leader of the run with this key is."""
    return runs / f".workers.{key[:16]}.json"


class Door:
    """Open while this process leads a run: whoever comes is handed to `welcome` with its words and its channel.

    `is_spread`: they may come from other machines.
    """

    def __init__(self, path: Path, welcome: Callable[[Message, Channel], object], is_spread: bool) -> None:
        self._path, self._welcome = path, welcome
        self._secret = secrets.token_bytes(32)
        self._socket = socket.create_server(("" if is_spread else "127.0.0.1", 0), backlog=128)
        self._address = self._socket.getsockname()[1]

    def __enter__(self) -> Door:
        threading.Thread(target=self._accept, daemon=True).start()
        facts = {"host": socket.gethostname(), "port": self._address, "secret": self._secret.hex(), "pid": os.getpid()}
        with whole_file(self._path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps(facts).encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, ValueError, KeyError):
            if json.loads(self._path.read_text("utf-8"))["secret"] == self._secret.hex():  # nobody leads it since
                self._path.unlink()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for somebody
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._let_in, args=(connected,), daemon=True).start()

    def _let_in(self, connected: socket.socket) -> None:
        """Whoever does not know the secret, or says nothing, is left outside."""
        connection = _connection(connected)
        try:
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            channel = Channel(connection)
            self._welcome(channel.receive(), channel)
        except (OSError, EOFError, AuthenticationError, ValueError, AssertionError):
            connection.close()


def knock(path: Path, **words: Any) -> Channel | None:
    """A channel to the process that leads the run; None if there is no such process, or not any more."""
    try:
        facts = json.loads(path.read_text("utf-8"))
        secret = bytes.fromhex(facts["secret"])
        host = "127.0.0.1" if facts["host"] == socket.gethostname() else facts["host"]
        connected = socket.create_connection((host, facts["port"]), PATIENCE_SECONDS)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    connected.settimeout(None)
    connection = _connection(connected)
    try:
        if not connection.poll(PATIENCE_SECONDS):
            raise EOFError
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
        channel = Channel(connection)
        channel.send(**words)
    except (OSError, EOFError, AuthenticationError, ValueError, AssertionError):
        connection.close()
        return None
    return channel


def _connection(connected: socket.socket) -> Connection:
    """Small messages at once, and an end for machines that vanish without a word."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (
        ("TCP_KEEPIDLE", GONE_SECONDS // 2),
        ("TCP_KEEPINTVL", GONE_SECONDS // 6),
        ("TCP_KEEPCNT", 3),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return Connection(connected.detach())
