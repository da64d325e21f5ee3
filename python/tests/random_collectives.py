"""Random collectives, each compared with a reference that every rank computes by itself.

    python -m tests.random_collectives --programs 1000 --seed 1 --fabric udp --ranks 4 --keep failed
    python -m tests.random_collectives --fabric udp --replay failed/udp-4-1.json

A program is one collective: operation, type, shapes, layout of each tensor, how it is posted and waited for.
All ranks draw the same ones from the seed, and the inputs of all ranks, so each knows the right result.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceCoalescedOptions

import torch_mcast.tensor
from torch_mcast import futures

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
WAITS = ["block", "work", "future", "callback", "callback waits", "thread"]
SLOW_S = 60.0  # programs that take longer are told of, with stacks; nothing fails by it


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
        leaf: whether tensors are leaves that require a gradient, where their type can.
        wait: how the outcome is waited for; "callback waits": for another collective.
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
    leaf: bool
    wait: str
    mode: str
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a plain object."""
        return {**asdict(self), "dtype": str(self.dtype).removeprefix("torch.")}

    @staticmethod
    def from_json(kept: dict[str, Any]) -> Program:
        """Return what to_json() was called of."""
        return Program(**{**kept, "dtype": getattr(torch, kept["dtype"])})


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
        leaf=rng.random() < 0.3,
        wait=rng.choice(WAITS),
        mode=rng.choice(["grad", "no_grad", "inference"]),
        seed=rng.randrange(1 << 30),
    )


def values(program: Program, rank: int, count: int) -> torch.Tensor:
    """Return a rank's input: integers so small that any type holds their sums."""
    made = torch.Generator().manual_seed(program.seed * 8 + rank)
    return torch.randint(0, 8, (count,), generator=made).to(program.dtype)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's elements."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).view(torch.uint8)


class Place:
    """A tensor of a layout, and the memory around it."""

    def __init__(self, content: torch.Tensor, layout: str, leaf: bool) -> None:
        count, step = len(content), {"strided": 2, "reversed": 3}.get(layout, 1)
        first = 0 if layout == "dense" else 1
        self.memory = torch.full((first + count * step + 1,), GAP).to(content.dtype)
        self.tensor = self.memory[first : first + count * step : step] if count else self.memory[:0]
        if layout == "reversed" and count % 2 == 0:
            self.tensor = self.tensor.reshape(-1).as_strided(
                (count // 2, 2), (step, step * count // 2), first
            )
        self.tensor.copy_(content.reshape(self.tensor.shape))
        self.tensor.requires_grad_(leaf and (content.is_floating_point() or content.is_complex()))

    def check(self, want: torch.Tensor | None, what: str) -> None:
        """Compare the elements with the wanted ones (None: anything), and check the memory around them."""
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
        place = Place(content, program.source, program.leaf)
        checks.append((place, content))
        return place.tensor

    def wanted(want: torch.Tensor | None, content: torch.Tensor | None = None) -> torch.Tensor:
        assert want is not None or content is not None
        start = torch.zeros_like(want) if content is None and want is not None else content
        assert start is not None
        place = Place(start, program.target, program.leaf)
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
            inside = program.inside and flat
            source = output.detach().reshape(-1)[part].copy_(mine) if inside else given(mine)
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
    if how in ("future", "callback", "callback waits") and isinstance(work, _Both):
        how = "work"  # gloo has no future for it
    if how == "work":
        work.wait()
    elif how == "future":
        work.get_future().wait()
    elif how == "callback":
        told = threading.Event()
        work.get_future().then(lambda _: told.set()).wait()
        assert told.is_set()
    elif how == "callback waits":
        sums: list[torch.Tensor] = []

        def add(_: Any) -> None:
            ones = torch.ones(1)
            wait_for_future(dist.all_reduce(ones, async_op=True))
            sums.append(ones)

        work.get_future().then(add).wait()
        assert sums == [dist.get_world_size()]
    elif how == "thread":
        thread = threading.Thread(target=work.wait)
        thread.start()
        thread.join()


def wait_for_future(work: Any) -> None:
    """Wait for an operation as DDP's hooks do in a callback."""
    work.get_future().wait()


def play_all(programs: list[Program], fault: str = "") -> tuple[int, str] | None:
    """Run programs on this rank; return the number of the first that fails, and why."""
    failed = None
    program: Program | None = None

    def tell() -> None:
        print(f"rank {dist.get_rank()}: no end after {SLOW_S:g} s: {program}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()

    timer = threading.Timer(SLOW_S, tell)
    timer.daemon = True
    timer.start()
    try:
        with planted(fault):
            for number, program in enumerate(programs):
                try:
                    play(program)
                except Exception as e:
                    failed = failed or (number, f"{type(e).__name__}: {e}")
    finally:
        timer.cancel()
    return failed


@contextmanager
def planted(fault: str) -> Iterator[None]:
    """Have the fault of this name while within; "" is none."""
    with ExitStack() as stack:
        for target, name, new in FAULTS.get(fault, ()):
            stack.enter_context(mock.patch.object(target, name, new))
        yield


def _writes_in_its_own_mode(output: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        output.copy_(source.reshape(output.shape))


def _takes_for_dense(_: torch.Tensor) -> bool:
    return True


def _keeps_the_turn(self: futures.Futures, work: futures.Pending) -> None:
    work.settle()
    futures._enter(1)
    work.complete_future(lambda: None)
    self._pass_turn()


def _says_that_it_hangs(work: Any) -> None:
    if threading.current_thread().name == "mcast-futures":
        raise RuntimeError("a callback waits for a future that its own thread would complete")
    work.get_future().wait()


# Faults, each with the code to replace: an object, the name of an attribute, another value.
FAULTS: dict[str, list[tuple[Any, str, Any]]] = {
    "writes in its own mode": [(torch_mcast.tensor, "write", _writes_in_its_own_mode)],
    "takes strided for dense": [(torch_mcast.tensor, "plain", _takes_for_dense)],
    "callbacks keep the turn": [
        (futures.Futures, "_complete", _keeps_the_turn),
        (sys.modules[__name__], "wait_for_future", _says_that_it_hangs),
    ],
}


def simpler(program: Program) -> list[Program]:
    """Return programs that are a step simpler."""
    plain: dict[str, list[Any]] = {
        "count": [n for n in (0, 1, 2, 3, 17, 1000) if n < program.count],
        "source": ["dense"], "target": ["dense"], "wait": ["block"], "mode": ["grad"], "inside": [False],
        "leaf": [False],
    }  # fmt: skip
    steps = [replace(program, **{name: value}) for name, to in plain.items() for value in to]
    return [step for step in steps if step != program]


def run(world: World, programs: list[Program], fault: str = "") -> tuple[int, str] | None:
    """Run programs on all ranks; return the number of the first that fails on one, and why."""
    failed = [one for one in world.run(play_all, programs, fault) if one is not None]
    return min(failed) if failed else None


def search(
    world: World, seed: int, programs: int, fault: str = "", batch: int = 100
) -> tuple[Program, str] | None:
    """Run programs from a seed; return a failing one, as simple as can be, and why it fails."""
    rng = random.Random(seed)
    for first in range(0, programs, batch):
        drawn = [draw(rng) for _ in range(min(batch, programs - first))]
        found = run(world, drawn, fault)
        if found is None:
            continue
        program, why = drawn[found[0]], found[1]
        while True:
            for step in simpler(program):
                again = run(world, [step], fault)
                if again is not None:
                    program, why = step, again[1]
                    break
            else:
                return program, why
    return None


def main() -> None:
    """Search, or run what was kept, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--fabric", choices=["shm", "udp"], default="shm")
    parser.add_argument("--ranks", type=int, choices=(2, 3, 4), default=3)
    parser.add_argument("--keep", type=Path, help="the folder for a program that fails")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these programs, JSON files, instead")
    args = parser.parse_args()
    if args.replay:
        wrong = [path for path in args.replay if replay(path, args.fabric)]
        sys.exit(1 if wrong else 0)
    world = World(args.ranks, MCAST_FABRIC=args.fabric)
    began = time.monotonic()
    try:
        found = search(world, args.seed, args.programs)
    except TaskError as e:
        sys.exit(f"seed {args.seed}: {e}")
    finally:
        world.close()
    if found is not None:
        if args.keep:
            keep(args.keep / f"{args.fabric}-{args.ranks}-{args.seed}.json", found[0], args.ranks)
        sys.exit(f"seed {args.seed}: {found[0]}\n{found[1]}")
    print(f"seed {args.seed}: {args.programs} programs, {args.ranks} ranks, {args.fabric}: no difference, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip


def keep(path: Path, program: Program, ranks: int) -> None:
    """Write a program to a file, for --replay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"ranks": ranks, "program": program.to_json()}, indent=1) + "\n")


def replay(path: Path, fabric: str) -> str:
    """Run a program that was kept; print and return its error, or ""."""
    kept = json.loads(path.read_text())
    world = World(kept["ranks"], MCAST_FABRIC=fabric)
    try:
        found = run(world, [Program.from_json(kept["program"])])
    finally:
        world.close()
    why = "" if found is None else found[1]
    print(f"{path}: {why or 'right'}", flush=True)
    return why


if __name__ == "__main__":
    main()
