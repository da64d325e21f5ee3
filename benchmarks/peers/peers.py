"""Run `mcast bench` beside OpenMPI, in turn, on this host, and compare.

Shared memory stands against shm and TCP on loopback against udp. A run is
repeated in several rounds, contenders taking turns, so that a slow minute of
the machine hits all of them; the figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import shared_machine  # noqa: E402

PEER = ROOT / "build" / "peer"
MPIRUN = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1"]
BTL = {
    "shared memory": ["--mca", "btl", "self,vader"],
    "sockets": ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"],
}
FABRIC = {"shared memory": "shm", "sockets": "udp"}
COLLECTIVES = ("allgather", "broadcast", "reducescatter")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LIMIT_S = 600  # for one run of one contender

Key = tuple[str, str, int]  # collective, path, bytes a rank


class Target(NamedTuple):
    """How much faster than OpenMPI we mean to be, at least, from some size on."""

    times: float
    reason: str


def target(collective: str, path: str, size: int) -> Target | None:
    """Return the target for this size, if there is one."""
    if collective == "broadcast":
        return None
    if size <= 16 << 10:
        return Target(1 / 3, "within 3x")
    if size < 1 << 20:
        return None
    if collective == "allgather" and path == "sockets":
        return Target(1.5, "1.5x")
    return Target(1.0, "ahead")


def parse_size(text: str) -> int:
    """Read a size such as 4096, 64K, 64KiB or 1M, as mcast bench does."""
    match = re.fullmatch(r"([0-9]+)(?:([KMG])(?:IB)?)?", text.upper())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: want bytes, or with K, M or G")
    if (size := int(match[1]) * UNITS.get(match[2], 1)) % 4:
        raise argparse.ArgumentTypeError(f"{text!r} is no multiple of 4, the size of a float")
    return size


def show_size(size: int) -> str:
    """Write a size in the largest unit that divides it."""
    for name, unit in reversed(UNITS.items()):
        if size % unit == 0 and size:
            return f"{size // unit}{name}"
    return str(size)


def compile_peer() -> None:
    """Build the MPI program, or name the missing package."""
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        sys.exit("bench-peers needs OpenMPI: apt-get install openmpi-bin libopenmpi-dev")
    PEER.parent.mkdir(exist_ok=True)
    source = Path(__file__).with_name("peer.c")
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["mpicc", *flags, "-o", PEER, source], check=True)


def command(contender: str, path: str, collective: str, sizes: list[int], ranks: int) -> list[str]:
    """Return the command of one run; paths are relative to the repository."""
    if contender == "mcast":
        where = ["bin/mcast", "bench", collective, "--fabric", FABRIC[path], "--ranks", str(ranks), "--json"]
        return [*where, "--bytes", ",".join(map(str, sizes))]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    peer = str(PEER.relative_to(ROOT))
    return [*MPIRUN, *root, *BTL[path], "-n", str(ranks), peer, collective, *map(str, sizes)]


def run(words: list[str]) -> list[dict[str, Any]]:
    """Run one contender and return its results."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(words)}\n{done.stderr[-4000:]}")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if wrong := sum(r["wrong"] for r in results):
        sys.exit(f"{wrong} wrong elements: {' '.join(words)}")
    return results


def output_of(*words: str) -> str:
    """Return the first line that a command prints."""
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.partition("\n")[
        0
    ]


HEAD = ("collective", "path", "bytes", "OpenMPI us", "mcast us", "ratio", "memcpy us", "of it", "target")
ROW = "{:<14}{:<15}{:>6}{:>13}{:>12}{:>8}{:>12}{:>7}  {}"
FOOT = """\
ratio: OpenMPI's time to ours. memcpy: the same bytes by plain copies, all ranks at once; of it: the share
of that speed that we reach."""


def table(samples: list[dict[str, Any]]) -> str:
    """Return the comparison: medians over the rounds, ratios, what a plain copy would allow."""
    times: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for s in samples:
        row = times[s["collective"], s["path"], s["bytes"]]
        row[s["contender"]].append(s["p50_us"])
        if s["contender"] == "mcast":
            # The time in which every rank, all at once, copies the same bytes.
            row["memcpy"].append(s["p50_us"] * s["ratio_to_memcpy"])
    lines = [ROW.format(*HEAD)]
    for key in sorted(times, key=lambda k: (COLLECTIVES.index(k[0]), list(BTL).index(k[1]), k[2])):
        mpi, ours, copy = (statistics.median(times[key][who]) for who in ("openmpi", "mcast", "memcpy"))
        goal = target(*key)
        verdict = ""
        if goal is not None:
            verdict = f"{goal.reason}: {'met' if mpi / ours >= goal.times else 'MISSED'}"
        cells = (f"{mpi:.1f}", f"{ours:.1f}", f"{mpi / ours:.2f}", f"{copy:.1f}", f"{copy / ours:.2f}")
        lines.append(ROW.format(key[0], key[1], show_size(key[2]), *cells, verdict).rstrip())
    return "\n".join([*lines, FOOT])


def main() -> None:
    """Run every contender in turn, print the table and write the samples."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--bytes",
        type=lambda text: [parse_size(part) for part in text.split(",")],
        default="1K,16K,256K,1M,16M,64M",
        help="sizes of a rank's shard (default: %(default)s)",
    )
    parser.add_argument("--collectives", type=lambda text: text.split(","), default=",".join(COLLECTIVES))
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "peers.ndjson")
    args = parser.parse_args()
    if unknown := set(args.collectives) - set(COLLECTIVES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; want some of {', '.join(COLLECTIVES)}")
    if args.ranks < 1 or args.rounds < 1:
        parser.error("--ranks and --rounds are at least 1")
    compile_peer()
    host = shared_machine() | {"mpi": output_of("mpirun", "--version")}
    samples: list[dict[str, Any]] = []
    for turn in range(args.rounds):
        for collective in args.collectives:
            for path in BTL:
                for contender in ("openmpi", "mcast"):
                    step = f"round {turn + 1} of {args.rounds}: {collective}, {path}, {contender}"
                    print(step, file=sys.stderr)
                    words = command(contender, path, collective, args.bytes, args.ranks)
                    common = {"contender": contender, "path": path, "round": turn, "command": " ".join(words)}
                    samples.extend({**common, **result, **host} for result in run(words))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("".join(json.dumps(s) + "\n" for s in samples))
    print(f"{host['cpu']}, {host['cores']} cores, {args.ranks} ranks, {host['mpi']}")
    print(f"load {host['load']:.1f} at the start, {args.rounds} rounds, samples in {args.output.name}")
    print(table(samples))


if __name__ == "__main__":
    main()
