"""Rows of results: the figures of all ranks as one, the machine that they come from, and a table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from contenders import ROOT

sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import commit

TOLERANCE = 1e-3  # between losses of contenders, relative: sums are added in another order


class Failed(Exception):
    """A run did not go as it must."""


def driver() -> str:
    """Return the version of NVIDIA's driver, or ""."""
    version = Path("/sys/module/nvidia/version")
    return version.read_text().strip() if version.is_file() else ""


def machine(args: argparse.Namespace) -> dict[str, Any]:
    """Describe what the figures were measured on, and how."""
    import torch

    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": shlex.join(["benchmarks/gpu/run.sh", *args.words]),
        "driver": driver(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "ranks": args.ranks,
        "testbed": args.testbed or "",
        "devices": [] if args.cpu else args.devices,
        "env": dict(args.env) | {k: v for k, v in os.environ.items() if k.startswith("MCAST_")},
    }


def merged(ranks: list[list[dict[str, Any]]], devices: int) -> list[dict[str, Any]]:
    """Return the records of all ranks as those of the run. Raises Failed where they do not match.

    Args:
        ranks: the records of each rank, in rank order.
        devices: how many there are; rank r has device r % devices.
    """
    kinds = [[r["record"] for r in records] for records in ranks]
    if any(k != kinds[0] for k in kinds):
        raise Failed(f"ranks have reported different things: {kinds}")
    links: list[dict[str, Any]] = []
    rows = []
    for records in zip(*ranks, strict=True):
        kind = records[0]["record"]
        if kind == "pcie":
            links = list(records[:devices])
            rows.append({"record": kind, "links": [{k: r[k] for k in r if k != "record"} for r in links]})
        elif kind == "time":
            rows.append(timed(records, links))
        else:
            rows.append(records[0])
    return rows


def timed(records: tuple[dict[str, Any], ...], links: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all ranks measured of one operation as one row.

    Times are the slowest rank's of each round, CPU seconds those of all ranks, bytes and shares those of
    the device with the most.
    """
    first = {k: v for k, v in records[0].items() if k not in ("times_s", "out_bytes", "in_bytes")}
    times = [max(round_) for round_ in zip(*(r["times_s"] for r in records), strict=True)]
    p50_s = statistics.median(times)
    row = {**first, "p50_us": p50_s * 1e6, "min_us": min(times) * 1e6}
    row["cpu_s"] = sum(r["cpu_s"] for r in records)
    if "slowed" in first:
        row["slowed"] = max(r["slowed"] for r in records)
    for way in ("out", "in"):
        if f"{way}_bytes" not in records[0] or not links:
            continue
        passed = [sum(r[f"{way}_bytes"] for r in records[d :: len(links)]) for d in range(len(links))]
        rates = [link[f"both_{way}_bytes_per_s"] for link in links]
        row[f"pcie_{way}_bytes"] = max(passed)
        row[f"pcie_{way}_share"] = max(b / p50_s / rate for b, rate in zip(passed, rates, strict=True))
    return row


def difference(records: list[dict[str, Any]]) -> float:
    """Return by how much losses differ at most, relative to the first contender's first run."""
    runs = [r["losses"] for r in records if "losses" in r]
    if len({len(losses) for losses in runs}) != 1:
        raise Failed(f"runs have {sorted({len(losses) for losses in runs})} losses; all should have as many")
    pairs = [(a, b) for losses in runs[1:] for a, b in zip(runs[0], losses, strict=True)]
    # A comparison with NaN is false.
    if not all(abs(a - b) <= TOLERANCE * abs(a) for a, b in pairs):
        raise Failed(f"losses differ by more than {TOLERANCE:g}: " + json.dumps(runs))
    return max((abs(a - b) / abs(a) for a, b in pairs), default=0.0)


def table(records: list[dict[str, Any]], contenders: list[str]) -> str:
    """Return the medians over the turns, contenders side by side, and the first's time to each."""
    rows = [r for r in records if r["record"] == "time"]

    def cells(operation: str, size: int | None) -> str:
        p50 = {
            c: statistics.median(
                r["p50_us"]
                for r in rows
                if (r["contender"], r["operation"], r.get("bytes_per_rank")) == (c, operation, size)
            )
            for c in contenders
        }
        return "".join(f"{p50[c]:>14.1f}{p50[contenders[0]] / p50[c]:>7.2f}" for c in contenders)

    lines = [f"{'p50, bytes a rank':<30}" + "".join(f"{c + ' us':>14}{'x':>7}" for c in contenders)]
    for operation, size in dict.fromkeys((r["operation"], r.get("bytes_per_rank")) for r in rows):
        lines.append(f"{operation:<16}{size or '':>14}" + cells(operation, size))
    return "\n".join(
        [*lines, f"x: the time of {contenders[0]} to the contender's; above 1 the contender is faster."]
    )
