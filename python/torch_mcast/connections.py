"""The TCP connections of an embedded gloo group, which torch has no call to end."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_ESTABLISHED = "01"
_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None)


class Connection(NamedTuple):
    """A socket: a descriptor may become somebody else's, which has another inode."""

    fd: int
    inode: int


class Connections:
    """Those of one group."""

    def __init__(self, connections: set[Connection]) -> None:
        """Take the connections that are known to be gloo's."""
        self._connections = connections
        self._pid = os.getpid()

    def end(self) -> None:
        """Have the peers' operations fail, though this process goes on. Raises nothing.

        Bytes that gloo has written arrive first. An operation that was only posted, such as a send without a
        posted receive, does not arrive.
        """
        ended, self._connections = self._connections, set()
        if os.getpid() != self._pid:  # a forked child has them, too, and they are not its own
            return
        for fd, inode in ended:
            try:
                own = os.dup(fd)  # gloo may close its descriptor at any time
            except OSError as e:
                if e.errno == errno.EMFILE:
                    _shut(fd, inode)
                continue
            _shut(own, inode)
            os.close(own)


def _shut(fd: int, inode: int) -> None:
    with suppress(OSError):
        if os.fstat(fd).st_ino == inode:
            _libc.shutdown(fd, socket.SHUT_WR)  # socket.socket could make gloo's non-blocking


def made_by(make: Callable[[], T], peers: int, store: Any) -> tuple[T, Connections]:
    """Return the result of make, and its connections: one to each peer, beside those to the store.

    If there are more, another thread has connected meanwhile, and if there are less, torch connects
    later: then none is known, and none is ended.
    """
    before = _sockets()
    made = make()
    _, port = server_of(store)
    connected = _established(port)
    new = {one for one in _sockets() - before if one.inode in connected}
    if len(new) != peers:
        _log.debug("gloo's connections cannot be told from others: %d are new, not %d", len(new), peers)
        new = set()
    return made, Connections(new)


def server_of(store: Any) -> tuple[str, int]:
    """Return host and port of a TCPStore's server, also under prefixes; "" and 0 of another store."""
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    return getattr(store, "host", ""), getattr(store, "port", 0)


def _established(without: int) -> set[int]:
    """Return the inodes of TCP connections, but those from or to a port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        rows = ""
        with suppress(OSError):  # e.g. no IPv6
            rows = Path("/proc/self/net", table).read_text()
        for row in rows.splitlines()[1:]:
            _, local, remote, state, *rest = row.split()
            ports = {int(address.rpartition(":")[2], 16) for address in (local, remote)}
            if state == _ESTABLISHED and without not in ports:
                inodes.add(int(rest[5]))
    return inodes


def _sockets() -> set[Connection]:
    """Return the sockets of this process, of any kind."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            link = os.readlink(f"/proc/self/fd/{name}")
            if link.startswith("socket:["):
                found.add(Connection(int(name), int(link[len("socket:[") : -1])))
    return found
