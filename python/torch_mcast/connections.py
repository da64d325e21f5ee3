"""The TCP connections of an embedded gloo group, which torch has no call to end."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Connections:
    """Those of one group, by descriptor and inode: a descriptor may become somebody else's."""

    def __init__(self, sockets: set[tuple[int, int]]) -> None:
        """Take the sockets that are known to be gloo's."""
        self._sockets = sockets
        self._pid = os.getpid()

    def end(self) -> None:
        """Have the peers' operations fail, though this process goes on. What was sent arrives first."""
        if os.getpid() != self._pid:  # a forked child has them, too, and they are not its own
            return
        for fd, _ in self._sockets & _connected():
            with socket.socket(fileno=os.dup(fd)) as connection:
                try:
                    connection.shutdown(socket.SHUT_WR)
                except OSError:  # the peer has ended it
                    continue
        self._sockets = set()


def made_by(make: Callable[[], T], peers: int) -> tuple[T, Connections]:
    """Return what is made, and its connections: one to each peer.

    If there are more, another thread has connected meanwhile, and if there are less, torch connects
    later: then none is known, and none is ended.
    """
    before = _connected()
    made = make()
    new = _connected() - before
    return made, Connections(new if len(new) == peers else set())


def _connected() -> set[tuple[int, int]]:
    """Return the TCP sockets of this process that are connected: descriptor and inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            about = os.fstat(fd)
            if not stat.S_ISSOCK(about.st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                    one.getpeername()
                    found.add((fd, about.st_ino))
        except OSError:  # closed meanwhile, or not connected
            continue
    return found
