"""Scenarios of over_cuda.py: what works do to streams, what the driver is asked for, and what ends."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

import torch_mcast
from tests.limits import LIMIT
from tests.over_cuda_rank import CUDA, EMULATED, RANK, SIZE
from torch_mcast import device, errors


def streams() -> dict[str, int]:
    """Works follow streams and are followed by them: wrong results, of so many rounds."""
    return {"wrong": sum(round_of(k) for k in range(12))}


def round_of(k: int) -> bool:
    """Have a side stream make input that is gathered, and the default stream read it; say if it is wrong."""
    count = 5000
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    source = (torch.arange(count, dtype=torch.float32) + 10_000 * RANK + k).pin_memory()
    with torch.cuda.stream(side):
        mine = torch.empty(count, device=CUDA)
        out = torch.empty(count * SIZE, device=CUDA)
        mine.copy_(source, non_blocking=True)  # late
        work: Any = dist.all_gather_into_tensor(out, mine, async_op=True)
        del mine  # its memory is the next one's, unless the work keeps it
        torch.empty(count, device=CUDA).copy_(torch.full((count,), -1.0).pin_memory(), non_blocking=True)
    work.wait()
    got = torch.empty(count * SIZE, pin_memory=True)
    got.copy_(out, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    out.record_stream(torch.cuda.current_stream())
    want = torch.cat([torch.arange(count, dtype=torch.float32) + 10_000 * r + k for r in range(SIZE)])
    return not torch.equal(got, want)


def together() -> dict[str, int]:
    """Two side streams at once, each with operations of its own: wrong results in one group and in two."""
    other: Any = dist.new_group(list(range(SIZE)), backend="mcast")
    sides = [torch.cuda.Stream(), torch.cuda.Stream()]
    wrong = {
        "one group": sum(beside(k, sides, [None, None]) for k in range(6)),
        "two groups": sum(beside(k, sides, [None, other]) for k in range(6)),
    }
    dist.destroy_process_group(other)
    return wrong


def beside(k: int, sides: list[torch.cuda.Stream], groups: list[Any]) -> int:
    """Have two streams at once sum, gather the sum and read the result; say how many were wrong."""
    count, steps = 4000, 3
    sources = [torch.full((count,), float(RANK + 1 + 10 * k + i)).pin_memory() for i in range(2)]
    got = [torch.empty(count * SIZE, pin_memory=True) for _ in sides]
    kept: list[Any] = []
    torch.cuda.synchronize()
    with torch.no_grad():
        values = []
        for side, source in zip(sides, sources, strict=True):
            with torch.cuda.stream(side):
                values.append(torch.empty(count, device=CUDA))
                values[-1].copy_(source, non_blocking=True)
        for _ in range(steps):
            for side, value, group in zip(sides, values, groups, strict=True):
                with torch.cuda.stream(side):
                    dist.all_reduce(value, group=group)
        for side, value, group, read in zip(sides, values, groups, got, strict=True):
            with torch.cuda.stream(side):
                out = torch.empty(count * SIZE, device=CUDA)
                work: Any = dist.all_gather_into_tensor(out, value, group=group, async_op=True)
                work.wait()
                read.copy_(out, non_blocking=True)
                kept.append(out)
    for side in sides:
        side.synchronize()
    wrong = 0
    for i, read in enumerate(got):
        total = sum(r + 1 + 10 * k + i for r in range(SIZE)) * SIZE ** (steps - 1)
        wrong += not torch.equal(read, torch.full_like(read, float(total)))
    return wrong


def bugs() -> dict[str, int]:
    """How often results are wrong when something is left out."""
    wrong: dict[str, int] = {}

    def place_at_once(tensor: torch.Tensor, timeout: timedelta) -> Any:
        at: Any = place(tensor, timeout)
        at.stream = idle.cuda_stream
        return at

    def wait_for_nothing(self: device.DeviceWork, stream: Any) -> None:
        pass

    def keep_nothing(self: device.DeviceWork, where: torch.device) -> None:
        follow_up(self, where)
        self._keep = ()

    idle = torch.cuda.Stream()
    place, follow_up = device.place, device.DeviceWork.follow_up
    for bug, planted in {
        "producer": (device, "place", place_at_once),
        "consumer": (device.DeviceWork, "_follow", wait_for_nothing),
        "keep": (device.DeviceWork, "follow_up", keep_nothing),
    }.items():
        with patch.object(*planted):
            wrong[bug] = sum(round_of(k) for k in range(12))
        torch.cuda.synchronize()
        dist.barrier()
    wrong["none"] = sum(round_of(k) for k in range(12))
    return wrong


def as_on_the_cpu() -> Any:
    """Plant a bug: operations on device memory take the CPU's path."""
    return patch.object(device, "place", lambda tensor, timeout: None)


def touch() -> str:
    """Give the CPU's path a CUDA tensor: the library refuses its address."""
    tensor = torch.zeros(10, device=CUDA)
    with as_on_the_cpu():
        try:
            dist.all_reduce(tensor)
        except errors.ArgumentError as e:
            return str(e)
    return "nothing was said"


def told() -> torch.Tensor:
    """Return a tensor, and print where it lies."""
    tensor = torch.zeros(1000, device=CUDA)
    torch.cuda.synchronize()
    print(f"from {tensor.data_ptr():#x} to {tensor.data_ptr() + tensor.nbytes:#x}", flush=True)
    return tensor


def touch_unasked() -> None:
    """Do the same where the driver no longer says which memory is its own. It ends the process."""
    tensor = told()
    forget_memory()
    with as_on_the_cpu():
        dist.all_reduce(tensor)


def touch_in_python() -> None:
    """Read device memory as the CPU does. It ends the process."""
    tensor = told()
    ctypes.string_at(tensor.data_ptr(), 4)


def forget_memory() -> None:
    """Overwrite the driver's function that tells memory apart: it returns CUDA_ERROR_INVALID_VALUE."""
    returns_1 = {"x86_64": "b801000000c3", "aarch64": "20008052c0035fd6"}[os.uname().machine]
    code = bytes.fromhex(returns_1)
    function = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    page = address & -mmap.PAGESIZE
    length = ctypes.c_size_t(address + len(code) - page)
    flags = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), length, flags) == 0
    ctypes.memmove(address, code, len(code))


def asked() -> dict[str, Any]:
    """Return what a program sees that asks instead of waiting."""
    said: dict[str, Any] = {}
    out = torch.empty(1000 * SIZE, device=CUDA)
    work: Any = dist.all_gather_into_tensor(out, torch.full((1000,), RANK + 1.0, device=CUDA), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    said["completed"] = [work.is_success(), out[::1000].tolist()]
    tensor = torch.full((7,), 2.0, device=CUDA)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    said["future"] = future.wait()[0].item()
    work = dist.all_reduce(tensor, async_op=True)
    work.wait(LIMIT)
    said["blocked"] = [work.is_completed(), tensor[0].item()]
    waited: Any = dist.all_gather_into_tensor(out, torch.ones(1000, device=CUDA), async_op=True)
    waited.wait()
    said["complete"] = waited.get_future().done()
    said["kept"] = [len(waited.result()), len(waited.get_future().wait())]
    several = [torch.full((100,), float(RANK + k), device=CUDA) for k in range(3)]
    works: list[Any] = [dist.all_reduce(t, async_op=True) for t in several]
    collected: Any = torch.futures.collect_all([w.get_future() for w in works]).wait()
    said["collected"] = [f.value()[0][0].item() for f in collected]
    late = dist.all_reduce(tensor, async_op=True)
    dist.barrier()  # in its turn, behind what the GPU has not begun
    late.wait()
    host = torch.full((7,), 1.0)
    dist.all_reduce(host)
    said["host"] = [host[0].item(), tensor[0].item()]
    return said


def steady() -> dict[str, int]:
    """What the driver is asked to make or to register in 20 steps after the first: nothing."""
    count = 300_000  # two pieces
    shard, whole = torch.ones(count, device=CUDA), torch.ones(count * SIZE, device=CUDA)
    scattered = torch.ones(2 * count, device=CUDA)[::2]  # goes through staging of torch's

    def step() -> None:
        works: list[Any] = [
            dist.all_gather_into_tensor(whole, shard, async_op=True),
            dist.reduce_scatter_tensor(shard, whole, op=dist.ReduceOp.AVG, async_op=True),
            dist.all_reduce(shard, op=dist.ReduceOp.AVG, async_op=True),
            dist.broadcast(scattered, 0, async_op=True),
        ]
        for work in works:
            work.wait()
        torch.cuda.synchronize()

    for _ in range(2):  # a group has two pairs of streams, and the second step reuses what the first freed
        step()
    dist.barrier()
    before = asked_for(times=1)
    for _ in range(20):
        step()
    after = asked_for(times=2)
    return {what: after[what] - before[what] for what in before}


def asked_for(times: int) -> dict[str, int]:
    """Return how often things were made: by the library, by torch, and as the driver counts them.

    Asking the driver makes a block each of the times.
    """
    counts = {
        "library": torch_mcast.stats().device_made,
        "operations": torch_mcast.stats().device_ops,
        "torch, device": torch.cuda.memory_stats()["num_device_alloc"],
        "torch, pinned": torch.cuda.host_memory_stats()["num_host_alloc"],
    }
    if EMULATED:
        counts["driver"] = blocks_made() - times
    return counts


def blocks_made() -> int:
    """Return how many blocks of memory the driver has allocated or registered: it numbers them."""
    driver, block, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
    assert driver.cuMemHostAlloc(ctypes.byref(block), ctypes.c_size_t(1), 0) == 0
    buffer_id = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID
    assert driver.cuPointerGetAttribute(ctypes.byref(number), buffer_id, block) == 0
    assert driver.cuMemFreeHost(block) == 0
    return number.value


def death() -> dict[str, Any]:
    """Rank 1 dies while an operation is in flight: the stream goes on, and the work has the error."""
    dist.all_reduce(torch.ones(3, device=CUDA))
    torch.cuda.synchronize()
    store: Any = dist.distributed_c10d._get_default_store()
    if RANK == 1:
        store.wait([f"in flight on {rank}" for rank in range(SIZE) if rank != 1])
        os._exit(0)
    out = torch.zeros(1000 * SIZE, device=CUDA)
    work: Any = dist.all_gather_into_tensor(out, torch.ones(1000, device=CUDA), async_op=True)
    store.set(f"in flight on {RANK}", "")
    work.wait()
    lost = out[1000:2000].isnan().all().item()  # waits for the stream, as a training step does
    try:
        dist.all_reduce(torch.ones(3, device=CUDA))
        said = "nothing"
    except errors.RankError as e:
        said = f"rank {e.rank}"
    while not work.is_completed():  # a thread ends it, which may not have run yet
        time.sleep(0.001)
    return {"lost": lost, "said": said, "work": str(type(work.exception()).__name__)}


def late() -> dict[str, Any]:
    """Rank 1 lives and never comes: the operation ends by itself, and its group, made for this, with it."""
    group: Any = dist.new_group(list(range(SIZE)), backend="mcast")
    answer: dict[str, Any] = {}
    if RANK != 1:
        group._get_backend(CUDA).set_timeout(timedelta(seconds=2))
        out = torch.zeros(1000 * SIZE, device=CUDA)
        dist.all_gather_into_tensor(out, torch.ones(1000, device=CUDA), group=group)
        answer["lost"] = out[1000:2000].isnan().all().item()
        try:
            dist.all_reduce(torch.ones(3, device=CUDA), group=group)
            answer["said"] = "nothing"
        except errors.RankError as e:
            answer["said"] = str(e)
    dist.barrier()
    return answer
