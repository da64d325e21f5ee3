"""Times of training steps on links with a limited rate: table and plot of runs on a testbed.

    python benchmarks/fsdp/network.py benchmarks/fsdp/runs/hosts

This draws the runs again that demo.py left there. Times and bytes are host 0's; see report.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import report
from hosts import RUNS
from report import GRID, INK, PARTS, SOFT, Run
from rich.console import Console
from rich.table import Table

_UNITS = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}  # of `mcast-lab testbed`
_BACKWARD = 2  # see accelerator.py
_LINK = (("received", "received", "#0b6e99"), ("sent", "sent", "#8fd3c4"))


def rate(run: Run) -> float:
    """Return the rate of a host's link, in bits a second; "unlimited" has no place here."""
    text = run.network["rate"]
    return float(text[:-4]) * _UNITS[text[-4:]]


def link_bytes(run: Run, direction: str) -> float:
    """Return what a step moves over a host's link, received or sent: frames with all headers."""
    steps = run.steps[report.WARM_UP :] or run.steps
    return sum(float(step["link"][direction]) for step in steps) / len(steps)


def link_s(run: Run) -> float:
    """Return how long a step needs the link in its busier direction, in seconds."""
    return max(link_bytes(run, direction) for direction, *_ in _LINK) * 8 / rate(run)


def compute_s(run: Run) -> float:
    """Return how long the emulated accelerator computes in a step, in seconds."""
    about = run.about
    return float(about["shape"]["blocks"] * (1 + _BACKWARD) * about["block_ms"]) / 1000


def allowed_s(run: Run) -> float:
    """Return what a step takes at least: its bytes on the link, and its compute beside or after them."""
    if run.about["schedule"] == "overlap":
        return max(link_s(run), compute_s(run))
    return link_s(run) + compute_s(run)


def table(runs: list[Run]) -> Table:
    """Return the comparison, a column a run. The first is ours."""
    about, ours = runs[0].network, runs[0]
    drawn = Table(
        title=f"A training step with FSDP2: {about['hosts']} hosts, links of {about['rate']}",
        title_justify="left",
    )
    drawn.add_column("")
    for run in runs:
        drawn.add_column(run.network["label"], justify="right", no_wrap=True)

    def row(label: str, values: list[str], end: bool = False) -> None:
        drawn.add_row(label, *values, end_section=end)

    last = len(ours.steps) - 1
    row(f"loss at step {last}", [f"{run.losses[last]:.7f}" for run in runs])
    row("validation loss", [f"{run.end['validation_loss']:.7f}" for run in runs], end=True)
    row("step time, ms", [_ms(run.typical("step_s")) for run in runs])
    for key, label, _ in PARTS:
        row(f"  {label}", [_ms(run.typical(key)) for run in runs])
    row("S, our step to this one's", [f"{speedup(ours, run):.2f}" for run in runs], end=True)
    for direction, label, _ in _LINK:
        row(f"{label} by a host, MB a step", [_mb(link_bytes(run, direction)) for run in runs])
    row("  takes the link, ms", [_ms(link_s(run)) for run in runs])
    row("  with compute at least, ms", [_ms(allowed_s(run)) for run in runs])
    row("  so S could be", [f"{allowed_s(run) / allowed_s(ours):.2f}" for run in runs])
    row("all switch ports, whole run, MB", [_mb(run.network["switch_port_bytes"]) for run in runs])
    return drawn


def speedup(ours: Run, run: Run) -> float:
    """Return how many times as long as ours a step of a run takes."""
    return run.typical("step_s") / ours.typical("step_s")


def notes(runs: list[Run]) -> list[str]:
    """Return what a reader of the table must know."""
    ours, gloo = runs[0], runs[-1]
    apart = max(abs(a - b) for run in runs for a, b in zip(ours.losses, run.losses, strict=True))
    said = [
        f"S = {speedup(ours, gloo):.2f}: a step takes {_ms(ours.typical('step_s'))} ms, and "
        f"{_ms(gloo.typical('step_s'))} ms with gloo as FSDP2 runs it on CPUs. The bytes and the compute "
        f"allow {allowed_s(gloo) / allowed_s(ours):.2f}. Beside gloo under our schedule S is "
        f"{speedup(ours, runs[1]):.2f}: the rest is the schedule's.",
        f"Compute is emulated: {_ms(compute_s(ours))} ms a step, {ours.about['block_ms']:g} ms a block "
        "forward and twice that backward. Gradients are real.",
        f"Largest difference of a loss between any two runs' same step: {apart:.2g} (allowed: "
        f"{report.TOLERANCE:g}; gloo adds in another order).",
        "The switch that adds has a port without a limit, as if it were the hosts' own switch.",
    ]
    said += report.disagreement(runs)
    return said


def plot(runs: list[Run], path: Path) -> None:
    """Draw one step of each run as it happened, and what its link carried, to an SVG."""
    plt = report.pyplot()
    figure, (steps, link) = plt.subplots(
        1, 2, figsize=(11.5, 3.6), sharey=True, gridspec_kw={"width_ratios": [2.1, 1], "wspace": 0.05}
    )
    shown = list(reversed(runs))  # ours last, below
    longest = max(float(run.trace["step_s"]) for run in shown)
    for row, run in enumerate(shown):
        _draw_step(steps, row, run)
        step_s = float(run.trace["step_s"])
        steps.text(step_s + longest * 0.012, row, f"{step_s:.2f} s", va="center", fontweight="bold")
        steps.plot([allowed_s(run)] * 2, [row - 0.38, row + 0.38], color=INK, linewidth=1.6)
        for i, (direction, _, color) in enumerate(_LINK):
            mb, y = link_bytes(run, direction) / 1e6, row - 0.15 + 0.3 * i
            link.barh(y, mb, height=0.28, color=color)
            link.text(mb, y, f" {mb:.0f}", va="center", fontsize=9.5)
    for axes in (steps, link):
        report.bare(axes)
        axes.xaxis.grid(True, color=GRID)
    steps.set_yticks(range(len(shown)), [run.network["label"].replace(", ", ",\n") for run in shown])
    steps.invert_yaxis()
    steps.set_xlim(0, longest * 1.1)
    steps.set_xlabel("seconds of one training step of host 0; line: what its bytes and compute take at least")
    link.set_xlabel("MB over a host's link, a step")
    _legend(steps, [(color, label) for _, label, color in PARTS], plt)
    _legend(link, [(color, label) for _, label, color in _LINK], plt)
    ours, gloo, hosts = shown[-1], shown[0], runs[0].network["hosts"]
    figure.suptitle(
        f"FSDP2 on {hosts} hosts with links of {rate(ours) / 1e6:g} Mbit/s: {speedup(ours, gloo):.1f} times "
        "as many steps a second as over gloo",
        x=0.005, y=1.07, ha="left", fontweight="bold", fontsize=12.5,
    )  # fmt: skip
    figure.text(
        0.99, -0.1,
        f"compute is an emulated accelerator's ({compute_s(ours) * 1000:.0f} ms a step); hosts are network "
        f"namespaces on {ours.about['machine']}; torch {ours.about['torch']}; commit {ours.about['commit']}",
        ha="right", color=SOFT, fontsize=8,
    )  # fmt: skip
    report.save(figure, path)
    plt.close(figure)


def _draw_step(axes: Any, row: int, run: Run) -> None:
    """Draw a bar of compute, and over it when the training waited."""
    colors = {key: color for key, _, color in PARTS}
    axes.barh(row, run.trace["step_s"], height=0.56, color=colors["compute_s"])
    for wait in run.trace["waits"]:
        color = colors[f"exposed_{wait['kind']}_s"]
        axes.barh(row, wait["end_s"] - wait["start_s"], left=wait["start_s"], height=0.56, color=color)


def _legend(axes: Any, entries: list[tuple[str, str]], plt: Any) -> None:
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color, _ in entries]
    axes.legend(
        handles, [label for _, label in entries], loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=3,
        frameon=False, fontsize=9, columnspacing=1.2, handlelength=1.0, handleheight=1.0, labelcolor=INK,
    )  # fmt: skip


def show(runs: list[Run], directory: Path, console: Console) -> None:
    """Print table and notes, and write the plot."""
    console.width = max(console.width, 104)  # or the labels wrap
    console.print()
    console.print(table(runs))
    for note in notes(runs):
        console.print(f"- {note}", highlight=False)
    plot(runs, directory / "step.svg")
    console.print(f"plot: {directory / 'step.svg'}", highlight=False, soft_wrap=True)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


def _mb(octets: float) -> str:
    return f"{octets / 1e6:.1f}"


def main() -> int:
    """Draw the runs of a directory; return 1 if they do not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path(__file__).parent / "runs" / "hosts")
    args = parser.parse_args()
    runs = [report.read(args.directory / f"{choice.name}.ndjson") for choice in RUNS]
    show(runs, args.directory, Console())
    return 1 if report.disagreement(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
