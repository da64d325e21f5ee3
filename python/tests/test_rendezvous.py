"""Meetings of ranks in a store that has seen other ones."""

from __future__ import annotations

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
    with pytest.raises(
        torch_mcast.WaitTimeoutError, match="to the rendezvous" if alone == 0 else "it has not come"
    ):
        exchange(store, alone, 3, b"dead", SHORT)
    for start, size in (("b", 3), ("c", 2)):
        assert meet(store, start, size) == said(start, size)


def test_a_meeting_whose_rank_0_died_ends_with_the_next() -> None:
    store = HashStore()
    with pytest.raises(torch_mcast.WaitTimeoutError, match=r"2 of 3 .*: \[1, 2\]"):
        exchange(store, 0, 3, b"dead", SHORT)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(exchange, store, 1, 2, b"b1", LONG)  # to the meeting of the dead
        store.wait(["mcast/1/1"], LONG)
        assert exchange(store, 0, 2, b"b0", LONG) == [b"b0", b"b1"]
        assert told.result() == [b"b0", b"b1"]


def test_a_meeting_that_has_ended_is_left_as_it_is() -> None:
    store = HashStore()
    assert meet(store, "a", 2) == said("a", 2)
    with pytest.raises(torch_mcast.WaitTimeoutError):
        exchange(store, 1, 2, b"b1", SHORT)
    assert store.get("mcast/1/1") == b"a1"  # for a rank that has not read it yet


def test_rank_0_is_named_where_it_has_not_come() -> None:
    with pytest.raises(torch_mcast.WaitTimeoutError, match=r"^rank 0 of 2 has not ended .* it has not come$"):
        exchange(HashStore(), 1, 2, b"b1", SHORT)


@pytest.mark.parametrize("size", [2, 4])  # all have come to the meeting of the dead, or not
def test_rank_0_is_named_where_the_one_before_died(size: int) -> None:
    store = HashStore()
    with pytest.raises(torch_mcast.WaitTimeoutError, match=r"1 of 2 .*: \[1\]"):
        exchange(store, 0, 2, b"dead", SHORT)
    with pytest.raises(
        torch_mcast.WaitTimeoutError, match=f"^rank 0 of {size} has not ended .* has not come and"
    ):
        exchange(store, 1, size, b"b1", SHORT)


class CalledLater(HashStore):
    """A store in which rank 0 of so many calls a meeting, and dies, as soon as another waits for it."""

    size = 0

    def wait(self, keys: list[str], timeout: timedelta) -> None:  # type: ignore[override]
        if keys == ["mcast/1/0"]:
            with pytest.raises(torch_mcast.WaitTimeoutError):
                exchange(self, 0, self.size, b"b0", SHORT)
        super().wait(keys, timeout)


@pytest.mark.parametrize(
    ("size", "why"), [(4, r"it waits for 2 ranks that have not come: \[2, 3\]"), (2, "all ranks have come")]
)
def test_whom_rank_0_waits_for_is_named(size: int, why: str) -> None:
    store = CalledLater()
    store.size = size
    with pytest.raises(torch_mcast.WaitTimeoutError, match=f"^rank 0 of {size} has not ended .* {why}"):
        exchange(store, 1, size, b"b1", timedelta(seconds=1))
