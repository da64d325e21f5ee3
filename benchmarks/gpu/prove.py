"""The results of prove.sh, in a table and a picture: steps, checks, times with NCCL over Socket and gloo."""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "gpu"
BESIDE = {"nccl-net": "nccl-socket", "nccl-collnet": "nccl-socket", "nccl-tuner": "nccl-socket",
          "mcast": "gloo", "mcast-udp": "gloo"}  # fmt: skip
Row = dict[str, Any]


def rows(file: Path) -> list[Row]:
    """Return the rows of a file; the last one may be cut."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def medians(measured: list[Row]) -> dict[tuple[str, str, int, str, int], float]:
    """Return p50 in microseconds by (place, operation, bytes a rank, contender, ranks)."""
    times = defaultdict(list)
    for row in measured:
        if row["record"] == "time":
            place = "links" if row.get("testbed") else "loopback"
            key = place, row["operation"], row.get("bytes_per_rank") or 0, row["contender"], row["ranks"]
            times[key].append(row["p50_us"])
    return {key: statistics.median(values) for key, values in times.items()}


def ratios(measured: list[Row]) -> list[tuple[str, str, int, str, int, float, float | None]]:
    """Return each median with how many times as fast it is as the peer's of the same place and size."""
    times = medians(measured)
    found = []
    for (place, operation, nbytes, contender, ranks), p50 in sorted(times.items()):
        peer = times.get((place, operation, nbytes, BESIDE.get(contender, ""), ranks))
        found.append((place, operation, nbytes, contender, ranks, p50, peer / p50 if peer else None))
    return found


def status(steps: list[Row]) -> str:
    """Return what README says of GPUs, from the steps of one run."""
    machine = next((row for row in steps if row["record"] == "machine" and row["gpus"]), None)
    if machine is None:
        return "it has **not yet run on a GPU**"
    tried = [
        row["status"] for row in steps if row["record"] == "step" and not row["status"].startswith("left out")
    ]
    passed = sum(status == "passed" for status in tried)
    return (f"on {machine['gpus'][0]} with torch {machine['torch']} and NCCL {machine['nccl']} "
            f"**{passed} of {len(tried)} steps passed** on {machine['date'][:10]}")  # fmt: skip


def table(steps: list[Row], measured: list[Row]) -> str:
    """Return all results in Markdown."""
    lines = []
    for machine in (row for row in steps if row["record"] == "machine"):
        gpu = machine["gpus"][0] if machine["gpus"] else "no GPU"
        lines += [f"{gpu}; torch {machine['torch']}, CUDA {machine['cuda']}, NCCL {machine['nccl']}, "
                  f"{machine['cores']} cores; {machine['date']}, {machine['commit']}", ""]  # fmt: skip
    lines += ["| step | came to | s |", "|---|---|---|"]
    lines += [f"| {r['step']} | {r['status']} | {r['seconds']} |" for r in steps if r["record"] == "step"]
    lines += [f"| {r['what']} | {'as promised' if r['right'] else 'WRONG'} {r.get('said', '')} | |"
              for r in steps if r["record"] == "semantics"]  # fmt: skip
    for row in (row for row in measured if row["record"] == "check"):
        counts = ", ".join(f"{what} {len(types)}" for what, types in row["checked"].items())
        lines.append(
            f"| {row['contender']}, {row['ranks']} ranks | every byte right in element types: {counts} | |"
        )
    lines += ["", "| where | operation | bytes a rank | contender | ranks | us | times as fast as its peer |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for place, operation, nbytes, contender, ranks, p50, ratio in ratios(measured):
        beside = f"{ratio:.2f} ({BESIDE[contender]})" if ratio else ""
        lines.append(
            f"| {place} | {operation} | {nbytes or ''} | {contender} | {ranks} | {p50:.0f} | {beside} |"
        )
    return "\n".join(lines)


def of_nccl_tests(measured: list[Row]) -> str:
    """Return what NCCL's own test programs said, in Markdown; times out of place."""
    if not measured:
        return ""
    outside = [r for r in measured if r["place"] == "out of place"]
    times = {(r["operation"], r["bytes"], r["contender"]): r["time_us"] for r in outside}
    wrong = sum(r["wrong"] or 0 for r in measured)
    lines = ["", f"NCCL's own test programs: {len(measured)} rows, {wrong} wrong elements.", "",
             "| operation | bytes in all | contender | us | times as fast as Socket |",
             "|---|---|---|---|---|"]  # fmt: skip
    for (operation, nbytes, contender), us in sorted(times.items()):
        peer = times.get((operation, nbytes, "nccl-socket"))
        beside = f"{peer / us:.2f}" if peer and us and contender != "nccl-socket" else ""
        lines.append(f"| {operation} | {nbytes} | {contender} | {us:.0f} | {beside} |")
    return "\n".join(lines)


def picture(measured: list[Row], file: Path) -> None:
    """Draw how many times as fast each is as its peer, by size."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    lines: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for place, operation, nbytes, contender, ranks, _, ratio in ratios(measured):
        if ratio and nbytes:
            lines[f"{contender}, {ranks} ranks, {place}", operation].append((nbytes, ratio))
    operations = sorted({operation for _, operation in lines})
    if not operations:
        print("no picture: nothing has a peer beside it yet")
        return
    figure, axes = plt.subplots(
        1, len(operations), figsize=(5 * len(operations), 4), sharey=True, squeeze=False
    )
    for axis, operation in zip(axes[0], operations, strict=True):
        for (label, of), points in sorted(lines.items()):
            if of == operation:
                axis.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
        axis.axhline(1, color="grey", linewidth=1)
        axis.set(title=operation, xlabel="bytes a rank", xscale="log")
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("times as fast as Socket, or as gloo")
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    """Print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS, help="where prove.sh left its rows")
    folder = parser.parse_args().folder
    steps = rows(folder / "prove.ndjson")
    print(f"README says: {status(steps)}\n\n{table(steps, rows(folder / 'rows.ndjson'))}")
    print(of_nccl_tests(rows(folder / "nccl-tests.ndjson")))
    picture(rows(folder / "rows.ndjson"), folder / "prove.svg")


if __name__ == "__main__":
    main()
