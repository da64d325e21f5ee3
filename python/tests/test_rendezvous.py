"""Meetings of ranks in a store that has seen other ones."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from threading import Event

import pytest
from torch._C._distributed_c10d import HashStore, Store

import torch_mcast
from torch_mcast import rendezvous
from torch_mcast.group import Group
from torch_mcast.rendezvous import exchange

from .limits import LIMIT, LIMIT_MS, LIMIT_S, until

SHORT = timedelta(milliseconds=200)  # to wait in vain


def meet(store: Store, start: str, size: int) -> list[list[bytes]]:
    """Return what each rank of a start of the job gets; the last rank comes first."""
    with ThreadPoolExecutor(size) as pool:
        got: list[Future[list[bytes]]] = [
            pool.submit(exchange, store, rank, size, f"{start}{rank}".encode(), LIMIT)
            for rank in reversed(range(size))
        ]
        return [t.result() for t in got]


def spoken(blob: bytes) -> bytes:
    """Return what stands for a blob at a meeting."""
    return f'{{"rendezvous":2,"blobs":"{sha256(blob).hexdigest()}"}}'.encode()


def said(start: str, size: int) -> list[list[bytes]]:
    """Return what each rank is to get."""
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
        one = pool.submit(exchange, store, 1, 2, b"b1", LIMIT)  # to the meeting of the dead
        store.wait(["mcast/1/1"], LIMIT)
        assert exchange(store, 0, 2, b"b0", LIMIT) == [b"b0", b"b1"]
        assert one.result() == [b"b0", b"b1"]


def test_a_meeting_that_has_ended_is_left_as_it_is() -> None:
    store = HashStore()
    assert meet(store, "a", 2) == said("a", 2)
    with pytest.raises(torch_mcast.WaitTimeoutError):
        exchange(store, 1, 2, b"b1", SHORT)
    assert store.get("mcast/1/1") == spoken(b"a1")  # for a rank that has not read it yet


class EndsBetween(HashStore):
    """A store in which a meeting ends just after a newcomer has seen that it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.looked, self.spoken = Event(), Event()  # what the newcomer has done

    def check(self, keys: list[str]) -> bool:
        seen = super().check(keys)
        if keys == ["mcast/1/ended"] and not self.looked.is_set():
            self.looked.set()
            self.wait(keys, LIMIT)
        return seen

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]
        super().set(key, value)  # type: ignore[arg-type]
        if (key, value) == ("mcast/1/1", spoken(b"b1")):
            self.spoken.set()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if keys == ["mcast/1/ended"]:
            assert self.spoken.wait(LIMIT_S)
        return super().multi_get(keys)


def test_who_comes_as_a_meeting_ends_changes_it_for_nobody() -> None:
    store = EndsBetween()
    with ThreadPoolExecutor(3) as pool:
        zero = pool.submit(exchange, store, 0, 2, b"a0", LIMIT)
        store.wait(["mcast/1/0"], LIMIT)
        new = pool.submit(exchange, store, 1, 2, b"b1", LIMIT)
        assert store.looked.wait(LIMIT_S)
        one = pool.submit(exchange, store, 1, 2, b"a1", LIMIT)
        assert zero.result() == one.result() == [b"a0", b"a1"]
        assert exchange(store, 0, 2, b"b0", LIMIT) == [b"b0", b"b1"]
        assert new.result() == [b"b0", b"b1"]


def test_a_rank_that_waits_says_for_whom(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rendezvous, "_WARN_S", 0.05)
    store = HashStore()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(exchange, store, 0, 2, b"a0", LIMIT)
        until(lambda: caplog.messages, "a warning")
        assert exchange(store, 1, 2, b"a1", LIMIT) == first.result() == [b"a0", b"a1"]
    assert caplog.messages[0] == "1 of 2 ranks have not come to the rendezvous within 0.05 s: [1]"


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


def test_who_is_missing_is_named_by_those_who_come_after_rank_0() -> None:
    store = HashStore()
    with pytest.raises(torch_mcast.WaitTimeoutError):
        exchange(store, 0, 4, b"b0", SHORT)
    why = r"it waits for 2 ranks that have not come: \[2, 3\]; or it has not come and"
    with pytest.raises(torch_mcast.WaitTimeoutError, match=why):
        exchange(store, 1, 4, b"b1", SHORT)


@pytest.mark.parametrize(
    ("size", "why"), [(4, r"it waits for 2 ranks that have not come: \[2, 3\]"), (2, "all ranks have come")]
)
def test_whom_rank_0_waits_for_is_named(size: int, why: str) -> None:
    store = CalledLater()
    store.size = size
    with pytest.raises(torch_mcast.WaitTimeoutError, match=f"^rank 0 of {size} has not ended .* {why}"):
        exchange(store, 1, size, b"b1", timedelta(seconds=1))


BEFORE = b'{"v":7,"r":0,"n":2}'  # what ranks of builds before said at a meeting: their blob


def test_ranks_of_builds_before_are_named_and_told() -> None:
    store = HashStore()
    store.set("mcast/1/1", BEFORE)  # type: ignore[arg-type]
    with ThreadPoolExecutor(2) as pool:
        mine = [pool.submit(exchange, store, rank, 3, b"%d" % rank, LIMIT) for rank in (0, 2)]
        for rank, one in zip((0, 2), mine, strict=True):
            with pytest.raises(
                torch_mcast.MismatchError,
                match=rf"^1 of 3 ranks .* than rank {rank}: \[1\]; install the same",
            ):
                one.result()
    said = [store.get(f"mcast/1/{rank}") for rank in range(3)]
    each = b"".join(sha256(one).digest() for one in said)
    assert store.get("mcast/1/ended") == sha256(each).hexdigest().encode()  # for which rank 1 waits


def test_rank_0_of_a_build_before_is_named_and_told() -> None:
    store = HashStore()
    store.set("mcast/1/0", BEFORE)  # type: ignore[arg-type]
    with pytest.raises(
        torch_mcast.MismatchError, match=r"^1 of 2 ranks .* than rank 1: \[0\]; install the same"
    ):
        exchange(store, 1, 2, b"b1", LIMIT)
    assert store.get("mcast/1/1") == spoken(b"b1")  # for which rank 0 waits


def test_rank_0_of_a_build_before_is_named_where_it_ends_the_meeting_of_the_dead() -> None:
    store = HashStore()
    with pytest.raises(torch_mcast.WaitTimeoutError):
        exchange(store, 0, 2, b"dead", SHORT)
    with ThreadPoolExecutor(1) as pool:
        one = pool.submit(exchange, store, 1, 2, b"b1", LIMIT)
        store.wait(["mcast/1/1"], LIMIT)
        store.set("mcast/1/ended", b"by the next")  # type: ignore[arg-type]
        with pytest.raises(torch_mcast.MismatchError, match=r"^1 of 2 ranks .* than rank 1: \[0\];"):
            one.result()


def test_what_is_said_is_another_version_to_builds_before() -> None:
    with pytest.raises(
        torch_mcast.MismatchError,
        match=r"rank 1 speaks version 0 of the protocol \(an unknown commit\), rank 0 version",
    ):
        Group(0, 2, "", lambda blob: [blob, spoken(b"b1")], LIMIT_MS)
