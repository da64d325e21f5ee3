"""What it costs that ranks can be watched: Allgathers of two ranks, watched or not, by turns, on this host.

on: ranks publish, `mcast top` looks each second and `mcast metrics` writes a file each second.
off: MCAST_METRICS=off. before, if a binary is named: another build, such as one without histograms.
A round runs every contender once, in another order each time, from a copy of its binary made for that run:
where a file lies in memory makes the same binary faster or slower by some per cent. Figures are medians over
the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "switch"))
from switch import machine  # noqa: E402

LIMIT_S = 120  # for one run


def bench(binary: str, fabric: str, sizes: str, iterations: int, metrics: str) -> list[dict[str, Any]]:
    """Run Allgathers and return a record a size."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_")}
    environment["MCAST_METRICS"] = metrics
    words = [binary, "bench", "allgather", "--ranks", "2", "--fabric", fabric, "--bytes", sizes]
    done = subprocess.run(
        [*words, "--iters", str(iterations), "--json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def copied(binary: str | Path, directory: str) -> str:
    """Return a copy of a binary in memory of its own; it takes the place of the last one."""
    copy = Path(directory) / "mcast"
    copy.unlink(missing_ok=True)
    return str(shutil.copy(binary, copy))


def watched(binary: str, directory: str, *args: Any) -> list[dict[str, Any]]:
    """Run Allgathers that are watched by both commands."""
    look = ["--interval", "1s", "--directory", directory]
    watchers = [
        subprocess.Popen([binary, "top", "--json", *look], cwd=ROOT, stdout=subprocess.DEVNULL),
        subprocess.Popen([binary, "metrics", "--textfile", directory, *look], cwd=ROOT),
    ]
    try:
        return bench(binary, *args, directory)
    finally:
        for w in watchers:
            w.terminate()
            w.wait(LIMIT_S)


def table(samples: list[dict[str, Any]], contenders: list[str]) -> str:
    """Return medians, and to those of off the medians of what a round's other runs took to its off."""
    row = "{:<8}{:>10}  {:<8}{:>12}{:>12}"
    lines = [row.format("fabric", "bytes", "", "p50 us", "to off")]
    for fabric, size in sorted({(s["fabric"], s["bytes"]) for s in samples}):
        such = [s for s in samples if (s["fabric"], s["bytes"]) == (fabric, size)]
        of = {(s["contender"], s["round"]): s["time_us"] for s in such}
        for c in contenders:
            times = {r: t for (who, r), t in of.items() if who == c}
            ratio = statistics.median(t / of["off", r] for r, t in times.items())
            p50 = statistics.median(times.values())
            lines.append(row.format(fabric, size, c, f"{p50:.2f}", f"{ratio:.4f}"))
    return "\n".join(lines)


def main() -> None:
    """Run every contender in turn, print the table and write the samples."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", default="1K,1M", help="of a shard (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--before", help="bin/mcast of another build")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "live.ndjson")
    args = parser.parse_args()
    where, samples = machine(), []
    with tempfile.TemporaryDirectory() as directory:
        ours = ROOT / "bin" / "mcast"
        runs = {
            "off": lambda *a: bench(copied(ours, directory), *a, "off"),
            "on": lambda *a: watched(copied(ours, directory), directory, *a),
        }
        if args.before:
            runs["before"] = lambda *a: bench(copied(args.before, directory), *a, "")
        for r in range(args.rounds):
            for fabric in ("shm", "udp"):
                for c in random.sample(list(runs), len(runs)):
                    for x in runs[c](fabric, args.bytes, args.iterations):
                        kept = {k: x[k] for k in ("bytes", "time_us", "min_us", "wrong")}
                        samples.append({"contender": c, "round": r, "fabric": fabric} | kept | where)
            args.output.write_text("".join(json.dumps(s) + "\n" for s in samples))
    print(table(samples, list(runs)))


if __name__ == "__main__":
    main()
