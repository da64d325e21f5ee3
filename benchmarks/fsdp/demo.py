"""Train the same model four times: over mcast udp, udp with an aggregation node, shm, and over gloo.

LOSS=0.01 in the environment drops 1 % of the udp runs' datagrams on purpose, those of the node included.
Writes NDJSON and a plot; exits with 1 if the runs do not agree.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import report
from node import NodeFailed, node
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
_LIMIT_S = 600  # a run that takes longer is stuck
_GRACE_S = 40  # torchrun gives its workers 30 s to end


class Choice(NamedTuple):
    """What a run trains over."""

    name: str  # of its file
    label: str
    backend: str
    fabric: str = ""
    switch: bool = False


RUNS = (
    Choice("udp", "mcast udp", "mcast", "udp"),
    Choice("switch", "mcast udp, switch", "mcast", "udp", switch=True),
    Choice("shm", "mcast shm", "mcast", "shm"),
    Choice("gloo", "gloo", "gloo"),
)
Show = Callable[[int, str], None]  # steps done, what to say


class RunFailed(Exception):
    """A training run ended badly; the message says which rank and why."""


def main() -> int:
    """Run, report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS") or 100))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "runs")
    args = parser.parse_args()
    if args.steps < 1 or args.ranks < 1:
        parser.error("--steps and --ranks must be at least 1")
    loss = os.environ.get("LOSS") or "0"
    args.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    columns = (
        TextColumn("{task.description:<17}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            for choice in RUNS:
                task = progress.add_task(choice.label, total=args.steps, note="starting")

                def show(done: int, note: str, task: TaskID = task) -> None:
                    progress.update(task, completed=done, note=note)

                with node() if choice.switch else nullcontext("") as switch:
                    train(choice, switch, loss, args, show)
    except (RunFailed, NodeFailed) as e:
        console.print(str(e), style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; all ranks have ended")
        return 130
    runs = [report.read(args.out / f"{name}.ndjson") for name, *_ in RUNS]
    report.show(runs, args.out, console)
    return 1 if report.disagreement(runs) else 0


def train(choice: Choice, switch: str, loss: str, args: argparse.Namespace, show: Show) -> None:
    """Run train.py under torchrun and follow its NDJSON; raise RunFailed if it fails.

    switch is the address of an aggregation node, or "".
    """
    out: Path = args.out / f"{choice.name}.ndjson"
    out.unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_") or k == "MCAST_LIBRARY"}
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if choice.backend == "mcast":
        environment |= {"MCAST_FABRIC": choice.fabric, "MCAST_SWITCH": switch}
    if choice.fabric == "udp":
        environment |= {"MCAST_LOSS": loss}
    with tempfile.TemporaryDirectory(prefix="mcast-demo-") as scratch:
        logs = Path(scratch)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(args.ranks),
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
            "--log-dir", str(logs), "--redirects", "3",
            str(HERE / "train.py"), "--backend", choice.backend, "--steps", str(args.steps),
            "--seed", str(args.seed), "--out", str(out),
        ]  # fmt: skip
        with (logs / "torchrun.log").open("w") as log:
            started = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                code = _follow(started, out, show)
            finally:
                _end(started)
        if code != 0:
            raise RunFailed(_story(choice.label, code, logs))


def _follow(process: subprocess.Popen[bytes], out: Path, show: Show) -> int:
    deadline = time.monotonic() + _LIMIT_S
    while (code := process.poll()) is None:
        _show_progress(out, show)
        if time.monotonic() > deadline:
            return 124
        time.sleep(0.25)
    _show_progress(out, show)
    return code


def _show_progress(out: Path, show: Show) -> None:
    if not out.exists():
        return
    lines = [line for line in out.read_text().splitlines() if '"record": "step"' in line]
    found = re.search(r'"loss": ([0-9.]+)', lines[-1]) if lines else None
    if found:
        show(len(lines), f"loss {float(found[1]):.4f}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its workers, and wait for it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _story(run: str, code: int, logs: Path) -> str:
    """Say which rank failed first, with the end of its log."""
    launcher = (logs / "torchrun.log").read_text(errors="replace")
    cause = launcher.partition("Root Cause")[2]
    found = re.search(r"rank\s*:\s*(\d+)", cause)
    if code == 124:
        return f"The run {run} was not done after {_LIMIT_S} s.\n" + _tail(launcher)
    if not found:
        return f"The run {run} failed (exit code {code}).\n" + _tail(launcher)
    rank = found[1]
    stderr = sorted(logs.glob(f"*/attempt_*/{rank}/stderr.log"))
    text = stderr[-1].read_text(errors="replace") if stderr else launcher
    return f"Rank {rank} of the run {run} failed first. The end of its log:\n" + _tail(text)


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines()[-lines:])


if __name__ == "__main__":
    sys.exit(main())
