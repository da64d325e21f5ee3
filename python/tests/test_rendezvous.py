"""Meetings of ranks in a store that has seen other ones."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import HashStore, Store

import torch_mcast
from torch_mcast.rendezvous import exchange

LONG, SHORT = timedelta(seconds=60), timedelta(milliseconds=200)


def meet(store: Store, start: str, size: int) -> list[list[bytes]]:
    """Return what each rank of a start of the job is told; the last rank comes first."""
    with ThreadPoolExecutor(size) as pool:
        told: list[Future[list[bytes]]] = [
            pool.submit(exchange, store, rank, size, f"{start}{rank}".encode(), LONG)
            for rank in reversed(range(size))
        ]
        return [t.result() for t in told]


def said(start: str, size: int) -> list[list[bytes]]:
    """Return what each rank is to be told."""
    return [[f"{start}{rank}".encode() for rank in range(size)]] * size


def test_more_ranks_and_fewer_come_after_others() -> None:
    store = HashStore()
    for start, size in (("a", 2), ("b", 3), ("c", 1), ("d", 4), ("e", 4), ("f", 1), ("g", 2)):
        assert meet(store, start, size) == said(start, size)


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_who_died_waiting_is_not_taken_for_who_comes_now(alone: int) -> None:
    store = HashStore()
    assert meet(store, "a", 2) == said("a", 2)
    with pytest.raises(torch_mcast.WaitTimeoutError, match="have not come to the rendezvous"):
        exchange(store, alone, 3, b"dead", SHORT)
    for start, size in (("b", 3), ("c", 2)):
        assert meet(store, start, size) == said(start, size)


def test_a_meeting_whose_rank_0_died_ends_with_the_next() -> None:
    store = HashStore()
    with pytest.raises(torch_mcast.WaitTimeoutError, match=r"2 of 3 .*: \[1, 2\]"):
        exchange(store, 0, 3, b"dead", SHORT)
    here = threading.Event()

    def come() -> list[bytes]:
        here.set()
        return exchange(store, 1, 2, b"b1", LONG)

    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(come)  # to the meeting of the dead
        here.wait()
        store.wait(["mcast/1/1"], LONG)
        assert exchange(store, 0, 2, b"b0", LONG) == [b"b0", b"b1"]
        assert told.result() == [b"b0", b"b1"]


def test_who_is_missing_is_named() -> None:
    store = HashStore()
    with pytest.raises(torch_mcast.WaitTimeoutError, match=r"1 of 2 .*: \[0\]"):
        exchange(store, 1, 2, b"b1", SHORT)
