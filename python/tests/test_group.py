"""Who keeps what for how long: lanes, works and a close that is interrupted."""

from __future__ import annotations

import _thread
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
import torch.distributed as dist

from torch_mcast import _lib
from torch_mcast.group import Group, Info, Lane

from .world import World

BOUND = 60.0  # seconds; for a busy machine, no test waits this long when all is well


class Operation:
    """A Pending that is in flight until it is told otherwise."""

    def __init__(self, complete: Callable[[], None] = lambda: None) -> None:
        self.tensor = torch.ones(3)
        self.complete_future = complete

    def poll(self) -> bool:
        return False

    def settle(self) -> None:
        pass


def single(**functions: Any) -> Group:
    """Return a group of one rank whose library has these functions replaced."""
    group = Group(0, 1, "MCAST_FABRIC=shm", lambda blob: [blob], 30_000)
    real: Any = group.lib

    class Replaced:
        def __getattr__(self, name: str) -> Any:
            return functions.get(name) or getattr(real, name)

    replaced: Any = Replaced()
    group.lib = replaced
    return group


def test_an_interrupted_close_keeps_tensors_until_the_library_is_done() -> None:
    release = threading.Event()
    closers: list[threading.Thread] = []

    def close(handle: int) -> None:
        closers.append(threading.current_thread())
        _thread.interrupt_main()
        assert release.wait(BOUND)
        _lib.library().close(handle)

    group = single(close=close)
    lanes = (group.gather, group.reduce)
    tensors = [weakref.ref(lane.post(lambda: 1, lambda _: Operation()).tensor) for lane in lanes]
    with pytest.raises(KeyboardInterrupt):
        group.close()
    gc.collect()
    assert all(tensor() is not None for tensor in tensors)
    release.set()
    closers[0].join(BOUND)
    gc.collect()
    assert [tensor() for tensor in tensors] == [None, None]


def test_a_future_that_cannot_be_completed_does_not_stop_those_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    future: torch.futures.Future[int] = torch.futures.Future()
    future.set_result(1)
    completed = threading.Event()
    lane = Lane()
    lane.watch(Operation(lambda: future.set_result(2)))  # raises: it has a result already
    lane.watch(Operation(completed.set))
    assert completed.wait(BOUND)
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
            deadline = time.monotonic() + BOUND  # the thread that completes futures may be on its way out
            while any(ref() is not None for ref in refs) and time.monotonic() < deadline:
                gc.collect()
                time.sleep(0.001)
            assert [ref() for ref in refs] == [None, None], (finish, posted)


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
    told = {f.name: 0 for f in fields(Info)} | {"notes": None, "of_a_later_version": 1}
    group = single(info=lambda _: json.dumps(told))
    info = group.info()
    assert info.notes == ()
    assert not hasattr(info, "of_a_later_version")
    group.close()


def test_information_of_the_library_is_all_there() -> None:
    group = single()
    info = group.info()
    assert info.window_bytes >= 0
    assert info.simd
    group.close()
