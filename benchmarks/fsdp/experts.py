"""Compare steps of a dense model and of a mixture of experts on the same links, over torch-mcast and gloo.

    make build && .venv/bin/python benchmarks/fsdp/experts.py --out build/experts.ndjson

builds a testbed (docs/how-to/testbed.md), trains there by turns, and takes it down. The mixture is sharded in
two ways, see moe.py. It appends a row for each training, and prints a table of all rows that there are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import hosts
from machine import shared_machine
from report import read
from runs import Choice
from train import MODELS

WARM = 2  # steps of a training that do not count


def measure(args: argparse.Namespace, model: str, way: Choice, number: int) -> dict[str, Any]:
    """Train once and return the row."""
    where = shared_machine()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "run.ndjson")
        extra = ["--model", model, "--block-ms", str(args.block_ms), "--ahead", str(args.ahead)]
        hosts.train(way, args.testbed, args.steps + WARM, 1, "0", out, lambda *_: None, extra)
        run = read(out)
    steps = run.steps[WARM:]
    return {
        "experiment": "experts",
        "hosts": args.hosts,
        "rate": args.rate,
        "block_ms": args.block_ms,
        "ahead": args.ahead,
        "model": model,
        "way": way.name,
        "label": args.label or way.label,
        "round": number,
        "command": " ".join(["experts.py", *sys.argv[1 : sys.argv.index("--testbed")]]),
        **where,
        "torch": run.about["torch"],
        "steps_s": [step["step_s"] for step in steps],
        "exposed_allgather_s": [step["exposed_allgather_s"] for step in steps],
        "exposed_reduce_scatter_s": [step["exposed_reduce_scatter_s"] for step in steps],
        "link_bytes": [max(step["link"].values()) for step in steps],
        "losses": run.losses,
        "weights_sha256": run.end["weights_sha256"],
        "deferred": run.end["deferred"],
        "blocked": run.end["blocked"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return medians of all steps; how many times as many a second there are as over gloo is of medians."""
    lines = ["| model | way | step, ms | times gloo's steps a second | waiting, ms | link, MB |", "|" + 6 * "---|"]
    steps: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        steps.setdefault((row["model"], row["label"]), []).append(row)
    gloo = {row["model"]: of for of in steps.values() for row in of if row["way"] == "gloo"}
    for (model, label), of in sorted(steps.items(), key=lambda item: MODELS.index(item[0][0])):
        step = middle(of, "steps_s")
        waiting = middle(of, "exposed_allgather_s") + middle(of, "exposed_reduce_scatter_s")
        gain = f"{middle(gloo[model], 'steps_s') / step:.2f}" if model in gloo else ""
        cells = [model, label, f"{1e3 * step:.0f}", gain, f"{1e3 * waiting:.0f}"]
        lines.append(f"| {' | '.join(cells)} | {middle(of, 'link_bytes') / 1e6:.1f} |")
    return "\n".join(lines)


def middle(rows: list[dict[str, Any]], key: str) -> float:
    """Return the median of all steps of all rows."""
    return float(statistics.median(value for row in rows for value in row[key]))


def main() -> None:
    """Build a testbed and measure there."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--hosts", type=int, default=4, help="a multiple of 2")
    parser.add_argument("--rate", default="200mbit", help="of a host's link (default: %(default)s)")
    parser.add_argument("--block-ms", type=float, default=hosts.BLOCK_MS, help="compute of a block, forward")
    parser.add_argument("--ahead", type=int, default=hosts.AHEAD, help="modules that enable() prefetches")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help=f"of a training, after {WARM} that do not count")
    parser.add_argument("--models", default=",".join(MODELS), help="with commas")
    parser.add_argument("--ways", default=",".join(way.name for way in hosts.RUNS), help="with commas")
    parser.add_argument("--label", help="name in the table, such as of another version of torch_mcast")
    parser.add_argument("--out", type=Path, required=True, help="where rows are appended")
    parser.add_argument("--testbed", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.testbed:
        hosts.within(args.hosts, args.rate, [sys.executable, *sys.argv, "--testbed"])
    ways = [way for way in hosts.RUNS if way.name in args.ways.split(",")]
    for number in range(args.rounds):
        for model in args.models.split(","):
            for way in ways:
                row = measure(args, model, way, number)
                with args.out.open("a") as out:
                    print(json.dumps(row), file=out)
                print(f"{model}, {way.label}: {1e3 * middle([row], 'steps_s'):.0f} ms", file=sys.stderr)
    print(table([json.loads(line) for line in args.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
