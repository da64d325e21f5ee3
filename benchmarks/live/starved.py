"""Starved ranks are late and not lost: jobs of `mcast bench` at MCAST_TIMEOUT=4s, each under a condition.

stopped: a rank is stopped (SIGSTOP) for nine tenths of MCAST_TIMEOUT, at a moment that is drawn.
all-stopped: all ranks are stopped for 10 s, as in machines that are moved.
quota: all ranks share a cgroup that may use 1 % of a core, in periods of 100 ms.
quota-rank: one rank has such a cgroup for itself.
crowd: 32 ranks on two cores, beside 16 busy loops.
killed: a rank is killed, and all others must name it; for how long that took is in the row.

Every job checks each byte. A row says how it ended: right, or what a rank said. Cgroups need root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import shared_machine  # noqa: E402

TIMEOUT_S = 4.0  # MCAST_TIMEOUT
LIMIT_S = 900  # for a job; one that takes longer hangs
VICTIM = 2
LONG = ("--bytes", "64K", "--iters", "1500")  # some seconds, for what happens in the midst
SHORT = ("--bytes", "4K", "--iters", "10")
CGROUPS = Path("/sys/fs/cgroup")


class Job:
    """The ranks of a job, processes of ours."""

    def __init__(self, fabric: str, ranks: int, words: tuple[str, ...], cgroup: Path | None = None) -> None:
        """Start the ranks, in a cgroup if one is named."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_")}
        kept |= {
            "MCAST_TIMEOUT": f"{TIMEOUT_S:g}s",
            "MCAST_RENDEZVOUS": f"127.0.0.1:{port}",
            "WORLD_SIZE": str(ranks),
        }
        kept |= {"MCAST_METRICS": "off", "MCAST_TRACE": "off"}
        command = [str(ROOT / "bin" / "mcast"), "bench", "allreduce", "--fabric", fabric, *words, "--json"]
        self.files = ExitStack()
        self.said = [self.files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(ranks)]  # noqa: SIM115
        self.rows = self.files.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
        enter = None if cgroup is None else lambda: join(cgroup, os.getpid())
        self.started = time.monotonic()
        self.ranks = [
            subprocess.Popen(
                command,
                env=kept | {"RANK": str(r)},
                stdin=subprocess.DEVNULL,
                stdout=self.rows if r == 0 else subprocess.DEVNULL,
                stderr=self.said[r],
                preexec_fn=enter,
            )
            for r in range(ranks)
        ]

    def running(self) -> bool:
        """Say whether no rank has ended."""
        return all(p.poll() is None for p in self.ranks)

    def wait(self, but: int | None = None) -> None:
        """Wait for all ranks, but for one that is killed."""
        until = self.started + LIMIT_S
        for r, p in enumerate(self.ranks):
            if r != but:
                try:
                    p.wait(max(0.1, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return

    def ended(self) -> str:
        """Return "right", or what was wrong, as the first rank says that failed."""
        for r, p in enumerate(self.ranks):
            if p.poll() != 0:
                return f"rank {r}: status {p.poll()}: {self.text(r)[-600:]}"
        self.rows.seek(0)
        rows = [json.loads(line) for line in self.rows]
        if rows and all(row["wrong"] == 0 for row in rows):
            return "right"
        return f"wrong bytes, or no row: {rows}"

    def text(self, rank: int) -> str:
        """Return what a rank has said on its standard error."""
        self.said[rank].seek(0)
        return self.said[rank].read().strip()

    def close(self) -> None:
        """End what still runs."""
        for p in self.ranks:
            if p.poll() is None:
                p.kill()
                p.wait()
        self.files.close()


def join(cgroup: Path, pid: int) -> None:
    """Put a process into a cgroup."""
    (cgroup / "cgroup.procs").write_text(str(pid))


@contextmanager
def quota(name: str) -> Iterator[Path]:
    """Make a cgroup, of version 1 or 2, that may use 1 ms of each 100."""
    one = CGROUPS / "cpu" / "cpu.cfs_period_us"
    at = (one.parent if one.exists() else CGROUPS) / f"mcast-{name}-{os.getpid()}"
    if not one.exists():
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    at.mkdir()
    try:
        if one.exists():
            (at / "cpu.cfs_period_us").write_text("100000")
            (at / "cpu.cfs_quota_us").write_text("1000")
        else:
            (at / "cpu.max").write_text("1000 100000")
        yield at
    finally:
        for _ in range(100):  # processes that have ended leave it a little later
            try:
                at.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run loops that are busy without end."""
    all_ = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for p in all_:
            p.kill()
            p.wait()


@contextmanager
def two_cores() -> Iterator[None]:
    """Make this process, and all that it starts, run on two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pause(job: Job, ranks: list[int], seconds: float) -> float:
    """Stop ranks for some seconds, at a moment that is drawn; return for how long, 0: the job was over."""
    time.sleep(random.uniform(0.1, 1.5))
    if not job.running():
        return 0.0
    begun = time.monotonic()
    for r in ranks:
        job.ranks[r].send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    for r in ranks:
        job.ranks[r].send_signal(signal.SIGCONT)
    return time.monotonic() - begun


def stopped(fabric: str) -> dict[str, Any]:
    """Stop a rank for less than the limit. If it was for longer, as this machine was busy, it is no row."""
    with closing(Job(fabric, 4, LONG)) as job:
        for_s = pause(job, [VICTIM], 0.9 * TIMEOUT_S)
        job.wait()
        return {"for_s": for_s, "ended": job.ended(), "void": not 0 < for_s < TIMEOUT_S}


def all_stopped(fabric: str) -> dict[str, Any]:
    """Stop all ranks for longer than the limit."""
    with closing(Job(fabric, 4, LONG)) as job:
        for_s = pause(job, list(range(4)), 10)
        job.wait()
        return {"for_s": for_s, "ended": job.ended(), "void": for_s == 0}


def in_quota(fabric: str) -> dict[str, Any]:
    """Give all ranks one per cent of a core."""
    with quota("ranks") as at, closing(Job(fabric, 4, SHORT, at)) as job:
        job.wait()
        return {"ended": job.ended()}


def rank_in_quota(fabric: str) -> dict[str, Any]:
    """Give one rank one per cent of a core."""
    with quota("rank") as at, closing(Job(fabric, 4, SHORT)) as job:
        join(at, job.ranks[VICTIM].pid)
        job.wait()
        return {"ended": job.ended()}


def crowd(fabric: str) -> dict[str, Any]:
    """Run many ranks on two cores beside busy loops."""
    with two_cores(), busy(16), closing(Job(fabric, 32, SHORT)) as job:
        job.wait()
        return {"ended": job.ended()}


def killed(fabric: str) -> dict[str, Any]:
    """Kill a rank: each of the others names it."""
    with closing(Job(fabric, 4, LONG)) as job:
        time.sleep(random.uniform(1, 2))
        if not job.running():
            return {"ended": job.ended(), "void": True}
        begun = time.monotonic()
        job.ranks[VICTIM].kill()
        job.wait(but=VICTIM)
        named_s = time.monotonic() - begun
        names = re.compile(rf"rank {VICTIM} (is lost: .*its process ended|of \d+ came and was lost)")
        for r in range(4):
            if r != VICTIM and not names.search(job.text(r)):
                return {"ended": f"rank {r} says: {job.text(r)[-600:]}", "named_s": named_s}
        return {"ended": "right", "named_s": named_s}


CONDITIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "stopped": stopped,
    "all-stopped": all_stopped,
    "quota": in_quota,
    "quota-rank": rank_in_quota,
    "crowd": crowd,
    "killed": killed,
}


def once(condition: str, fabric: str) -> dict[str, Any]:
    """Run jobs until one was not void, and return its row."""
    while True:
        where, begun = shared_machine(), time.monotonic()
        row = CONDITIONS[condition](fabric)
        if not row.pop("void", False):
            head = {"condition": condition, "fabric": fabric, "timeout_s": TIMEOUT_S}
            return head | row | {"seconds": round(time.monotonic() - begun, 2)} | where


def main() -> None:
    """Run the conditions by turns, append a row a job, and say how many ended right."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=25, help="of each condition (default: %(default)s)")
    parser.add_argument("--only", choices=CONDITIONS, action="append", help="one or several (default: all)")
    results = ROOT / "benchmarks" / "results" / "live" / "starved.ndjson"
    parser.add_argument("--output", type=Path, default=results)
    args = parser.parse_args()
    right: dict[str, int] = dict.fromkeys(args.only or CONDITIONS, 0)
    for r in range(args.rounds):
        for condition in right:
            row = once(condition, ("shm", "udp")[r % 2])
            right[condition] += row["ended"] == "right"
            with args.output.open("a") as f:
                f.write(json.dumps(row) + "\n")
            print(condition, row["fabric"], row["seconds"], row["ended"], row.get("named_s", ""), flush=True)
    for condition, n in right.items():
        print(f"{condition}: {n} of {args.rounds} ended right")
    sys.exit(any(n < args.rounds for n in right.values()))


if __name__ == "__main__":
    main()
