"""Read the NDJSON of training runs; draw the table and the plot.

    python benchmarks/fsdp/report.py benchmarks/fsdp/runs/loopback

This draws the runs again that demo.py left there; network.py does so for runs on a testbed. Times are rank
0's, means over the middle half of the steps; the first steps, in which memory is set up, do not count.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

WARM_UP = 5
_KINDS = ("run", "step", "end", "trace", "network")  # of records
_COLUMNS = ("udp", "switch", "shm", "gloo")  # names of the files
# gloo adds in another order than ours, so each f32 sum may differ in its last
# bits (2^-24 relative), and training amplifies that slowly. The bound is four
# orders of magnitude above what one step does and far below what a wrong shard does.
TOLERANCE = 1e-2

INK, SOFT, GRID = "#1f2933", "#66727f", "#e4e7eb"
_DARK = {"ink": (INK, "#e6edf3"), "soft": (SOFT, "#9aa7b4"), "grid": (GRID, "#30363d")}  # light, dark
_ON_BAR = "#1f2934"  # text on a bar: not INK, since it must stay dark on a dark page
PARTS = (
    ("compute_s", "compute", "#9fb3c8"),
    ("exposed_allgather_s", "waiting for Allgather", "#d64545"),
    ("exposed_reduce_scatter_s", "waiting for Reduce-Scatter", "#f0a04b"),
)
# Ours lie on each other: wide lines below, thin ones on top.
_LINES = {
    "mcast udp": ("#0b6e99", 5.2),
    "mcast udp, switch": ("#f0a04b", 3.4),
    "mcast shm": ("#8fd3c4", 1.9),
    "gloo tcp": ("#1f2933", 0.8),
}


@dataclass
class Run:
    """One training run."""

    about: dict[str, Any]
    steps: list[dict[str, Any]]
    end: dict[str, Any]
    trace: dict[str, Any]  # of one step; empty if none was asked for
    network: dict[str, Any]  # of the testbed; empty on a host's own

    @property
    def name(self) -> str:
        """Return e.g. "mcast udp", or "mcast udp, switch" if gradients went through one."""
        switch = ", switch" if self.end["fabric"].get("reduce_scatter") == "switch" else ""
        return f"{self.about['backend']} {self.end['fabric']['fabric']}{switch}"

    @property
    def losses(self) -> list[float]:
        """Return the mean loss of each step, in nats a byte."""
        return [step["loss"] for step in self.steps]

    def typical(self, key: str) -> float:
        """Return the mean over the middle half of the steps by step time; nan if not measured.

        Unlike medians, the parts of a step then add up to the step.
        """
        steps = sorted(self.steps[WARM_UP:] or self.steps, key=lambda step: float(step["step_s"]))
        quarter = len(steps) // 4
        return statistics.fmean(step.get(key, math.nan) for step in steps[quarter : len(steps) - quarter])

    def count(self, counter: str) -> int:
        """Return a counter's sum over all steps."""
        return sum(step["counters"].get(counter, 0) for step in self.steps)


def read(path: Path) -> Run:
    """Read the records of a finished run."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {kind: [r for r in records if r["record"] == kind] for kind in _KINDS}
    if len(kinds["run"]) != 1 or not kinds["step"] or len(kinds["end"]) != 1:
        raise ValueError(f"{path} is not the record of a finished run")
    trace, network = ([*kinds[kind], {}][0] for kind in ("trace", "network"))
    return Run(kinds["run"][0], kinds["step"], kinds["end"][0], trace, network)


def disagreement(runs: list[Run]) -> list[str]:
    """Return what does not agree among runs of one seed, one sentence each; empty is well."""
    found = [
        f"asked for fabric {run.about['fabric']}, ran on {run.name}: {run.end['fabric'].get('reason')}"
        for run in runs
        if run.about["fabric"] not in ("auto", run.end["fabric"]["fabric"])
    ]
    found += [
        f"{run.name}: asked for the switch, not used: {run.end['fabric'].get('reduce_scatter_reason')}"
        for run in runs
        if run.about.get("switch") and run.end["fabric"].get("reduce_scatter") != "switch"
    ]
    ours = [run for run in runs if run.about["backend"] == "mcast"]
    for other in ours[1:]:
        if other.losses != ours[0].losses:
            step = next(
                i for i, (a, b) in enumerate(zip(ours[0].losses, other.losses, strict=True)) if a != b
            )
            found.append(f"{ours[0].name} and {other.name}: losses differ from step {step} on")
        elif other.end["weights_sha256"] != ours[0].end["weights_sha256"]:
            found.append(f"{ours[0].name} and {other.name} ended with different weights")
    for other in runs:
        far = [
            i
            for i, (a, b) in enumerate(zip(runs[0].losses, other.losses, strict=True))
            if not abs(a - b) <= TOLERANCE  # nan is far, too
        ]
        if far:
            i = far[0]
            apart = abs(runs[0].losses[i] - other.losses[i])
            found.append(
                f"{runs[0].name} and {other.name}: losses {apart:.2g} apart at step {i}, "
                f"allowed is {TOLERANCE:g}"
            )
    return found


def table(runs: list[Run]) -> Table:
    """Return the comparison, a column a run."""
    drawn = Table(title="Training a byte GPT with FSDP2", title_justify="left", show_lines=False)
    drawn.add_column("")
    for run in runs:
        drawn.add_column(run.name, justify="right", no_wrap=True)

    def row(label: str, values: list[str], end: bool = False) -> None:
        drawn.add_row(label, *values, end_section=end)

    last = len(runs[0].steps) - 1
    shown = sorted({0, last // 4, last // 2, 3 * last // 4, last})
    for step in shown:
        row(f"loss at step {step}", [f"{run.losses[step]:.7f}" for run in runs])
    row("validation loss", [f"{run.end['validation_loss']:.7f}" for run in runs], end=True)

    row("step time, ms", [_ms(run, "step_s") for run in runs])
    for key, label, _ in PARTS:
        row(f"  {label}", [_ms(run, key) for run in runs])
    row("AG and RS in flight together", [_ms(run, "both_in_flight_s") for run in runs])
    row("AG, RS and compute together", [_ms(run, "all_three_s") for run in runs], end=True)

    row("Allgather: N, MB a rank and step", [_per_step(run, "gather_bytes") for run in runs])
    row("  a ring sends N(P-1)", [_per_step(run, "gather_bytes", run.about["ranks"] - 1) for run in runs])
    row("  sent", [_per_step(run, "gather_sent_bytes") for run in runs])
    row("  sent / N", [_sent_ratio(run) for run in runs], end=True)
    row("Reduce-Scatter: n, MB a rank and step", [_per_step(run, "reduce_bytes") for run in runs])
    row("  through the switch", [_through_switch(run) for run in runs])
    row("  sent, to (P-1)n", [_ratio(run, "reduce_sent_bytes", run.about["ranks"] - 1) for run in runs])
    row("  received, to n", [_ratio(run, "reduce_received_bytes", 1) for run in runs], end=True)
    for counter, label in (
        ("chunks_injected", "datagrams dropped on purpose"),
        ("chunks_lost", "datagrams lost"),
        ("chunks_repaired", "datagrams repaired"),
    ):
        row(label, [f"{run.count(counter):,}" if run.about["backend"] == "mcast" else "-" for run in runs])
    return drawn


def notes(runs: list[Run]) -> list[str]:
    """Return what a reader of the table must know."""
    apart = max(abs(a - b) for run in runs for a, b in zip(runs[0].losses, run.losses, strict=True))
    said = [
        f"Largest difference of a loss between any two runs' same step: {apart:.2g} (allowed: "
        f"{TOLERANCE:g}). Ours add in one order, on every fabric and in the switch, so they agree "
        "in every bit of every loss and weight, or this run fails; gloo adds in another order, so its "
        "last bits differ.",
        "All runs use the same FSDP schedule (torch_mcast.fsdp.enable); only the backend differs. "
        "Waiting includes waiting for ranks that are late: ranks may outnumber cores, and the switch is "
        "one more process on them.",
    ]
    said += disagreement(runs)
    return said


def pyplot() -> Any:
    """Return matplotlib's, with the type and the inks of our plots."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 10.5,
            "svg.hashsalt": "mcast",  # the same rows draw the same file
            "text.color": INK,
            "axes.labelcolor": SOFT,
            "xtick.color": SOFT,
            "ytick.color": INK,
        }
    )
    return plt


def save(figure: Any, path: Path) -> None:
    """Write a plot as an SVG with light inks where the reader's screen is dark."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None})
    text = drawn.getvalue()
    for name, (ink, _) in _DARK.items():
        text = text.replace(ink, f"var(--{name})")
    light = "".join(f"--{name}: {ink}; " for name, (ink, _) in _DARK.items())
    dark = "".join(f"--{name}: {ink}; " for name, (_, ink) in _DARK.items())
    style = f"<style>svg {{{light}}} @media (prefers-color-scheme: dark) {{svg {{{dark}}}}}</style>"
    path.write_text(re.sub(r"(<svg[^>]*>)", lambda tag: f"{tag[1]}\n {style}", text, count=1))


def bare(axes: Any) -> None:
    """Leave of a plot's frame what its numbers need."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)


def plot(runs: list[Run], path: Path) -> None:
    """Draw step time in its parts, and the losses, to an SVG."""
    plt = pyplot()
    figure, (bars, curves) = plt.subplots(
        1, 2, figsize=(11.5, 4.2), gridspec_kw={"width_ratios": [1.3, 1], "wspace": 0.14}
    )
    for axes in (bars, curves):
        bare(axes)

    left = [0.0] * len(runs)
    for key, label, color in PARTS:
        widths = [run.typical(key) * 1000 for run in runs]
        bars.barh(
            range(len(runs)), widths, left=left, height=0.56, color=color, label=label, edgecolor="none"
        )
        for i, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width > 0.075 * max(run.typical("step_s") * 1000 for run in runs):
                ink = "white" if key == "exposed_allgather_s" else _ON_BAR
                bars.text(
                    start + width / 2, i, f"{width:.0f}", ha="center", va="center", color=ink, fontsize=9.5
                )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for i, total in enumerate(left):
        bars.text(total + max(left) * 0.012, i, f"{total:.0f} ms", va="center", fontweight="bold")
    bars.set_yticks(range(len(runs)), [run.name for run in runs])
    bars.invert_yaxis()
    bars.set_xlim(0, max(left) * 1.24)
    bars.set_xlabel("milliseconds a step (rank 0, middle half of the steps)")
    bars.xaxis.grid(True, color=GRID)
    bars.set_axisbelow(True)
    bars.set_title("Where a training step goes", loc="left", fontweight="bold", pad=30)
    bars.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=3, frameon=False, fontsize=9, columnspacing=1.2,
        handlelength=1.0, handleheight=1.0, borderaxespad=0.2,
    )  # fmt: skip

    for run in runs:
        color, width = _LINES.get(run.name, (SOFT, 1.0))
        curves.plot(run.losses, color=color, linewidth=width, label=run.name, solid_capstyle="round")
    curves.yaxis.grid(True, color=GRID)
    curves.set_axisbelow(True)
    curves.set_xlabel("step")
    curves.xaxis.get_major_locator().set_params(integer=True)
    curves.tick_params(axis="y", colors=SOFT)
    curves.set_title("Loss, nats a byte", loc="left", fontweight="bold", pad=30)
    curves.legend(frameon=False, fontsize=9)

    about = runs[0].about
    injected = max(run.about["loss_injected"] for run in runs)
    figure.text(
        0.99, -0.03,
        f"{about['ranks']} ranks on {about['machine']}; torch {about['torch']}; commit {about['commit']}"
        + (f"; udp drops {injected:.1%} on purpose" if injected else ""),
        ha="right", color=SOFT, fontsize=8,
    )  # fmt: skip
    save(figure, path)
    plt.close(figure)


def show(runs: list[Run], directory: Path, console: Console) -> None:
    """Print table and notes, and write the plot."""
    console.width = max(console.width, 100)  # or the labels wrap
    console.print()
    console.print(table(runs))
    for note in notes(runs):
        console.print(f"- {note}", highlight=False)
    plot(runs, directory / "steps.svg")
    console.print(f"plot: {directory / 'steps.svg'}", highlight=False, soft_wrap=True)


def _ms(run: Run, key: str) -> str:
    value = run.typical(key) * 1000
    return "-" if math.isnan(value) else f"{value:.1f}"


def _per_step(run: Run, counter: str, factor: int = 1) -> str:
    if run.about["backend"] != "mcast":
        return "-"
    return f"{run.count(counter) * factor / len(run.steps) / 1e6:.3f}"


def _sent_ratio(run: Run) -> str:
    own = run.count("gather_bytes")
    return f"{run.count('gather_sent_bytes') / own:.4f}" if own else "-"


def _ratio(run: Run, counter: str, shards: int) -> str:
    """Return what a counter of Reduce-Scatters is to so many shards."""
    own, moved = run.count("reduce_bytes") * shards, run.count(counter)
    return f"{moved / own:.4f}" if own and moved else "-"


def _through_switch(run: Run) -> str:
    switched, direct = run.count("switch_ops"), run.count("direct_ops")
    return f"{switched / (switched + direct):.0%}" if switched + direct else "-"


def main() -> int:
    """Draw the runs of a directory; return 1 if they do not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "directory", type=Path, nargs="?", default=Path(__file__).parent / "runs" / "loopback"
    )
    args = parser.parse_args()
    paths = sorted(args.directory.glob("*.ndjson"), key=lambda p: _COLUMNS.index(p.stem))
    if not paths:
        print(f"{args.directory} holds no .ndjson: run demo.py first", file=sys.stderr)
        return 2
    runs = [read(path) for path in paths]
    show(runs, args.directory, Console())
    return 1 if disagreement(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
