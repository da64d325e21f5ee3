"""python -m torch_mcast.bench: our collectives and gloo's, in turn, same processes, same buffers.

Bytes count one rank's shard: all_gather_into_tensor has an output of
ranks x bytes, reduce_scatter_tensor (f32, SUM) an input of ranks x bytes; the
tensor of all_reduce (f32, SUM; copied to its place first) has that many bytes
in all; all_to_all_single sends that many to each rank, and with sendrecv each rank
sends that many to the next. Every result is checked byte for byte, outside of the timed part. Times
are the slowest rank's; the table gives their median. gloo is a weak peer at large
sizes (its Reduce-Scatter is an Allreduce and a slice): see the ratio to memcpy.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.multiprocessing.spawn import spawn

from . import replace
from .options import Options
from .registry import info

COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall", "sendrecv")
FABRICS = ("shm", "udp")
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_BUDGET_S = 1.0  # of timed calls, for each row
_STRETCH_S = 0.01  # of timed calls between two barriers, at least
_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Row:
    """One measurement. Ratios are how many times faster than the named thing (more is better)."""

    collective: str
    backend: str
    fabric: str
    ranks: int
    bytes: int
    p50_us: float
    min_us: float
    max_us: float
    iterations: int
    wrong: int
    ratio_to_gloo: float | None
    ratio_to_memcpy: float


@dataclass(frozen=True)
class Plan:
    """What every rank does; the same on all."""

    ranks: int
    sizes: tuple[int, ...]
    collectives: tuple[str, ...]
    fabrics: tuple[str, ...]
    store: str
    out: str


def parse_bytes(text: str) -> int:
    """Return the number of bytes that "512", "1K", "64M" or "2GiB" stands for, as mcast bench has it."""
    match = re.fullmatch(r"([0-9]+)(?:([KMG])(?:IB)?)?", text.upper())
    size = int(match[1]) * _SUFFIXES.get(match[2], 1) if match else 0
    if size == 0 or size % 4:
        raise argparse.ArgumentTypeError(
            f"{text!r}: bytes are a positive multiple of 4 such as 1K, 64M or 4096"
        )
    return size


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of "1K,64M", or of the range "1K:64M" in steps of four."""
    if ":" not in text:
        return tuple(parse_bytes(part) for part in text.split(","))
    low, high = (parse_bytes(part) for part in text.split(":", 1))
    if low > high:
        raise argparse.ArgumentTypeError(f"{text!r}: the first size must not be the larger one")
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 4
    return (*sizes, high)


def _choice(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        for item in chosen:
            if item not in allowed:
                raise argparse.ArgumentTypeError(f"{item!r}: allowed are {', '.join(allowed)}")
        return chosen

    return parse


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be a whole number of at least 1")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit code: 1 if a byte was wrong."""
    parser = argparse.ArgumentParser(prog="python -m torch_mcast.bench", description=__doc__)
    parser.add_argument("--peer", choices=("gloo",), default="gloo", help="what to compare with")
    parser.add_argument("--ranks", type=_positive, default=4)
    parser.add_argument(
        "--bytes", type=parse_sizes, default="1K:64M", help="sizes of a shard: 1K,1M or 1K:64M"
    )
    parser.add_argument("--collective", type=_choice(COLLECTIVES), default=COLLECTIVES)
    parser.add_argument("--fabric", type=_choice(FABRICS), default=FABRICS)
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    args = parser.parse_args(argv)

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="mcast-bench-") as scratch:
        out = Path(scratch, "rows")
        out.touch()
        plan = Plan(
            args.ranks, args.bytes, args.collective, args.fabric, str(Path(scratch, "store")), str(out)
        )
        context: Any = spawn(_rank, args=(plan,), nprocs=plan.ranks, join=False)
        with out.open() as lines, _progress(plan, args.json) as show:
            finished = False
            while not finished:
                finished = context.join(timeout=0.2)
                for line in lines:
                    rows.append(Row(**json.loads(line)))
                    show(rows[-1])
            for line in lines:
                rows.append(Row(**json.loads(line)))
                show(rows[-1])
    if not args.json:
        _table(rows)
    return 1 if any(row.wrong for row in rows) else 0


class _progress:  # used as a function
    """Print rows as they come (JSON), or a progress bar over them."""

    def __init__(self, plan: Plan, as_json: bool) -> None:
        self.as_json = as_json
        self.total = len(plan.sizes) * len(plan.collectives) * (len(plan.fabrics) + 1)

    def __enter__(self) -> Callable[[Row], None]:
        if self.as_json:
            return lambda row: print(json.dumps(asdict(row)), flush=True)
        from rich.console import Console
        from rich.progress import Progress

        self.bar = Progress(console=Console(stderr=True), transient=True)
        self.bar.start()
        task = self.bar.add_task("measuring", total=self.total)

        def show(row: Row) -> None:
            self.bar.update(
                task,
                advance=1,
                description=f"{row.collective} {_human(row.bytes)} {row.backend} {row.fabric}",
            )

        return show

    def __exit__(self, *_: object) -> None:
        if not self.as_json:
            self.bar.stop()


def _rank(rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    os.environ.pop(replace.VARIABLE, None)  # gloo is gloo here
    dist.init_process_group(
        "gloo",
        store=FileStore(plan.store, plan.ranks),
        rank=rank,
        world_size=plan.ranks,
        timeout=_TIMEOUT,
    )
    gloo = dist.group.WORLD
    assert gloo is not None
    with open(plan.out, "a") as out:
        for row in _measure(rank, plan, gloo):
            if rank == 0:
                print(json.dumps(asdict(row)), file=out, flush=True)
    dist.destroy_process_group()


def _measure(rank: int, plan: Plan, gloo: dist.ProcessGroup) -> Iterator[Row]:
    columns = [("gloo", "tcp", gloo)]
    for fabric in plan.fabrics:
        group: Any = dist.new_group(backend="mcast", pg_options=Options(fabric=fabric), timeout=_TIMEOUT)
        runs_on = info(group)
        if runs_on.fabric != fabric:
            raise RuntimeError(f"asked for fabric {fabric}, got {runs_on.fabric}: {runs_on.reason}")
        columns.append(("mcast", fabric, group))
    for collective in plan.collectives:
        for nbytes in plan.sizes:
            case = _Case(collective, rank, plan.ranks, nbytes)
            bound = statistics.median(_samples(case, case.copy, gloo, check=False)[0])
            peer = 0.0
            for backend, fabric, group in columns:
                samples, wrong = _samples(case, functools.partial(case.run, group), gloo, check=True)
                p50 = statistics.median(samples)
                peer = p50 if backend == "gloo" else peer
                yield Row(
                    collective=collective,
                    backend=backend,
                    fabric=fabric,
                    ranks=plan.ranks,
                    bytes=nbytes,
                    p50_us=round(p50 * 1e6, 1),
                    min_us=round(min(samples) * 1e6, 1),
                    max_us=round(max(samples) * 1e6, 1),
                    iterations=len(samples),
                    wrong=wrong,
                    ratio_to_gloo=None if backend == "gloo" else round(peer / p50, 2),
                    ratio_to_memcpy=round(bound / p50, 3),
                )


def _samples(
    case: _Case, run: Callable[[], None], gloo: dist.ProcessGroup, *, check: bool
) -> tuple[list[float], int]:
    """Return seconds a call, the slowest rank's, and wrong bytes on all ranks.

    A sample is the mean over a stretch of calls, long enough that the skew
    with which ranks leave a barrier does not matter.
    """
    case.fill(0)
    run()  # the first call of a size sets up memory
    estimate = _agree(_timed(run, 3, gloo), gloo)
    calls = max(1, min(200, int(_STRETCH_S / estimate)))
    stretches = max(5, min(21, int(_BUDGET_S / (calls * estimate))))
    seconds = torch.empty(stretches, dtype=torch.float64)
    wrong = 0
    for turn in range(stretches):
        case.fill(turn + 1)
        seconds[turn] = _timed(run, calls, gloo)
        if check:
            wrong += case.wrong_bytes()
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX, group=gloo)
    total = torch.tensor([wrong])
    dist.all_reduce(total, group=gloo)
    return seconds.tolist(), int(total)


def _timed(run: Callable[[], None], calls: int, gloo: dist.ProcessGroup) -> float:
    dist.barrier(group=gloo)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _agree(seconds: float, gloo: dist.ProcessGroup) -> float:
    """Return the largest rank's value, so that all ranks do the same number of calls."""
    slowest = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=gloo)
    return float(slowest)


class _Case:
    """Buffers of one collective and size, and the right contents.

    Inputs are small integers, so that their f32 sums are exact in any order: rank r's
    input of a turn is a stretch of one long pattern, at an offset of its own.
    """

    _PERIOD = 251

    def __init__(self, collective: str, rank: int, ranks: int, nbytes: int) -> None:
        self.collective, self.rank, self.ranks = collective, rank, ranks
        self.n, self.turn = nbytes // 4, 0
        self.pattern = (torch.arange(self.n * ranks + self._PERIOD, dtype=torch.int32) % self._PERIOD).float()
        whole, shard = torch.zeros(self.n * ranks), torch.zeros(self.n)
        self.input, self.output = {
            "allgather": (shard, whole),
            "reducescatter": (whole, shard),
            "allreduce": (shard, shard.clone()),
            "alltoall": (whole, whole.clone()),
            "sendrecv": (shard, shard.clone()),
        }[collective]

    def fill(self, turn: int) -> None:
        """Write the inputs of a turn and spoil the output."""
        self.turn = turn
        self.input.copy_(self._of(self.rank, 0, self.input.numel()))
        self.output.fill_(-1.0)

    def run(self, group: dist.ProcessGroup) -> None:
        """Do the collective once."""
        if self.collective == "allgather":
            dist.all_gather_into_tensor(self.output, self.input, group=group)
        elif self.collective == "reducescatter":
            dist.reduce_scatter_tensor(self.output, self.input, group=group)
        elif self.collective == "alltoall":
            dist.all_to_all_single(self.output, self.input, group=group)
        elif self.collective == "sendrecv":
            sent = dist.isend(self.input, (self.rank + 1) % self.ranks, group=group)
            dist.recv(self.output, (self.rank - 1) % self.ranks, group=group)
            assert sent is not None
            sent.wait()
        else:
            self.output.copy_(self.input)
            dist.all_reduce(self.output, group=group)

    def copy(self) -> None:
        """Copy the larger buffer once: no rank can do with less, unless it works in place."""
        whole = self.input if self.collective == "reducescatter" else self.output
        whole.copy_(self.pattern[: whole.numel()])

    def wrong_bytes(self) -> int:
        """Return how many bytes of the output are wrong."""
        n = self.n
        if self.collective == "allgather":
            parts = [(self.output[r * n : (r + 1) * n], self._of(r, 0, n)) for r in range(self.ranks)]
        elif self.collective == "alltoall":
            parts = [
                (self.output[r * n : (r + 1) * n], self._of(r, self.rank * n, n)) for r in range(self.ranks)
            ]
        elif self.collective == "sendrecv":
            parts = [(self.output, self._of((self.rank - 1) % self.ranks, 0, n))]
        else:
            start = self.rank * n if self.collective == "reducescatter" else 0
            total = torch.zeros(n)
            for r in range(self.ranks):
                total += self._of(r, start, n)
            parts = [(self.output, total)]
        return sum(
            0 if torch.equal(got, want) else int((got.view(torch.uint8) != want.view(torch.uint8)).sum())
            for got, want in parts
        )

    def _of(self, rank: int, start: int, count: int) -> torch.Tensor:
        offset = start + (rank * 31 + self.turn * 13) % self._PERIOD
        return self.pattern[offset : offset + count]


def _human(nbytes: int) -> str:
    for suffix, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes % factor == 0:
            return f"{nbytes // factor} {suffix}"
    return f"{nbytes} B"


def _table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="p50 of the slowest rank; speed as a multiple of gloo's and of a memory copy's")
    table.add_column("collective", no_wrap=True)
    table.add_column("a rank", justify="right", no_wrap=True)
    table.add_column("backend", no_wrap=True)
    for name in ("p50 ms", "min..max", "gloo", "memcpy", "wrong"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        ours = row.backend != "gloo"
        table.add_row(
            row.collective,
            _human(row.bytes),
            f"{row.backend} {row.fabric}",
            f"{row.p50_us / 1000:.3f}",
            f"{row.min_us / 1000:.3g}..{row.max_us / 1000:.3g}",
            f"{row.ratio_to_gloo:.1f}" if ours else "",
            f"{row.ratio_to_memcpy:.2f}",
            str(row.wrong),
            style="bold" if ours else "dim",
            end_section=row is rows[-1] or rows[rows.index(row) + 1].backend == "gloo",
        )
    console = Console()
    console.width = max(console.width, 100)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
