"""Measure the cost of watching and tracing ranks: Allgathers of two ranks, with and without, by turns.

on: ranks publish and remember their operations, `mcast top` looks each second and `mcast metrics` writes a
file each second. off: MCAST_METRICS=off, MCAST_TRACE=off. before, if a binary is named: another build.
A round runs every contender once, in another order each time, from a copy of its binary made for that run:
where a file lies in memory makes the same binary faster or slower by some per cent. Many short rounds show
more than a few long ones. Beside the time of an operation stands the CPU time of the ranks (user and
system, the join included) by bytes gathered, which other work on the machine stretches less. Figures are
medians over rounds, with 95 % of the bootstrap.
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
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import shared_machine  # noqa: E402

LIMIT_S = 120  # for one run


def bench(binary: str, fabric: str, sizes: str, iterations: int, metrics: str) -> list[dict[str, Any]]:
    """Run Allgathers and return a record a size."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_")}
    environment["MCAST_METRICS"] = metrics
    environment["MCAST_TRACE"] = "off" if metrics == "off" else "auto"
    words = [binary, "bench", "allgather", "--ranks", "2", "--fabric", fabric, "--bytes", sizes]
    run = subprocess.Popen(
        [*words, "--iters", str(iterations), "--json"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    late = threading.Timer(LIMIT_S, run.kill)
    late.start()
    try:
        lines = run.stdout.read().splitlines()
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    finally:
        late.cancel()
    if run.returncode != 0:
        raise subprocess.CalledProcessError(run.returncode, words)
    records = [json.loads(line) for line in lines]
    gathered = sum(2 * 2 * r["bytes"] * iterations for r in records)  # two ranks take two shards each
    return [r | {"cpu_ns_per_byte": 1e9 * (used.ru_utime + used.ru_stime) / gathered} for r in records]


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


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median of some ratios, and between what 95 % of medians of such samples lie."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[-51]


def table(samples: list[dict[str, Any]], contenders: list[str]) -> str:
    """Return medians, and of the ratios of a round's other runs to its off the median and its interval."""
    row = "{:<8}{:>10}  {:<8}{:>12}  {:<22}{:>12}  {:<22}"
    lines = [row.format("fabric", "bytes", "", "p50 us", "to off", "CPU ns/B", "to off")]
    for fabric, size in sorted({(s["fabric"], s["bytes"]) for s in samples}):
        such = [s for s in samples if (s["fabric"], s["bytes"]) == (fabric, size)]
        for c in contenders:
            cells: list[str] = []
            for figure in ("time_us", "cpu_ns_per_byte"):
                of = {(s["contender"], s["round"]): s[figure] for s in such}
                values = {r: v for (who, r), v in of.items() if who == c}
                middle, low, high = interval([v / of["off", r] for r, v in values.items()])
                cells += [f"{statistics.median(values.values()):.3f}", f"{middle:.4f} ({low:.4f}-{high:.4f})"]
            lines.append(row.format(fabric, size, c, *cells))
    return "\n".join(lines)


def main() -> None:
    """Run every contender in turn, print the table and write the samples."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--bytes", default="1K", help="of a shard (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument(
        "--fabric", action="append", choices=("shm", "udp"), help="one or both (default: both)"
    )
    parser.add_argument("--before", help="bin/mcast of another build")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "live.ndjson")
    args = parser.parse_args()
    if len(args.bytes.split(",")) > 1:
        parser.error("--bytes: one size a run, so that CPU time is of that size; run it again for another")
    where, samples = shared_machine(), []
    with tempfile.TemporaryDirectory() as directory:
        ours = ROOT / "bin" / "mcast"
        runs = {
            "off": lambda *a: bench(copied(ours, directory), *a, "off"),
            "on": lambda *a: watched(copied(ours, directory), directory, *a),
        }
        if args.before:
            runs["before"] = lambda *a: bench(copied(args.before, directory), *a, "")
        for r in range(args.rounds):
            for fabric in args.fabric or ("shm", "udp"):
                for c in random.sample(list(runs), len(runs)):
                    for x in runs[c](fabric, args.bytes, args.iterations):
                        kept = {k: x[k] for k in ("bytes", "time_us", "min_us", "wrong", "cpu_ns_per_byte")}
                        samples.append({"contender": c, "round": r, "fabric": fabric} | kept | where)
            args.output.write_text("".join(json.dumps(s) + "\n" for s in samples))
    print(table(samples, list(runs)))


if __name__ == "__main__":
    main()
