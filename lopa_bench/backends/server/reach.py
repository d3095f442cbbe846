"""Whether a server is there at all, without asking it anything."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from lopa_bench.backends.server.launch import find_program
from lopa_bench.errors import BackendError
from lopa_bench.settings.backend import ServerSettings

SECONDS = 3.0


def check_there(settings: ServerSettings) -> None:
    """Raises BackendError if nothing listens at the URL, or if the program that would be started is not installed."""
    if settings.launch:
        if "{" not in settings.command[0]:
            find_program(settings.command[0])
        return
    assert settings.url is not None
    try:
        parts = urlsplit(settings.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), SECONDS).close()
    except (OSError, ValueError) as error:
        raise BackendError(
            f"backend.url={settings.url} does not answer ({error}); allowed: the address of a running server, or "
            "backend.launch=true to start one"
        ) from None
