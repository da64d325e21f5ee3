"""Who keeps what for how long: lanes, works and a close that is interrupted."""

from __future__ import annotations

import _thread
import gc
import json
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torch_mcast
from torch_mcast import _lib, ending, errors
from torch_mcast import group as group_module
from torch_mcast.group import Group, Info, Lane, Peer, open_groups
from torch_mcast.recorder import Recorder
from torch_mcast.work import McastWork

from .limits import LIMIT, LIMIT_MS, LIMIT_S, until
from .world import World


class Operation:
    """A Pending that is in flight until it is told otherwise."""

    def __init__(self, complete: Callable[[], None] = lambda: None) -> None:
        self.tensor = torch.ones(3)
        self._complete = complete

    def complete_future(self, told: Callable[[], None]) -> None:
        self._complete()

    def poll(self) -> bool:
        return False

    def settle(self) -> None:
        pass


def single(**functions: Any) -> Group:
    """Return a group of one rank with these functions of its library replaced."""
    group = Group(0, 1, "MCAST_FABRIC=shm", lambda blob: [blob], LIMIT_MS)
    real: Any = group.lib

    class Replaced:
        def __init__(self) -> None:
            self.functions = functions

        def __getattr__(self, name: str) -> Any:
            return self.functions.get(name) or getattr(real, name)

    replaced: Any = Replaced()
    group.lib = replaced
    return group


def work_of(group: Group, handle: int, finish: Callable[[], None] | None) -> McastWork:
    """Return the work of an operation of the gather lane without tensors."""
    return McastWork(group, group.gather, handle, "one", [], (), finish, LIMIT, 1, Recorder(), None)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """An interrupt raises KeyboardInterrupt, even in a background job, which starts with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_close_keeps_tensors_until_the_library_is_done() -> None:
    left = threading.Event()

    def wait(handle: int, timeout_ms: int) -> bool:
        if not left.is_set():
            _thread.interrupt_main()
            return False
        return _lib.library().wait(handle, timeout_ms)

    group = single(wait=wait)
    lanes = (group.gather, group.reduce)
    tensors = [weakref.ref(lane.post(lambda: 1, lambda _: Operation()).tensor) for lane in lanes]
    with pytest.raises(KeyboardInterrupt):
        group.close()
    gc.collect()
    assert all(tensor() is not None for tensor in tensors)
    left.set()
    group.close()
    gc.collect()
    assert [tensor() for tensor in tensors] == [None, None]


def test_a_closed_group_keeps_no_work_of_the_library() -> None:
    group = single()
    ones, out = torch.ones(3), torch.zeros(3)
    works = [
        group.gather.post(
            lambda: group.lib.allgather(group.live(), ones.data_ptr(), out.data_ptr(), ones.nbytes),
            lambda handle: work_of(group, handle, None),
        )
        for _ in range(3)
    ]
    group.close()
    for work in works:  # nobody has waited for them
        with pytest.raises(torch_mcast.ClosedError, match="unknown or closed handle"):
            _lib.library().test(work._handle)
        assert work.is_completed()  # well, or because the group was closed


def test_the_outcome_that_an_interrupt_lost_is_there_for_the_next_wait() -> None:
    interrupts = 0

    def wait(handle: int, timeout_ms: int) -> bool:
        nonlocal interrupts
        done = _lib.library().wait(handle, timeout_ms)
        if done and interrupts < 2:
            interrupts += 1
            raise KeyboardInterrupt  # as a signal that came while the library waited
        return done

    group = single(wait=wait)
    staged: list[int] = []
    work = group.gather.post(
        lambda: group.lib.barrier(group.live()),
        lambda handle: work_of(group, handle, lambda: staged.append(1)),
    )
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work.wait()
    assert work.wait()
    assert staged == [1]
    assert not group.failed
    group.close()


@contextmanager
def aborted_by_a_signal(group: Group) -> Iterator[None]:
    """Have SIGUSR1 abort the group, and end any wait for that after the limit."""

    def stuck(*_: object) -> None:
        raise TimeoutError("abort() waits for the call that it has interrupted")

    before = [
        signal.signal(signal.SIGUSR1, lambda *_: group.abort("told to end")),
        signal.signal(signal.SIGALRM, stuck),
    ]
    signal.alarm(int(LIMIT_S))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGUSR1, before[0])
        signal.signal(signal.SIGALRM, before[1])
    assert group.failed
    assert group not in open_groups


def test_a_signal_handler_may_abort_a_group_while_its_thread_closes_it() -> None:
    def wait(_handle: int, _timeout_ms: int) -> bool:
        signal.raise_signal(signal.SIGUSR1)  # as one that comes while the library waits
        return False

    group = single(leave=lambda _: 0, wait=wait)
    with aborted_by_a_signal(group):
        group.close()


def test_a_signal_handler_may_abort_a_group_while_its_thread_copies_a_result() -> None:
    group = single()
    full, copied = threading.Event(), threading.Event()

    def copy() -> None:
        other.start()
        assert full.wait(LIMIT_S)
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(RuntimeError, match="waits for the work that it interrupted"):
            work.wait()
        copied.set()

    def busy() -> int:
        if copied.is_set():
            raise errors.ClosedError("closed")
        full.set()
        raise errors.BusyError("full")

    def post() -> None:
        with pytest.raises(errors.ClosedError):  # once the work is done that it waits for
            group.gather.post(busy, lambda _: work_of(group, 0, None))

    other = threading.Thread(target=post)
    work = group.gather.post(
        lambda: group.lib.barrier(group.live()), lambda handle: work_of(group, handle, copy)
    )
    with aborted_by_a_signal(group):
        assert work.wait()
    assert copied.is_set()
    other.join(LIMIT_S)
    assert not other.is_alive()


def test_a_group_that_is_left_behind_its_close_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "LINGER_S", 0.0)
    left = False
    late = single(test=lambda _: left, wait=lambda _handle, _timeout_ms: left)
    late.close()
    single().close()
    assert late in open_groups
    left = True
    single().close()
    assert late not in open_groups


def test_groups_are_left_before_any_is_waited_for_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    groups = {name: single() for name in "ab"}
    for name, group in groups.items():

        def leave(handle: int, name: str = name) -> int:
            said.append(f"leave {name}")
            return _lib.library().leave(handle)

        def wait(handle: int, timeout_ms: int, name: str = name) -> bool:
            said.append(f"wait {name}")
            raise errors.InternalError("no")

        replaced: Any = group.lib
        replaced.functions |= {"leave": leave, "wait": wait}
        monkeypatch.setattr(group, "busy", lambda: True)
    ending.end_operations()
    assert sorted(said[:2]) == ["leave a", "leave b"]
    assert sorted(said[2:]) == ["wait a", "wait b"]  # though the first failed


def test_exit_does_not_wait_for_a_device_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_LOOK_S", 0.01)
    waits = iter([False, False])  # then the device fails
    reasons: list[str] = []

    def abort(handle: int, reason: str) -> None:
        reasons.append(reason)
        _lib.library().abort(handle, reason)

    stuck = single(wait=lambda _handle, _timeout_ms: False, abort=abort)
    monkeypatch.setattr(stuck, "busy", lambda: True)
    stuck.broken = lambda: next(waits, True)
    exits = threading.Thread(target=ending.end_operations, daemon=True)
    exits.start()
    exits.join(LIMIT_S)
    assert not exits.is_alive()
    assert reasons == ["its CUDA device has failed"]
    assert stuck not in open_groups


def listeners() -> set[str]:
    """Return the TCP sockets of this process that listen."""
    ours = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            ours.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # of the listing itself
            continue
    tables = [Path(f"/proc/self/net/{name}") for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in ours}


def test_an_exchange_that_fails_leaves_nothing_open() -> None:
    def exchange(_blob: bytes) -> list[bytes]:
        assert listeners() - before
        raise ConnectionError("the store is gone")

    before = listeners()
    with pytest.raises(ConnectionError, match="the store is gone"):
        Group(0, 2, "MCAST_FABRIC=shm", exchange, LIMIT_MS)
    until(lambda: not listeners() - before, "nothing listens any more")


def test_ranks_that_were_started_with_other_settings_disagree() -> None:
    def exchange(blob: bytes) -> list[bytes]:
        other = json.loads(blob)
        other["r"] = 1
        other["s"] += " MCAST_CHUNK=512"
        return [blob, json.dumps(other).encode()]

    with pytest.raises(errors.MismatchError, match="rank 0 has MCAST_CHUNK=0, rank 1 MCAST_CHUNK=512"):
        Group(0, 2, "MCAST_FABRIC=shm", exchange, LIMIT_MS)


def test_a_future_that_cannot_be_completed_does_not_stop_those_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    future: torch.futures.Future[int] = torch.futures.Future()
    future.set_result(1)
    completed = threading.Event()
    lane = Lane()
    lane.watch(Operation(lambda: future.set_result(2)))  # raises: it has a result already
    lane.watch(Operation(completed.set))
    assert completed.wait(LIMIT_S)
    lane.clear()
    assert "cannot complete the future" in caplog.text
    assert future.value() == 1


def settled_works() -> None:
    for finish in (wait, poll, take_future):
        for posted in (gather, scatter):
            work, outputs, refs = posted()
            finish(work)
            result = work.result()
            assert result[0].tolist() == outputs
            del result, work
            # The thread that completes futures may be on its way out.
            until(lambda refs=refs: forgotten(refs), f"tensors go: {finish}, {posted}")  # type: ignore[misc]


def forgotten(refs: list[Any]) -> bool:
    gc.collect()
    return all(ref() is None for ref in refs)


def wait(work: Any) -> None:
    assert work.wait()


def poll(work: Any) -> None:
    while not work.is_completed():
        pass


def take_future(work: Any) -> None:
    assert work.get_future().wait()[0].numel() > 0


def gather() -> tuple[Any, list[float], list[Any]]:
    mine, out = torch.full((2,), float(dist.get_rank())), torch.zeros(8)
    work = dist.all_gather_into_tensor(out, mine, async_op=True)
    return work, [0, 0, 1, 1, 2, 2, 3, 3], [weakref.ref(mine), weakref.ref(out)]


def scatter() -> tuple[Any, list[float], list[Any]]:
    mine, out = torch.ones(8), torch.zeros(4)[::2]  # through a staging copy
    work = dist.reduce_scatter_tensor(out, mine, async_op=True)
    return work, [4, 4], [weakref.ref(mine), weakref.ref(out)]


def test_works_that_settled_are_not_kept_by_their_lane(world: World) -> None:
    world.run(settled_works)


def test_information_may_have_more_fields_than_we_know() -> None:
    peer = {f.name: 0 for f in fields(Peer)} | {"of_a_later_version": 1}
    told: dict[str, Any] = {f.name: 0 for f in fields(Info)} | {"notes": None, "of_a_later_version": 1}
    told |= {"peers": [peer], "unheard": [[0, 1]]}
    group = single(info=lambda _: json.dumps(told))
    info = group.info()
    assert info.notes == ()
    assert info.peers[0].round_trip_ns == 0
    assert info.unheard == ((0, 1),)
    assert not hasattr(info, "of_a_later_version")
    group.close()


def test_information_of_the_library_is_all_there() -> None:
    group = single()
    info = group.info()
    assert info.window_bytes >= 0
    assert info.simd
    assert info.peers == ()
    assert info.unheard == ()
    assert info.topology == ""
    assert info.ring == (0,)
    group.close()
