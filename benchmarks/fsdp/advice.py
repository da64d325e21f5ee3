"""Compare predictions of `mcast advise`, for a training over gloo, with that training over torch-mcast.

    make build && .venv/bin/python benchmarks/fsdp/advice.py --out build/advise.ndjson

builds a testbed of four hosts (docs/how-to/testbed.md), trains there by turns over gloo as FSDP2 runs it and
over torch-mcast in several ways, each with torch.profiler on all ranks, and takes it down. The predictions
come from the gloo run of the same round; the times of a run's steps come from its own traces. It writes a
row for each run to a file that has none yet, and prints a table of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hosts
from machine import machine
from node import MCAST
from runs import Choice

RANKS = 4
WARM = 2  # steps of a run that are not traced
GAINS = ("gain_least", "gain_most")  # of a prediction
WAYS = (
    Choice("gloo", "gloo, as FSDP2 runs it", "gloo", schedule="plain"),
    Choice("backend", "torch-mcast, nothing else changed", "mcast", "udp", schedule="plain"),
    Choice("enable", "torch-mcast, fsdp.enable", "mcast", "udp"),
    Choice("switch", "torch-mcast, fsdp.enable, switch", "mcast", "udp", switch=True),
)


def advise(traces: list[Path], *flags: str) -> dict[str, Any]:
    """Return what `mcast advise` says of the traces of all ranks, each on a host of its own."""
    command = [str(MCAST), "advise", "--json", "--ranks-per-host=1", *flags, *map(str, traces)]
    said: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return said


def measure(args: argparse.Namespace, way: Choice, number: int) -> dict[str, Any]:
    """Train once and return the row."""
    extra = ["--block-ms", str(args.block_ms)]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.traces / f"{way.name}-{number}" if args.traces else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        flags = [*extra, "--profile", str(folder)]
        out = Path(scratch, "run.ndjson")
        hosts.train(way, args.testbed, args.steps + WARM, 1, "0", out, lambda *_: None, flags)
        traces = [folder / f"{rank}.json" for rank in range(RANKS)]
        said = advise(traces)
        told = advise(traces, f"--link={args.rate}")
    row = {
        "experiment": "advise",
        "hosts": RANKS,
        "rate": args.rate,
        "block_ms": args.block_ms,
        "steps": args.steps,
        "way": way.name,
        "round": number,
        "command": f"advice.py --rate {args.rate} --block-ms {args.block_ms} --steps {args.steps}",
        **machine(),
        "load": load,  # of the machine, before; the run's own is added
        "step_ns": said["step_ns"],
    }
    if way.name == "gloo":
        row |= {
            "exposed_ns": statistics.mean(rank["exposed_ns"] for rank in said["ranks"]),
            "late_ns": said["late_ns"],
            "best_bits": said["best_bits"],
            "predictions": said["predictions"],
            "predictions_link_told": told["predictions"],
        }
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Return medians of rounds: a step, and how many times as fast as over gloo it is and was to be.

    The rows are of one invocation, in which a round has one gloo run. Bounds are of rounds that have some.
    """
    labels = {way.name: way.label for way in WAYS}
    gloo = {row["round"]: row for row in rows if row["way"] == "gloo"}
    lines = ["| way | step, ms | times as fast | predicted | with the link told |", "|" + 5 * "---|"]
    for name, label in labels.items():
        of = [row for row in rows if row["way"] == name and row["round"] in gloo]
        if not of:
            continue
        gain = statistics.median(gloo[row["round"]]["step_ns"] / row["step_ns"] for row in of)
        cells = [f"{1e-6 * statistics.median(row['step_ns'] for row in of):.0f}", f"{gain:.2f}"]
        for key in ("predictions", "predictions_link_told"):
            said = [row[key][name == "switch"] for row in gloo.values() if row[key]]
            bounds = [f"{statistics.median(p[b] for p in said):.2f}" for b in GAINS if said]
            cells.append("" if name == "gloo" else " to ".join(bounds) or "nothing")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Build a testbed and measure there."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rate", default="100mbit", help="of a host's link (default: %(default)s)")
    parser.add_argument(
        "--block-ms", type=float, default=80, help="compute of a block, forward (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help=f"of a run, after {WARM} that do not count")
    parser.add_argument("--traces", type=Path, help="folder where traces stay")
    parser.add_argument("--out", type=Path, required=True, help="file for rows, which has none yet")
    parser.add_argument("--testbed", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.out.exists() and args.out.read_text().strip():
        parser.error(f"--out {args.out} has rows of another invocation: name a file that has none")
    if not args.testbed:
        hosts.within(RANKS, args.rate, [sys.executable, *sys.argv, "--testbed"])
    for number in range(args.rounds):
        for way in WAYS:
            row = measure(args, way, number)
            with args.out.open("a") as out:
                print(json.dumps(row), file=out)
            print(f"{way.label}: {1e-6 * row['step_ns']:.0f} ms", file=sys.stderr)
    print(table([json.loads(line) for line in args.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
