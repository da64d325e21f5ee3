"""Ranks of test_device.py: each is a process with CUDA tensors, and prints one line of JSON.

over_cuda.py SCENARIO      with torchrun's variables
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import torch_mcast
from torch_mcast import device, errors

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CUDA = torch.device("cuda", 0)
SCENARIOS: dict[str, Callable[[], Any]] = {}


def scenario(f: Callable[[], Any]) -> Callable[[], Any]:
    SCENARIOS[f.__name__] = f
    return f


def values(rank: int, count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return what a rank gives: of every type as many bits as sums have."""
    made = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=made).to(dtype)
    return torch.randint(0, 7, (count,), generator=made).to(dtype)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    def raw(t: torch.Tensor) -> torch.Tensor:
        return torch.empty(t.numel(), dtype=t.dtype).copy_(t).view(torch.uint8)

    return torch.equal(raw(got), raw(want))


DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8)


@scenario
def entries() -> int:
    """Every collective on CUDA tensors gives the bits that it gives on CPU tensors."""
    checked = 0

    def check(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
        nonlocal checked
        assert same(got, want), what
        checked += 1

    for count in (1, 37, 20_000):
        for dtype in DTYPES:
            mine, whole = values(RANK, count, dtype), values(RANK, count * SIZE, dtype, 1)
            text = f"{count} of {dtype}"
            for where in ("contiguous", "strided"):
                step = 1 if where == "contiguous" else 2

                def on(t: torch.Tensor, step: int = step) -> torch.Tensor:
                    room = torch.zeros(t.numel() * step, dtype=t.dtype, device=CUDA)[::step]
                    return room.copy_(t)

                out, want = on(torch.zeros(count * SIZE, dtype=dtype)), torch.zeros(count * SIZE, dtype=dtype)
                dist.all_gather_into_tensor(out, on(mine))
                dist.all_gather_into_tensor(want, mine)
                check(out, want, f"all_gather_into_tensor, {text}, {where}")

                part, wanted = on(torch.zeros(count, dtype=dtype)), torch.zeros(count, dtype=dtype)
                dist.reduce_scatter_tensor(part, on(whole))
                dist.reduce_scatter_tensor(wanted, whole)
                check(part, wanted, f"reduce_scatter_tensor, {text}, {where}")

                got, summed = on(mine), mine.clone()
                dist.all_reduce(got)
                dist.all_reduce(summed)
                check(got, summed, f"all_reduce, {text}, {where}")

                root = count % SIZE
                got = on(mine)
                dist.broadcast(got, root)
                check(got, values(root, count, dtype), f"broadcast, {text}, {where}")

                outs = [on(torch.zeros(count, dtype=dtype)) for _ in range(SIZE)]
                dist.all_gather(outs, on(mine))
                check(torch.stack([o.cpu() for o in outs]).flatten(), want, f"all_gather, {text}, {where}")

                part = on(torch.zeros(count, dtype=dtype))
                dist.reduce_scatter(part, [on(p) for p in whole.chunk(SIZE)])
                check(part, wanted, f"reduce_scatter, {text}, {where}")
    big = 3_000_000  # several pieces of staging memory
    whole = values(RANK, big * SIZE, torch.float32)
    part, wanted = torch.zeros(big, device=CUDA), torch.zeros(big)
    dist.reduce_scatter_tensor(part, whole.cuda(), op=dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(wanted, whole, op=dist.ReduceOp.AVG)
    check(part, wanted, "reduce_scatter_tensor in pieces")
    place = torch.zeros(big * SIZE, device=CUDA)
    own = place[RANK * big : (RANK + 1) * big].copy_(part)
    dist.all_gather_into_tensor(place, own)
    want = torch.zeros(big * SIZE)
    dist.all_gather_into_tensor(want, wanted)
    check(place, want, "all_gather_into_tensor in place, in pieces")
    uneven = [torch.zeros(r + 1, device=CUDA) for r in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK), device=CUDA))
    for r, t in enumerate(uneven):
        check(t, torch.full((r + 1,), float(r)), "all_gather of different sizes")
    empty = torch.zeros(0, device=CUDA)
    dist.all_gather_into_tensor(torch.zeros(0, device=CUDA), empty)
    dist.all_reduce(empty)
    return checked


@scenario
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


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Any:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@scenario
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
    for bug, patch in {
        "producer": (device, "place", place_at_once),
        "consumer": (device.DeviceWork, "_follow", wait_for_nothing),
        "keep": (device.DeviceWork, "follow_up", keep_nothing),
    }.items():
        with changed(*patch):
            wrong[bug] = sum(round_of(k) for k in range(12))
        torch.cuda.synchronize()
        dist.barrier()
    wrong["none"] = sum(round_of(k) for k in range(12))
    return wrong


@scenario
def touch() -> str:
    """Give the CPU's path a CUDA tensor: the library refuses its address."""
    tensor = torch.zeros(10, device=CUDA)
    with changed(device, "place", lambda tensor, timeout: None):
        try:
            dist.all_reduce(tensor)
        except errors.ArgumentError as e:
            return str(e)
    return "nothing was said"


@scenario
def asked() -> list[str]:
    """What a program sees that asks instead of waiting, and what is refused."""
    said: list[str] = []
    out = torch.empty(1000 * SIZE, device=CUDA)
    work: Any = dist.all_gather_into_tensor(out, torch.full((1000,), RANK + 1.0, device=CUDA), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    said.append(f"completed {work.is_success()} {out[::1000].tolist()}")
    tensor = torch.full((7,), 2.0, device=CUDA)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    said.append(f"future {future.wait()[0].item()}")
    work = dist.all_reduce(tensor, async_op=True)
    work.wait(timedelta(seconds=30))
    said.append(f"blocked {work.is_completed()} {tensor[0].item()}")
    waited: Any = dist.all_gather_into_tensor(out, torch.ones(1000, device=CUDA), async_op=True)
    waited.wait()
    said.append(f"kept {len(waited.result())} {len(waited.get_future().wait())}")
    late = dist.all_reduce(tensor, async_op=True)
    dist.barrier()  # in its turn, behind what the GPU has not begun
    late.wait()
    host = torch.full((7,), 1.0)
    dist.all_reduce(host)
    said.append(f"host {host[0].item()} {tensor[0].item()}")
    for call in (
        lambda: dist.reduce(tensor, 0),
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.bool, device=CUDA)),
        lambda: dist.all_gather_into_tensor(out, torch.zeros(1000)),
    ):
        try:
            call()
            said.append("not refused")
        except (errors.UnsupportedError, errors.ArgumentError) as e:
            said.append(str(e))
    return said


@scenario
def programs() -> dict[str, Any]:
    """What else stands on the collectives: DDP, functional collectives, objects, groups one after another."""

    def train(where: str) -> list[Any]:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).to(where)
        model = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data, seen = torch.Generator().manual_seed(RANK), []
        for _ in range(4):
            x = torch.randn(8, 64, generator=data).to(where)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return [seen, *(p.detach().cpu().tolist() for p in model.parameters())]

    world: Any = dist.group.WORLD
    gathered: Any = torch.ops._c10d_functional.all_gather_into_tensor(
        torch.full((1000,), float(RANK), device=CUDA), SIZE, world.group_name
    )
    gathered = torch.ops._c10d_functional.wait_tensor(gathered)
    objects: list[Any] = [None] * SIZE
    dist.all_gather_object(objects, RANK)
    made = []
    for _ in range(2):
        group: Any = dist.new_group(list(range(SIZE)), backend="mcast")
        tensor = torch.ones(5, device=CUDA)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [float(SIZE)] * 5
        made.append(torch_mcast.stats(group).device_made)
        dist.destroy_process_group(group)
    return {
        "ddp": train("cuda") == train("cpu"),
        "functional": gathered[::1000].tolist(),
        "objects": objects,
        "another group made": made[1],
    }


@scenario
def steady() -> dict[str, int]:
    """What the driver is asked to make after the first step: nothing."""
    made = []
    for k in range(6):
        round_of(k)
        torch.cuda.synchronize()
        dist.barrier()
        made.append(torch_mcast.stats().device_made)
    stats = torch_mcast.stats()
    return {
        "later": made[-1] - made[1],
        "made": made[-1],
        "ops": stats.device_ops,
        "out": stats.device_out_bytes,
    }


@scenario
def death() -> dict[str, Any]:
    """Rank 1 dies while an operation is in flight: the stream goes on, and who asks hears of it."""
    dist.all_reduce(torch.ones(3, device=CUDA))
    torch.cuda.synchronize()
    if RANK == 1:
        time.sleep(0.5)
        os._exit(0)
    out = torch.zeros(1000 * SIZE, device=CUDA)
    started = time.monotonic()
    work: Any = dist.all_gather_into_tensor(out, torch.ones(1000, device=CUDA), async_op=True)
    work.wait()
    lost = out[1000:2000].isnan().all().item()  # waits for the stream, as a training step does
    ended = time.monotonic() - started
    try:
        dist.all_reduce(torch.ones(3, device=CUDA))
        said = "nothing"
    except errors.RankError as e:
        said = f"rank {e.rank}"
    return {"lost": lost, "ended": ended, "said": said, "work": str(type(work.exception()).__name__)}


@scenario
def late() -> dict[str, Any]:
    """Rank 1 lives and never comes: the operation ends by itself."""
    if RANK == 1:
        time.sleep(8)
        return {}
    group: Any = dist.group.WORLD
    group._get_backend(CUDA).set_timeout(timedelta(seconds=2))
    out = torch.zeros(1000 * SIZE, device=CUDA)
    started = time.monotonic()
    dist.all_gather_into_tensor(out, torch.ones(1000, device=CUDA))
    lost = out[1000:2000].isnan().all().item()
    ended = time.monotonic() - started
    try:
        dist.all_reduce(torch.ones(3, device=CUDA))
        said = "nothing"
    except errors.RankError as e:
        said = str(e)
    return {"lost": lost, "ended": ended, "said": said}


@scenario
def fsdp() -> dict[str, Any]:
    """Train on CUDA tensors as on CPU tensors, with and without enable(): losses, norms and weights."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def train(where: str, overlap: bool, dtype: torch.dtype) -> list[Any]:
        torch.manual_seed(0)
        mesh = init_device_mesh(where, (SIZE,))
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(4))
        )
        model = model.to(where)
        policy = MixedPrecisionPolicy() if dtype == torch.float32 else MixedPrecisionPolicy(dtype, dtype)
        for block in model:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        handle = torch_mcast.fsdp.enable(model) if overlap else None
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        data = torch.Generator().manual_seed(100 + RANK)
        seen: list[Any] = []
        for _ in range(4):
            x = torch.randn(8, 48, generator=data).to(where)
            loss = (model(x).float() - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen += [loss.item(), norm.full_tensor().item()]
        weights: list[Any] = list(model.parameters())
        seen.append([w.to_local().cpu().tolist() for w in weights])
        if handle is not None:
            seen.append(handle.blocked)
        return seen

    equal = {}
    for dtype in (torch.float32, torch.bfloat16):
        for overlap in (False, True):
            got, want = (train(where, overlap, dtype) for where in ("cuda", "cpu"))
            equal[f"{dtype} {'enable()' if overlap else 'plain'}"] = got == want or [got, want]
    return equal


def main() -> None:
    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    dist.init_process_group(os.environ.get("BACKEND", "cpu:mcast,cuda:mcast"), timeout=timedelta(seconds=60))
    answers = {name: SCENARIOS[name]() for name in sys.argv[1].split(",")}
    print(json.dumps(answers), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
