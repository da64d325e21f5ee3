"""Reduce-Scatter through the switch beside the direct one and gloo's, in turn, on this host.

f32, sum. A round runs every contender once, so that a slow minute of the machine hits all of
them; the figures are medians over the rounds. The switch is a process of its own on the same
cores as the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import shared_machine  # noqa: E402

LIMIT_S = 600  # for one run of one contender
LAW = 1.03  # how much of what the algorithm must move may be moved


def commands(ranks: int, size: str) -> dict[str, list[str]]:
    """Return the command of each contender; paths are relative to the repository."""
    bench = ["bin/mcast", "bench", "reducescatter", "--fabric", "udp", "--ranks", str(ranks), "--bytes", size]
    overlap = [*bench[:2], "overlap", *bench[3:]]
    gloo = [".venv/bin/python", "-m", "torch_mcast.bench", "--collective", "reducescatter", "--fabric", "udp"]
    return {
        "gloo": [*gloo, "--ranks", str(ranks), "--bytes", size, "--json"],
        "direct": [*bench, "--json"],
        "switch": [*bench, "--switch", "--json"],
        "overlap": [*overlap, "--switch", "--json"],
    }


def run(words: list[str]) -> list[dict[str, Any]]:
    """Run one contender and return its records."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_") or k == "MCAST_LIBRARY"}
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(words)}\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def median(samples: list[dict[str, Any]], field: str, **such: Any) -> float:
    """Return the median of a field over the samples that have these values."""
    return statistics.median(s[field] for s in samples if field in s and such.items() <= s.items())


ROW = "{:<34}{:>12}{:>12}{:>9}{:>9}{:>9}"


def table(samples: list[dict[str, Any]]) -> str:
    """Return the comparison: medians over the rounds."""
    gloo = median(samples, "p50_us", contender="gloo", backend="gloo")
    lines = [ROW.format("", "p50 ms", "min ms", "to gloo", "sent", "received")]
    for label, such in (
        ("gloo", {"contender": "gloo", "backend": "gloo"}),
        ("mcast udp, direct, from PyTorch", {"contender": "gloo", "backend": "mcast"}),
        ("mcast udp, direct", {"contender": "direct"}),
        ("mcast udp, switch", {"contender": "switch"}),
    ):
        p50, least = median(samples, "p50_us", **such), median(samples, "min_us", **such)
        moved = ["", ""]
        if "backend" not in such:
            moved = [f"{median(samples, f'{way}_to_law', **such):.4f}" for way in ("sent", "received")]
        lines.append(ROW.format(label, f"{p50 / 1e3:.1f}", f"{least / 1e3:.1f}", f"{gloo / p50:.2f}", *moved))
    parts = {
        name: median(samples, "p50_us", contender="overlap", collective=name) / 1e3
        for name in ("allgather", "reducescatter", "overlap")
    }
    alone = parts["allgather"] + parts["reducescatter"]
    summed = median(samples, "switch_summed_GBps_per_core", contender="switch")
    return "\n".join(
        [
            *lines,
            "to gloo: gloo's time to ours. sent, received: bytes of the busiest rank, to what the algorithm",
            f"must move ((P-1)n and n through the switch, (P-1)n each directly); at most {LAW} is wanted.",
            f"Through the switch: Allgather alone {parts['allgather']:.1f} ms, Reduce-Scatter alone "
            f"{parts['reducescatter']:.1f} ms, sum {alone:.1f} ms;",
            f"both together {parts['overlap']:.1f} ms: {alone / parts['overlap']:.2f} times as fast.",
            f"The switch summed {summed:.2f} GB/s a core.",
        ]
    )


def main() -> None:
    """Run every contender in turn, print the table and write the samples."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", default="64M", help="size of a rank's shard (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "switch.ndjson")
    args = parser.parse_args()
    if args.ranks < 1 or args.rounds < 1:
        parser.error("--ranks and --rounds are at least 1")
    host = shared_machine()
    samples: list[dict[str, Any]] = []
    for turn in range(args.rounds):
        for contender, words in commands(args.ranks, args.bytes).items():
            print(f"round {turn + 1} of {args.rounds}: {contender}", file=sys.stderr)
            common = {"contender": contender, "round": turn, "command": " ".join(words)}
            samples.extend({**common, **record, **host} for record in run(words))
    if wrong := sum(s.get("wrong", 0) for s in samples):
        sys.exit(f"{wrong} elements are wrong")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("".join(json.dumps(s) + "\n" for s in samples))
    print(f"{host['cpu']}, {host['cores']} cores, {args.ranks} ranks, {args.bytes} a rank, f32")
    print(f"load {host['load']:.1f} at the start, {args.rounds} rounds, samples in {args.output.name}")
    print(table(samples))


if __name__ == "__main__":
    main()
