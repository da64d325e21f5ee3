"""Random collectives, each held to a reference that every rank computes by itself.

    python -m tests.random_collectives --programs 1000 --seed 1 --fabric udp

A program is one collective: operation, type, shapes, layout of each tensor, how it is posted and waited for.
All ranks draw the same ones from the seed, and the inputs of all ranks, so each knows what is right.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceCoalescedOptions

from .world import TaskError, World

GAP = 5
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
    torch.int32, torch.int64, torch.uint16, torch.bool, torch.complex64, torch.float8_e4m3fn,
]  # fmt: skip
REDUCED = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]
OPERATIONS = {
    "all_gather", "all_gather_single", "all_gather_uneven", "broadcast", "gather", "scatter", "all_to_all",
    "all_to_all_single", "exchange",
}  # fmt: skip
REDUCTIONS = {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "coalesced"}
LAYOUTS = ["dense", "strided", "offset", "reversed"]  # reversed: a transposed matrix
WAITS = ["block", "work", "future", "callback", "thread"]


@dataclass(frozen=True)
class Program:
    """One collective.

    Attributes:
        operation: which.
        dtype: of all tensors.
        op: of a reduction: "sum", "max" or "bor".
        count: elements of a tensor, or of a rank's part.
        source: layout of inputs.
        target: layout of outputs.
        inside: whether an input lies in the output's memory where the operation allows it.
        wait: how the outcome is waited for.
        mode: "grad", "no_grad" or "inference" while it is posted.
        seed: of the inputs' values.
    """

    operation: str
    dtype: torch.dtype
    op: str
    count: int
    source: str
    target: str
    inside: bool
    wait: str
    mode: str
    seed: int


def draw(rng: random.Random) -> Program:
    """Draw a program."""
    operation = rng.choice(sorted(OPERATIONS | REDUCTIONS))
    op = rng.choice(["sum", "max", "bor"])
    dtype = rng.choice(DTYPES if operation in OPERATIONS else REDUCED)
    if op == "bor" and dtype.is_floating_point:
        op = "sum"
    return Program(
        operation,
        dtype,
        op,
        count=rng.choice([0, 1, 2, 3, 17, 1000, 40_000]),
        source=rng.choice(LAYOUTS),
        target=rng.choice(LAYOUTS),
        inside=rng.random() < 0.3,
        wait=rng.choice(WAITS),
        mode=rng.choice(["grad", "no_grad", "inference"]),
        seed=rng.randrange(1 << 30),
    )


def values(program: Program, rank: int, count: int) -> torch.Tensor:
    """Return a rank's input: small integers, of which any type holds sums."""
    made = torch.Generator().manual_seed(program.seed * 8 + rank)
    return torch.randint(0, 8, (count,), generator=made).to(program.dtype)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's elements."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).view(torch.uint8)


class Place:
    """A tensor of a layout, and the memory around it."""

    def __init__(self, content: torch.Tensor, layout: str) -> None:
        count, step = len(content), {"strided": 2, "reversed": 3}.get(layout, 1)
        first = 0 if layout == "dense" else 1
        self.memory = torch.full((first + count * step + 1,), GAP).to(content.dtype)
        self.tensor = self.memory[first : first + count * step : step] if count else self.memory[:0]
        if layout == "reversed" and count % 2 == 0:
            self.tensor = self.tensor.reshape(-1).as_strided(
                (count // 2, 2), (step, step * count // 2), first
            )
        self.tensor.copy_(content.reshape(self.tensor.shape))

    def check(self, want: torch.Tensor | None, what: str) -> None:
        """Compare the elements with what is wanted (None: anything), and the memory around them."""
        if want is not None:
            got = self.tensor.reshape(-1)
            same = torch.equal(raw(got), raw(want))
            assert same, f"{what}: got {got[:8].tolist()}..., want {want[:8].tolist()}..."
        t = self.tensor
        around = torch.ones(len(self.memory), dtype=torch.bool)
        around.as_strided(t.shape, t.stride(), t.storage_offset()).fill_(False)
        gap = torch.full((1,), GAP).to(t.dtype).view(torch.uint8)
        rest = self.memory.view(torch.uint8).reshape(len(around), -1)[around]
        assert bool((rest == gap).all()), f"{what}: memory around it"


def fold(program: Program, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the reduction of all ranks' tensors."""
    total = tensors[0].clone()
    for t in tensors[1:]:
        if program.op == "sum":
            total = total + t
        elif program.op == "max":
            total = torch.maximum(total, t)
        else:
            total = total | t
    return total


def play(program: Program) -> None:
    """Run a program on this rank, and raise AssertionError where the outcome is wrong."""
    rank, size, n = dist.get_rank(), dist.get_world_size(), program.count
    root = program.seed % size
    if program.operation == "all_to_all_single":  # of rows, so of one dimension here
        flat = {"reversed": "strided"}
        source, target = (flat.get(layout, layout) for layout in (program.source, program.target))
        program = replace(program, source=source, target=target)
    op = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "bor": dist.ReduceOp.BOR}[program.op]
    checks: list[tuple[Place, torch.Tensor | None]] = []

    def given(content: torch.Tensor) -> torch.Tensor:
        place = Place(content, program.source)
        checks.append((place, content))
        return place.tensor

    def wanted(want: torch.Tensor | None, content: torch.Tensor | None = None) -> torch.Tensor:
        assert want is not None or content is not None
        start = torch.zeros_like(want) if content is None and want is not None else content
        assert start is not None
        place = Place(start, program.target)
        checks.append((place, want))
        return place.tensor

    def of(r: int, count: int) -> torch.Tensor:
        return values(program, r, count)

    everyone = range(size)
    mine = of(rank, n)
    wholes = [of(r, n * size) for r in everyone]
    part = slice(n * rank, n * (rank + 1))
    kind = program.operation

    def post() -> Any:
        if kind == "all_gather":
            return dist.all_gather([wanted(of(r, n)) for r in everyone], given(mine), async_op=True)
        if kind == "all_gather_single":
            output = wanted(torch.cat([of(r, n) for r in everyone]))
            flat = output.is_contiguous()
            if program.inside and flat:
                output.reshape(-1)[part].copy_(mine)
                source = output.reshape(-1)[part]
            else:
                source = given(mine)
            return dist.all_gather_into_tensor(output.reshape(-1) if flat else output, source, async_op=True)
        if kind == "all_gather_uneven":
            outputs = [wanted(of(r, n + r)) for r in everyone]
            return dist.all_gather(outputs, given(of(rank, n + rank)), async_op=True)
        if kind == "broadcast":
            return dist.broadcast(wanted(of(root, n), mine), root, async_op=True)
        if kind == "gather":
            gathered = [wanted(of(r, n)) for r in everyone] if rank == root else None
            return dist.gather(given(mine), gathered, root, async_op=True)
        if kind == "scatter":
            inputs = (
                [given(wholes[root][n * r : n * (r + 1)].clone()) for r in everyone] if rank == root else None
            )
            return dist.scatter(wanted(wholes[root][part].clone()), inputs, root, async_op=True)
        if kind == "all_to_all":
            outputs = [wanted(wholes[r][part].clone()) for r in everyone]
            inputs = [given(wholes[rank][n * r : n * (r + 1)].clone()) for r in everyone]
            return dist.all_to_all(outputs, inputs, async_op=True)
        if kind == "all_to_all_single":
            output, source = wanted(torch.cat([w[part] for w in wholes])), given(wholes[rank])
            splits = [n] * size if program.inside else None
            return dist.all_to_all_single(output, source, splits, splits, async_op=True)
        if kind == "exchange":
            after, before = (rank + 1) % size, (rank - 1) % size
            sends = dist.isend(given(mine), after)
            receives = dist.irecv(wanted(of(before, n)), before)
            assert sends is not None
            assert receives is not None
            return _Both(sends, receives)
        if kind == "all_reduce":
            return dist.all_reduce(
                wanted(fold(program, [of(r, n) for r in everyone]), mine), op, async_op=True
            )
        if kind == "reduce":
            want = fold(program, [of(r, n) for r in everyone]) if rank == root else None
            return dist.reduce(wanted(want, mine), root, op, async_op=True)
        if kind == "reduce_scatter":
            inputs = [given(wholes[rank][n * r : n * (r + 1)].clone()) for r in everyone]
            want = fold(program, [w[part] for w in wholes])
            output = inputs[rank] if program.inside else wanted(want)
            if program.inside:
                checks[rank] = (checks[rank][0], want)
            return dist.reduce_scatter(output, inputs, op, async_op=True)
        if kind == "reduce_scatter_single":
            want = fold(program, [w[part] for w in wholes])
            return dist.reduce_scatter_tensor(wanted(want), given(wholes[rank]), op, async_op=True)
        sums = [fold(program, [of(r, n + i) for r in everyone]) for i in range(3)]
        opts = AllreduceCoalescedOptions()
        opts.reduceOp = op
        everybody: Any = dist.group.WORLD
        return everybody.allreduce_coalesced([wanted(s, of(rank, n + i)) for i, s in enumerate(sums)], opts)

    modes = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}
    with modes[program.mode]():
        work = post()
        if program.wait == "block":
            work.wait()
    wait(work, program)
    for place, want in checks:
        with torch.inference_mode():
            place.check(want, f"rank {rank} of {size}")


class _Both:
    """A send and a receive."""

    def __init__(self, *works: Any) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def wait(work: Any, program: Program) -> None:
    """Wait for an outcome as the program says."""
    how = program.wait
    by_gloo = program.operation.startswith("reduce_scatter") and program.op == "bor"
    if how in ("future", "callback") and (by_gloo or isinstance(work, _Both)):
        how = "work"  # gloo has no future for it
    if how == "work":
        work.wait()
    elif how == "future":
        work.get_future().wait()
    elif how == "callback":
        told = threading.Event()
        work.get_future().then(lambda _: told.set()).wait()
        assert told.is_set()
    elif how == "thread":
        thread = threading.Thread(target=work.wait)
        thread.start()
        thread.join()


def play_all(programs: list[Program]) -> tuple[int, str] | None:
    """Run programs on this rank; return the number of the first that fails, and why."""
    failed = None
    for number, program in enumerate(programs):
        try:
            play(program)
        except Exception as e:
            failed = failed or (number, f"{type(e).__name__}: {e}")
    return failed


def simpler(program: Program) -> list[Program]:
    """Return programs that are a step simpler."""
    plain: dict[str, list[Any]] = {
        "count": [n for n in (0, 1, 2, 3, 17, 1000) if n < program.count],
        "source": ["dense"], "target": ["dense"], "wait": ["block"], "mode": ["grad"], "inside": [False],
    }  # fmt: skip
    steps = [replace(program, **{name: value}) for name, to in plain.items() for value in to]
    return [step for step in steps if step != program]


def search(world: World, seed: int, programs: int, batch: int = 100) -> tuple[Program, str] | None:
    """Run programs from a seed; return a failing one, as simple as can be, and why it fails."""
    rng = random.Random(seed)
    for _ in range(0, programs, batch):
        drawn = [draw(rng) for _ in range(min(batch, programs))]
        found = next((one for one in world.run(play_all, drawn) if one is not None), None)
        if found is None:
            continue
        program, why = drawn[found[0]], found[1]
        while True:
            for step in simpler(program):
                again = next((one for one in world.run(play_all, [step]) if one is not None), None)
                if again is not None:
                    program, why = step, again[1]
                    break
            else:
                return program, why
    return None


def main() -> None:
    """Search, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--fabric", choices=["shm", "udp"], default="shm")
    parser.add_argument("--ranks", type=int, default=3)
    args = parser.parse_args()
    world = World(args.ranks, MCAST_FABRIC=args.fabric)
    began = time.monotonic()
    try:
        found = search(world, args.seed, args.programs)
    except TaskError as e:
        sys.exit(f"seed {args.seed}: {e}")
    finally:
        world.close()
    if found is not None:
        sys.exit(f"seed {args.seed}: {found[0]}\n{found[1]}")
    print(f"seed {args.seed}: {args.programs} programs, {args.ranks} ranks, {args.fabric}: no difference, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main()
