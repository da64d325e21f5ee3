"""Plant causes of slow FSDP2 steps, and compare them with the findings of Handle.explain().

    python benchmarks/explain/explain.py --rounds 20 --out rows.ndjson

Four ranks on this host train blocks with emulated compute, over udp on the loopback; each case is a run of
its own. Rank 0 of each prints the text of explain() for the steps after the first ones. A row is a run. The
troubles that mcast explain names without Python are planted by `mcast-lab testbed experiment explain`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast.fsdp

sys.path.insert(0, str(Path(__file__).parents[1] / "fsdp"))
from accelerator import Accelerator

RANKS = 4
BLOCKS = 8
WARM_UP, STEPS = 2, 4
LIMIT = 120  # seconds of a run


@dataclass(frozen=True)
class Case:
    """A trouble, and the cause that explain() is to give; "" is none."""

    cause: str = ""
    prefetch: int = 1
    backend: str = "mcast"
    rows: int = 512  # of a block's weights: dimension 0, which FSDP2 cuts


CASES = {
    "healthy": Case(),
    "too few prefetches": Case("few-prefetches", prefetch=0),
    "gloo fallback": Case("gloo", backend="gloo"),
    "imbalance of shards": Case("uneven-shards", rows=5),
}


class Block(nn.Module):
    """Weights of 1 MiB that take 10 ms forward and 20 backward."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, (1 << 18) // rows) / 1024)
        self.accelerator = Accelerator(0.010)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what depends on all weights, for any x."""
        y = self.accelerator.begin(x)
        return self.accelerator.end(y + self.weight.sum())


def train(case: Case) -> None:
    """Be a rank, and print the text of explain()."""
    torch.set_num_threads(1)
    dist.init_process_group(
        case.backend,
        init_method=f"file://{os.environ['STORE']}",
        rank=int(os.environ["RANK"]),
        world_size=RANKS,
    )
    model = nn.Sequential(*(Block(case.rows) for _ in range(BLOCKS)))
    for block in model[:-1]:
        fully_shard(block)
    fully_shard(model[-1], reshard_after_forward=False)
    fully_shard(model)
    handle = torch_mcast.fsdp.enable(model, prefetch=case.prefetch)
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            handle.timeline.start()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        model.zero_grad()
    handle.timeline.stop()
    explained = handle.explain()
    if dist.get_rank() == 0:
        said = [
            {"cause": f.cause, "modules": f.modules, "gain": f.gain, "what": f.what}
            for f in explained.findings
        ]
        print(json.dumps({"exposed": explained.exposed, "findings": said}), flush=True)
    dist.barrier()
    os._exit(0)  # a thread of gloo's that wants the interpreter while that ends aborts the process


def run(name: str) -> dict[str, object]:
    """Run a case; return what rank 0 said."""
    store = os.path.join(tempfile.mkdtemp(prefix="mcast-explain-"), "store")
    env = {"STORE": store, "WORLD_SIZE": str(RANKS), "MCAST_FABRIC": "udp"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank-of", name],
            env={**os.environ, **env, "RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE if r == 0 else None,
            text=True,
        )
        for r in range(RANKS)
    ]
    try:
        text, _ = ranks[0].communicate(timeout=LIMIT)
        if any(r.wait(timeout=LIMIT) for r in ranks):
            raise RuntimeError(f"a rank of {name} failed")
    finally:
        for r in ranks:
            r.kill()
            r.wait()
    said: dict[str, object] = json.loads(text.splitlines()[-1])
    return said


def main() -> None:
    """Try all cases by turns, and print how often each verdict was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, help="one JSON object a run")
    parser.add_argument("--rank-of", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        train(CASES[args.rank_of])
    right = dict.fromkeys(args.cases, 0)
    with args.out.open("a") if args.out else open(os.devnull, "w") as out:
        for turn in range(args.rounds):
            for name in args.cases:
                said = run(name)
                causes = [f["cause"] for f in said["findings"]]  # type: ignore[attr-defined]
                want = [CASES[name].cause] if CASES[name].cause else []
                right[name] += causes == want
                row = {"case": name, "round": turn, "right": causes == want, "cores": os.cpu_count(), **said}
                print(json.dumps(row), file=out, flush=True)
    for name, count in right.items():
        print(f"{name:20} {CASES[name].cause or 'silence':15} {count} of {args.rounds}")


if __name__ == "__main__":
    main()
