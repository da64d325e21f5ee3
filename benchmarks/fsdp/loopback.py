"""Trainings in which the ranks are processes of one host: nothing crosses a link."""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from node import node
from runs import Choice, RunFailed, Show, environment, follow, late, tail

HERE = Path(__file__).resolve().parent
RUNS = (
    Choice("udp", "mcast udp", "mcast", "udp"),
    Choice("switch", "mcast udp, switch", "mcast", "udp", switch=True),
    Choice("shm", "mcast shm", "mcast", "shm"),
    Choice("gloo", "gloo", "gloo"),
)


def train(choice: Choice, ranks: int, steps: int, seed: int, loss: str, out: Path, show: Show) -> None:
    """Run train.py under torchrun; raise RunFailed if it fails. loss: share of datagrams to drop."""
    with node() if choice.switch else nullcontext("") as switch:
        env = environment() | {"GLOO_SOCKET_IFNAME": "lo"}
        if choice.backend == "mcast":
            env |= {"MCAST_FABRIC": choice.fabric, "MCAST_SWITCH": switch}
        if choice.fabric == "udp":
            env |= {"MCAST_LOSS": loss}
        with tempfile.TemporaryDirectory(prefix="mcast-demo-") as scratch:
            logs = Path(scratch)
            command = [
                sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
                "--log-dir", str(logs), "--redirects", "3",
                str(HERE / "train.py"), "--backend", choice.backend, "--steps", str(steps),
                "--seed", str(seed), "--out", str(out),
            ]  # fmt: skip
            with (logs / "torchrun.log").open("w") as log:
                code = follow(command, env, log, out, show)
            if code != 0:
                raise RunFailed(_story(choice.label, code, logs))


def _story(run: str, code: int, logs: Path) -> str:
    """Say which rank failed first, with the end of its log."""
    launcher = (logs / "torchrun.log").read_text(errors="replace")
    cause = launcher.partition("Root Cause")[2]
    found = re.search(r"rank\s*:\s*(\d+)", cause)
    if code == 124:
        return late(run, launcher)
    if not found:
        return f"The run {run} failed (exit code {code}).\n" + tail(launcher)
    rank = found[1]
    stderr = sorted(logs.glob(f"*/attempt_*/{rank}/stderr.log"))
    text = stderr[-1].read_text(errors="replace") if stderr else launcher
    return f"Rank {rank} of the run {run} failed first. The end of its log:\n" + tail(text)
