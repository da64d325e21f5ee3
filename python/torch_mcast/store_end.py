"""When torch's store ends with the last group of a process, and a program may begin anew at the same port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch._C._distributed_c10d import Store

from .group import Group, open_groups

_MOST_S = 1.0  # for rank 0 to let go of its store, which it may keep


@contextmanager
def rank_0_first(group: Group, store: Store) -> Iterator[None]:
    """Have rank 0 leave first, where the last group of this process is left within.

    Its process serves a TCPStore, which ends as it leaves. A rank that had left before would connect to that
    store if it called init_process_group again, and lose it at once. torchrun's agent serves one that stays.
    """
    connection = None
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if group.rank > 0 and not agent and open_groups <= {group}:
        connection = _connected(store)
    if connection is None:
        yield
        return
    with connection:
        yield
        with suppress(OSError):
            if not group.failed:
                connection.recv(1)  # nothing is ever sent: it returns once the other end has closed


def _server_of(store: Any) -> tuple[str, int]:
    """Return host and port of a TCPStore's server, also under prefixes; "" and 0 of another store."""
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    return getattr(store, "host", ""), getattr(store, "port", 0)


def _connected(store: Store) -> socket.socket | None:
    """Return a connection to the server of a TCPStore, or None."""
    host, port = _server_of(store)
    try:
        return socket.create_connection((host, port), timeout=_MOST_S) if host and port else None
    except OSError:
        return None
