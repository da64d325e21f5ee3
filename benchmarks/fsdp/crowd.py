"""Trainings with FSDP2 on hosts of several ranks: time of a step, and memory that ranks hold.

    make build && .venv/bin/python benchmarks/fsdp/crowd.py --out build/fsdp-nodes.ndjson

builds a testbed (docs/how-to/testbed.md), trains by turns over gloo and over torch-mcast in several ways, and
takes it down. It appends a row for each way and round, and prints a table of all rows that there are.
One process imports torch and forks all ranks, so that they share torch's memory and begin at once. Ways
that must end with the same weights are compared, bit for bit.

glibc's malloc keeps some freed memory. With MALLOC_MMAP_THRESHOLD_=1048576 it keeps no large piece, so that
the measured memory is FSDP2's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import train
from machine import machine
from namespace import enter
from node import LAB, unbuilt

# Of the process that forks: no threads of others before that. Where no name server can be reached, torch
# waits for one to name its peers, and says that it has not.
ENVIRONMENT = {
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "RES_OPTIONS": "timeout:1 attempts:1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
MASTER = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}  # of a testbed's first host
WARM = 2  # steps of a round that do not count
# 6 blocks of 384 are 10.9 million parameters, of a block 7.1 MB. Windows are so short that two cores
# compute a step of 16 ranks while links carry it.
MODEL = ["--blocks=6", "--width=384", "--context=32", "--batch=1", "--ahead=1", "--trace", "--memory"]


class Way(NamedTuple):
    """What a training goes over."""

    name: str
    backend: str
    schedule: str  # of train.py
    settings: dict[str, str]
    sums: str  # ways with the same name here must end with the same weights


WAYS = (
    Way("gloo, as FSDP2 runs it", "gloo", "serial", {}, "gloo"),
    Way("gloo, our schedule", "gloo", "overlap", {}, "gloo"),
    Way("flat", "mcast", "overlap", {"MCAST_NODES": "off"}, "flat"),
    Way("nodes", "mcast", "overlap", {}, "nodes"),
    Way("nodes, results once a host", "mcast", "overlap", {"MCAST_OUTPUTS": "32MiB"}, "nodes"),
)


def be(rank: int, args: argparse.Namespace, way: Way, command: list[str]) -> None:
    """Be one rank of a training."""
    host, local = divmod(rank, args.per_host)
    enter(f"mcast-{args.testbed}-h{host}")
    for name in [name for name in os.environ if name.startswith("MCAST_") and name != "MCAST_LIBRARY"]:
        del os.environ[name]
    os.environ |= MASTER | way.settings
    ranks = args.hosts * args.per_host
    for name, value in {
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": args.per_host,
    }.items():
        os.environ[name] = str(value)
    sys.argv = command
    train.main()


def run(args: argparse.Namespace, way: Way, command: list[str]) -> None:
    """Train once; end all ranks with the first that fails."""
    context = multiprocessing.get_context("fork")
    left: dict[Any, Any] = {}
    for r in range(args.hosts * args.per_host):
        process = context.Process(target=be, args=(r, args, way, command), name=f"rank {r}", daemon=True)
        process.start()
        left[process.sentinel] = process
    while left:
        for sentinel in multiprocessing.connection.wait(list(left)):
            process = left.pop(sentinel)
            process.join()
            if process.exitcode != 0:
                sys.exit(f"{way.name}: {process.name} failed with exit code {process.exitcode}")


def measure(args: argparse.Namespace, way: Way, number: int) -> dict[str, Any]:
    """Train once and return the row."""
    how = [f"--backend={way.backend}", f"--schedule={way.schedule}", f"--steps={args.steps}"]
    command = ["train.py", *how, *MODEL]
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "run.ndjson")
        run(args, way, [*command, f"--out={out}"])
        records = [json.loads(line) for line in out.read_text().splitlines()]
    of = {kind: [r for r in records if r["record"] == kind] for kind in ("step", "memory", "end")}
    timed = of["step"][WARM:]
    return {
        "experiment": "fsdp-nodes",
        "hosts": args.hosts,
        "ranks_per_host": args.per_host,
        "rate": args.rate,
        "way": way.name,
        "round": number,
        "command": " ".join(command),
        "env": [f"{k}={v}" for k, v in way.settings.items()],
        **machine(),
        "malloc_mmap_threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_"),
        "load": before,  # of the machine, before; the run's own is added
        "steps_s": [step["step_s"] for step in timed],
        "exposed_s": [step["exposed_allgather_s"] + step["exposed_reduce_scatter_s"] for step in timed],
        "cpu_s": [step["cpu_s"] for step in timed],
        "link_bytes": [max(step["link"].values()) for step in timed],
        "losses": [step["loss"] for step in of["step"]],
        "weights_sha256": of["end"][0]["weights_sha256"],
        "shared_ops": of["end"][0]["counters"].get("shared_ops", 0),
        "memory": of["memory"][0]["ranks"],
    }


def agree(rows: list[dict[str, Any]]) -> None:
    """Exit if two ways that do the same sums ended with other weights or losses."""
    sums = {way.name: way.sums for way in WAYS}
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        alike = (sums[row["way"]], row["hosts"], row["ranks_per_host"], len(row["losses"]))
        other = first.setdefault(alike, row)
        if any(row[k] != other[k] for k in ("losses", "weights_sha256")):
            sys.exit(f"{row['way']} and {other['way']} do not learn the same, bit for bit")


def table(rows: list[dict[str, Any]]) -> str:
    """Return what was measured: medians over rounds, memory in MiB over what ranks held before the steps."""
    lines = ["| way | step, ms | waiting, ms | link, MB | a rank's MiB | a host's |", "|" + 6 * "---|"]
    for way in WAYS:
        of = [row for row in rows if row["way"] == way.name]
        if not of:
            continue
        step, waiting, link = (
            statistics.median(v for row in of for v in row[k]) for k in ("steps_s", "exposed_s", "link_bytes")
        )
        ranks = [added(rank) for row in of for rank in row["memory"]]
        k = of[0]["ranks_per_host"]
        hosts = [sum(ranks[i : i + k]) for i in range(0, len(ranks), k)]
        lines.append(
            f"| {way.name} | {1e3 * step:.0f} | {1e3 * waiting:.0f} | {link / 1e6:.0f} | "
            f"{statistics.median(ranks):.0f} | {statistics.median(hosts):.0f} |"
        )
    return "\n".join(lines)


def added(rank: dict[str, dict[str, int]]) -> float:
    """Return by how much a rank's memory grew, at most, in MiB."""
    return (sum(rank["most"].values()) - sum(rank["begin"].values())) / 2**20


def main() -> None:
    """Build a testbed and measure there."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--per-host", type=int, default=4, help="ranks on each")
    parser.add_argument("--rate", default="500mbit", help="of a host's link")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7, help=f"of a round, of which {WARM} do not count")
    parser.add_argument("--ways", default="", help="those that have one of these words, with commas")
    parser.add_argument("--out", type=Path, required=True, help="where rows are appended")
    parser.add_argument("--testbed", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.testbed:
        if (lack := unbuilt()) is not None:
            sys.exit(f"crowd.py: {lack}")
        name = f"crowd-{os.getpid()}"
        bed = ["testbed", "with", f"--name={name}", f"--hosts={args.hosts}", f"--rate={args.rate}", "--"]
        again = [str(LAB), *bed, sys.executable, *sys.argv, f"--testbed={name}"]
        sys.exit(subprocess.run(again, env=os.environ | ENVIRONMENT, check=False).returncode)
    ways = [way for way in WAYS if any(word in way.name for word in args.ways.split(","))]
    for number in range(args.rounds):
        for way in ways:
            row = measure(args, way, number)
            with args.out.open("a") as out:
                print(json.dumps(row), file=out)
            print(f"{way.name}: {1e3 * statistics.median(row['steps_s']):.0f} ms", file=sys.stderr)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    agree(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
