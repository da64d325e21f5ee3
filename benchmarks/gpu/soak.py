"""FSDP2 trainings on CUDA tensors over torch-mcast, compared bit for bit with trainings on CPU tensors.

    make build && MCAST_TORCH_CUDA=torchrig.py .venv/bin/python benchmarks/gpu/soak.py --trainings 200

By turns over all ways, on testbeds of its own (docs/how-to/testbed.md), with 1 % of the datagrams lost on
purpose where there are some. Each training has weights and text of its own; precisions and enable() take
turns. Appends a row for each start of the ranks, and prints a table of all rows that there are.

A GPU adds in an order of its own, so it wants MCAST_TORCH_CUDA: a Python program that runs the script that
follows it where torch has CUDA tensors on host memory (CONTRIBUTING.md). Copies are late there by a
random time, and device memory is out of the CPU's reach.

Status: 0 all well, 1 something is wrong, 77 MCAST_TORCH_CUDA is not set.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import commit  # noqa: E402
from node import LAB, unbuilt  # noqa: E402

RUNNER = "MCAST_TORCH_CUDA"
MISSING = 77
LIMIT_S = 900  # for one start of the ranks
LOSS = ["--env=MCAST_LOSS=0.01"]


class Way(NamedTuple):
    """What trainings go over."""

    text: str
    hosts: int
    per_host: int
    options: list[str]  # of `mcast-lab testbed run`


WAYS = {
    "shm": Way("2, shared memory", 1, 2, []),
    "udp": Way("3 hosts, udp, 1 % loss", 3, 1, LOSS),
    "switch": Way("3 hosts, a switch, 1 % loss", 3, 1, ["--switch", *LOSS]),
    "nodes": Way("2 hosts x 2, two levels, 1 % loss", 2, 2, LOSS),
}


class Failed(Exception):
    """The ranks did not end well; the message has their output."""


def run(way: Way, first: int, count: int, delay_us: int) -> dict[str, Any]:
    """Start the ranks for some trainings; return what rank 0 says. Raises Failed."""
    name = f"soak-{os.getpid()}"
    testbed = [str(LAB), "testbed", "with", f"--name={name}", f"--hosts={way.hosts}", "--"]
    ranks = [str(LAB), "testbed", "run", f"--name={name}", f"--per-host={way.per_host}", *way.options, "--"]
    words = [sys.executable, os.environ[RUNNER], str(HERE / "soak_rank.py"), str(first), str(count)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_") or k == "MCAST_LIBRARY"} | {
        "FAKE_CUDA_DELAY_US": str(delay_us),
        "FAKE_CUDA_SEED": str(first),
        "FAKE_CUDA_GUARD": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        # Nothing in a testbed answers for names, and torch asks for each address.
        "RES_OPTIONS": "timeout:1 attempts:1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    try:
        done = subprocess.run(
            [*testbed, *ranks, *words], env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as e:
        raise Failed(f"not done after {LIMIT_S} s: {e.stderr!r}") from e
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise Failed(f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    said: dict[str, Any] = json.loads(lines[-1])
    return said


def about() -> dict[str, Any]:
    """Describe what and where this is."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "command": shlex.join(Path(word).name if "/" in word else word for word in sys.argv),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return what all rows together say of each way."""
    lines = ["| ranks | trainings | wrong | operations on device memory | |", "|---|---|---|---|---|"]
    for name, way in WAYS.items():
        of = [row for row in rows if row["way"] == name]
        if not of:
            continue
        trainings, wrong, ops, lost, switched = (
            sum(len(row[k]) if k == "wrong" else row[k] for row in of)
            for k in ("trainings", "wrong", "device_ops", "chunks_injected", "switch_ops")
        )
        notes = [f"{lost} chunks lost on purpose"] * (lost > 0)
        notes += [f"{switched} Reduce-Scatters through the switch"] * (switched > 0)
        lines.append(f"| {way.text} | {trainings} | {wrong} | {ops} | {', '.join(notes)} |")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Train by turns over all ways, append rows, print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--trainings", type=int, default=200, help="in all (default: %(default)s)")
    parser.add_argument(
        "--each", type=int, default=10, help="in one start of the ranks (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=1, help="seed (default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--delay-us", type=int, default=300, help="by which a copy is late, at most (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "gpu" / "soak.ndjson")
    args = parser.parse_args(words)
    if args.trainings < 1 or args.each < 1 or args.delay_us < 0:
        parser.error("--trainings and --each are at least 1, --delay-us at least 0")
    if RUNNER not in os.environ:
        print(f"missing: {RUNNER}, a program that has CUDA tensors on host memory", file=sys.stderr)
        return MISSING
    if (lack := unbuilt()) is not None:
        print(f"soak.py: {lack}", file=sys.stderr)
        return 1
    args.out.parent.mkdir(parents=True, exist_ok=True)
    status, seed, end, turn = 0, args.first, args.first + args.trainings, 0
    while seed < end:
        name, count = args.ways[turn % len(args.ways)], min(args.each, end - seed)
        way, start = WAYS[name], time.monotonic()
        try:
            said = run(way, seed, count, args.delay_us)
        except Failed as e:
            print(f"{way.text}, {count} trainings from {seed}: {e}", file=sys.stderr)
            return 1
        row = {
            "experiment": "gpu-soak",
            "way": name,
            "ranks": way.hosts * way.per_host,
            "first": seed,
            "trainings": count,
            "delay_us": args.delay_us,
            "seconds": round(time.monotonic() - start, 1),
            **said,
            **about(),
        }
        with args.out.open("a") as out:
            print(json.dumps(row), file=out)
        if said["wrong"]:
            print(f"{way.text}: not the CPU's bits: seeds {said['wrong']}", file=sys.stderr)
            status = 1
        print(f"{way.text}: {count} trainings, {row['seconds']} s", file=sys.stderr, flush=True)
        seed, turn = seed + count, turn + 1
    print(table([json.loads(line) for line in args.out.read_text().splitlines()]))
    return status


if __name__ == "__main__":
    sys.exit(main())
