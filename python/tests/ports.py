"""Ports for servers that tests start by number."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held() -> Iterator[int]:
    """Give a TCP port that the kernel gives to nobody else meanwhile. A server may listen there."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        yield port
