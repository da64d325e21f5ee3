"""Train the same model with FSDP2 over torch-mcast and over gloo, and show how long a step takes.

The ranks are four hosts of a testbed on this machine, with links of a limited rate; that needs no root, but
user namespaces. Where there are none, or with --loopback, the ranks are processes of this host, and
nothing crosses a link.

LOSS=0.01 in the environment drops 1 % of our datagrams on purpose, those of the switch included.
Writes NDJSON and a plot; exits with 1 if the runs do not agree.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import hosts
import loopback
import network
import report
from node import NodeFailed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from runs import Choice, RunFailed, Show

HERE = Path(__file__).resolve().parent
_STEPS = {"loopback": 100, "hosts": 10}
Train = Callable[[Choice, int, Path, Show], None]  # with how many steps, written where


def interrupt(*_: object) -> None:
    """End as ^C does, so that ranks end with this process; further signals are ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run, report; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS") or 0), help="0: enough")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rate", default="200mbit", help="of a host's link (default: %(default)s)")
    parser.add_argument("--loopback", action="store_true", help="no testbed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "runs")
    parser.add_argument("--testbed", help=argparse.SUPPRESS)  # the one that this runs in
    args = parser.parse_args()
    if args.steps < 0 or args.ranks < 1:
        parser.error("--steps must be at least 0, --ranks at least 1")
    console = Console()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        if args.testbed:
            return on_hosts(args, console)
        if not args.loopback:
            try:
                hosts.within(args.ranks, args.rate, [sys.executable, *sys.argv, "--testbed"])
            except hosts.NoTestbed as e:
                console.print(
                    f"{e}\n\nSo all ranks train on this host, where nothing crosses a link: what a network "
                    "gains by torch-mcast, this run does not show.\n",
                    style="yellow",
                    markup=False,
                    highlight=False,
                )
        return on_loopback(args, console)
    except (RunFailed, NodeFailed) as e:
        console.print(str(e), style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; all ranks have ended")
        return 130


def on_hosts(args: argparse.Namespace, console: Console) -> int:
    """Train on a testbed; return the exit code."""

    def train(choice: Choice, steps: int, out: Path, show: Show) -> None:
        hosts.train(choice, args.testbed, steps, args.seed, os.environ.get("LOSS") or "0", out, show)

    console.print(
        f"{args.ranks} hosts made of network namespaces, links of {args.rate}. Compute is that of an "
        f"emulated accelerator: a block waits until it has taken {hosts.BLOCK_MS} ms forward, twice that "
        "backward, and the cores are free meanwhile. Gradients, losses and packets are real.\n",
        highlight=False,
    )
    runs = train_all(hosts.RUNS, "hosts", args, console, train)
    network.show(runs, args.out / "hosts", console)
    return 1 if report.disagreement(runs) else 0


def on_loopback(args: argparse.Namespace, console: Console) -> int:
    """Train on this host; return the exit code."""

    def train(choice: Choice, steps: int, out: Path, show: Show) -> None:
        loopback.train(choice, args.ranks, steps, args.seed, os.environ.get("LOSS") or "0", out, show)

    runs = train_all(loopback.RUNS, "loopback", args, console, train)
    report.show(runs, args.out / "loopback", console)
    return 1 if report.disagreement(runs) else 0


def train_all(
    choices: Sequence[Choice], place: str, args: argparse.Namespace, console: Console, train: Train
) -> list[report.Run]:
    """Train once for each choice, one after another, and return the runs that they wrote."""
    directory, steps = args.out.resolve() / place, args.steps or _STEPS[place]
    directory.mkdir(parents=True, exist_ok=True)
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        for choice in choices:
            task = progress.add_task(choice.label, total=steps, note="starting")

            def show(done: int, note: str, task: TaskID = task) -> None:
                progress.update(task, completed=done, note=note)

            train(choice, steps, directory / f"{choice.name}.ndjson", show)
    return [report.read(directory / f"{choice.name}.ndjson") for choice in choices]


if __name__ == "__main__":
    sys.exit(main())
