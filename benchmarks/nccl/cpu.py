"""CPU seconds that an Allgather and a Reduce-Scatter at once take on a testbed, by what they are for.

perf samples all processes of a run, ranks and switch, while the rig runs both at once (RIG_ONLY_BOTH,
which the rig must know). The kernel's network stack runs in softirqs, in whichever process they
interrupt. What ranks wait with (yields, naps, polls of NCCL's threads) takes the cores that are left.
The rest is work, which does not depend on the load of the machine.

Status: 0 all well, 1 something is wrong, 77 something is missing (one line says what).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from compare import LIMIT_S, MISSING, folder, machine, size
from places import ROOT, WAYS, Failed, Testbed, Way, read_both, results

HERTZ = 499  # samples a second
CHECKS = "checks"  # of the rig: no part of the operation
WAITING = "waiting"
FAULTS = "page faults"  # memory that is new: of checks and of NCCL's buffers
SOCKETS = re.compile(r"sys_(send|recv|read|write|accept|ioctl)|vfs_(read|write)")
COPIES = re.compile(r"mem(cpy|move|set)|Prims|collnet|_Function_handler|[Rr]educe|copy")


def part(process: str, frames: list[tuple[str, str]]) -> str:
    """Return what a sample is for. The frames (symbol, library) begin with the innermost."""
    kernel = " ".join(symbol for symbol, library in frames if "kernel" in library)
    user = [library for _, library in frames if "kernel" not in library]
    if "softirq" in kernel:
        return "network stack"
    if process.startswith("mcast"):
        return "switch"
    if kernel:
        if SOCKETS.search(kernel):
            return "system calls on sockets"
        if "page_fault" not in kernel:
            return WAITING
        return FAULTS
    symbol, library = frames[0] if frames else ("", "")
    if any(name.endswith("/rigdriver") for name in user[:2]):
        return CHECKS
    if "libnccl-net-mcast" in library:
        return "plugin"
    return "copies and sums" if COPIES.search(symbol) else WAITING


def seconds(data: Path, begin: float, end: float) -> dict[str, float]:
    """Return the CPU seconds by part of what perf has sampled from one moment to another."""
    words = ["perf", "script", "-i", str(data), "-F", "comm,time,ip,sym,dso"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for sample in text.split("\n\n"):
        head, *rest = sample.strip("\n").splitlines() or [""]
        when = re.match(r"\s*(.*?)\s+([0-9]+\.[0-9]+):", head)
        if when and begin <= float(when[2]) <= end:
            frames = [(m[1], m[2]) for line in rest if (m := re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line))]
            found[part(when[1], frames)] += 1
    return {what: count / HERTZ for what, count in found.items()}


def softirq_threads() -> float:
    """Return the seconds that the kernel's threads for softirqs have run, for the whole machine."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/comm"):
        try:
            if stat.read_text().startswith("ksoftirqd"):
                total += int((stat.parent / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def turns(program: Path) -> tuple[float, int]:
    """Return for how long threads of a program that were ready have waited for a core, in s, and how often."""
    waited, count = 0, 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if not (process / "cmdline").read_bytes().startswith(bytes(program)):
                continue
            for stat in process.glob("task/*/schedstat"):
                words = stat.read_text().split()
                waited, count = waited + int(words[1]), count + int(words[2])
        except OSError:
            continue
    return waited / 1e9, count


class Watched(Testbed):
    """A testbed on which perf watches what a run does."""

    def __init__(self, rig: Path | None, beside: bool) -> None:
        super().__init__(rig, beside)
        self.cpu: dict[str, float] = {}
        self.turn = 0.0  # how long a thread that was ready waited for a core in the mean, s

    def missing(self) -> str | None:
        """Return in one line what this machine lacks, or None."""
        return super().missing() or (None if shutil.which("perf") else "perf")

    def launch(self, words: list[str], env: dict[str, str], limit: float) -> str:
        """Run the ranks under perf and keep what they have taken between the rig's first line and its last."""
        data = Path(tempfile.gettempdir()) / f"mcast-{self.bed}.perf"
        perf = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(HERTZ), "-g"]
        assert self.rig is not None
        program, text, begin, end = self.rig / "rigdriver", "", 0.0, 0.0
        words = [*perf, "-o", str(data), "--", *words]
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as ranks:
            assert ranks.stdout is not None
            ending = threading.Timer(limit, ranks.terminate)
            ending.start()
            for line in ranks.stdout:
                text += line
                if line.startswith("#") and not begin:
                    begin, before, waits = time.monotonic(), softirq_threads(), turns(program)
                elif begin and not line.startswith("#") and not end:
                    end, threads = time.monotonic(), softirq_threads() - before
                    waited, count = (now - then for now, then in zip(turns(program), waits, strict=True))
                    self.turn = waited / max(1, count)
            ending.cancel()
            if ranks.wait() != 0 or not end:
                raise Failed(f"ended with {ranks.returncode}, after {limit:g} s at most: {text[-1500:]}")
        self.cpu = seconds(data, begin, end)
        self.cpu["network stack"] = self.cpu.get("network stack", 0) + threads
        data.unlink()
        return text

    def both(self, way: Way, bytes_: int, operations: int, limit: float) -> tuple[float, dict[str, float], str]:
        """Run both at once so many times; return the median time, and the CPU seconds of one. Raises Failed."""
        words = ["-A", "-b", str(bytes_), "-e", str(bytes_), "-f", "2", "-i", str(operations - 1), "-w", "1"]
        done = self.drive(Way({**way.env, "RIG_ONLY_BOTH": "1"}, way.switch, way.registered), words, limit)
        if float(results(done.text)[0][1]):  # an Allgather alone
            raise Failed("the rig does not know RIG_ONLY_BOTH")
        each = {k: v / operations for k, v in self.cpu.items()}
        return read_both(done.text)["both", bytes_] / 1e6, each, done.command


def account(place: Watched, hosts: int, rate: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the ways by turns on so many hosts; return a row for each."""
    rounds: dict[str, list[tuple[float, dict[str, float], str]]] = {way: [] for way in args.ways}
    waits: dict[str, list[float]] = {way: [] for way in args.ways}
    about = {"experiment": "nccl-cpu", "hosts": hosts, "rate": rate, "bytes": args.bytes, **machine()}
    with place.hosts(hosts, rate):
        for turn in range(args.rounds):
            for way in args.ways:
                print(f"{hosts} hosts, {rate}: round {turn + 1} of {args.rounds}: {way}", file=sys.stderr)
                rounds[way].append(place.both(WAYS[way], args.bytes, args.operations, args.limit))
                waits[way].append(place.turn)
    rows = []
    for way, measured in rounds.items():
        parts = sorted({what for _, cpu, _ in measured for what in cpu} - {CHECKS})
        cpu = {what: round(statistics.median(m[1].get(what, 0) for m in measured), 3) for what in parts}
        work = sum(s for what, s in cpu.items() if what not in (WAITING, FAULTS))
        ours = work - cpu.get("switch", 0)
        rows.append({
            **about, "way": way, "operations": args.operations, "rounds_s": [round(m[0], 3) for m in measured],
            "time_s": round(statistics.median(m[0] for m in measured), 3), "cpu_s": cpu, "work_s": round(work, 3),
            # of the bytes that ranks send and receive, 2 P n each, and the switch, P n for each rank
            "rank_ns_per_byte": round(ours * 1e9 / (2 * hosts * hosts * args.bytes), 2),
            "switch_ns_per_byte": round(cpu.get("switch", 0) * 1e9 / (hosts * hosts * args.bytes), 2),
            "turn_ms": round(1e3 * statistics.median(waits[way]), 3), "command": measured[0][2],
        })  # fmt: skip
    return rows


def main() -> int:
    """Measure, write the rows, print a table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("cpu.py", description=__doc__, formatter_class=raw)
    parser.add_argument("--hosts", type=int, nargs="+", default=[4, 8], help="of a testbed (default: 4 8)")
    parser.add_argument("--rate", nargs="+", default=["100mbit"], help="of its links (default: 100mbit)")
    parser.add_argument("--bytes", type=size, default=4 << 20, help="a rank (default: 4M)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["socket", "switch", "switch-registered"])
    parser.add_argument("--rounds", type=int, default=1, help="of all ways (default: %(default)s)")
    parser.add_argument("--operations", type=int, default=3, help="of a round, at least 2 (default: %(default)s)")
    parser.add_argument("--rig", type=Path, default=folder("NCCL_RIG"), help="default: NCCL_RIG")
    parser.add_argument("--beside", action="store_true", help="even where another testbed is up")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="of one run, s (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/nccl/cpu.ndjson")
    args = parser.parse_args()
    place = Watched(args.rig, args.beside)
    if (lack := place.missing()) is not None:
        print(f"missing: {lack}", file=sys.stderr)
        return MISSING
    for hosts in args.hosts:
        for rate in args.rate:
            try:
                rows = account(place, hosts, rate, args)
            except Failed as e:
                print(e, file=sys.stderr)
                return 1
            with args.output.open("a") as output:
                output.write("".join(json.dumps(row) + "\n" for row in rows))
            for row in rows:
                took = f"{row['time_s']:.2f} s, work {row['work_s']:.2f} core-s, a turn {row['turn_ms']} ms"
                print(f"{hosts} hosts, {rate}, {row['way']}: {took}, {row['cpu_s']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
