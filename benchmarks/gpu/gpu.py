"""Collectives and FSDP2 on CUDA tensors: "mcast" beside gloo and NCCL, several ranks on one or several GPUs.

Contenders run in turn: "mcast", over shared memory here, and "mcast-udp", as between hosts; "gloo", its CUDA
path; NCCL over its own Socket ("nccl-socket"), over the plugin's messages ("nccl-net"), and with Allgathers
and Reduce-Scatters of every size through CollNet ("nccl-collnet"). Each checks both collectives with every
element type, times each and both at once, alone and beside products of matrices, and trains FSDP2. NCCL's
log must name the right network for each, and losses must agree. Rank r has device r modulo their number;
ranks that share a GPU share its time, so that figures then compare contenders, and say little about several.

MCAST_TORCH_CUDA=PROGRAM runs the ranks by a Python program that has CUDA tensors without a GPU: it tries
this one out, and times mean nothing then.

Status: 0 all well, 1 something is wrong, 2 wrong options, 77 something is missing (one line says what).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ncclog
from contenders import CONTENDERS, LAB, ROOT, environment, missing
from rows import Failed, difference, machine, merged, table

HERE = Path(__file__).resolve().parent
RESULTS = ROOT / "benchmarks" / "results"
RUNNER = os.environ.get("MCAST_TORCH_CUDA", "")
MISSING = 77
LIMIT_S = 900  # for one run of one contender
SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
DEFAULT = ["mcast", "gloo", "nccl-socket", "nccl-net", "nccl-collnet"]
WITHOUT_GPU = ["mcast", "gloo"]


def launch(name: str, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run all ranks of a contender; return the run's records. Raises Failed."""
    contender = CONTENDERS[name]
    words = [sys.executable, *([RUNNER] if args.emulated else []), str(HERE / "rank.py")]
    words += ["--backend", contender.backend, "--store", str(folder / "store"), "--matrix", str(args.matrix)]
    words += ["--steps", str(args.steps), "--rounds", str(args.rounds), "--bytes", *map(str, args.bytes)]
    words += (
        ["--collnet"] * (contender.collnet is True) + ["--cpu"] * args.cpu + ["--emulated"] * args.emulated
    )
    if args.trace is not None:
        words += ["--trace", str(args.trace.resolve() / f"{name}.json")]
    copies = [["--copies"] * (rank < len(args.devices)) for rank in range(args.ranks)]
    commands = [[*host(args, rank), *words, *copies[rank]] for rank in range(args.ranks)]
    with launched(commands, lambda rank: environment(name, rank, args, folder), folder) as ranks:
        ended = wait(ranks, time.monotonic() + args.limit)
    if ended is not None:
        rank, status = ended
        if status is None:
            raise Failed(f"{name}: rank {rank} is not done after {args.limit:g} s\n{tail(folder, rank)}")
        raise Failed(f"{name}: rank {rank} ended with {status}\n{tail(folder, rank)}")
    return merged(written(args, folder), len(args.devices))


def written(args: argparse.Namespace, folder: Path) -> list[list[dict[str, Any]]]:
    """Return the records that each rank has written. The last line may be cut."""
    outputs = [(folder / f"{rank}.out").read_text() for rank in range(args.ranks)]
    lines = [text[: text.rfind("\n") + 1].splitlines() for text in outputs]
    return [[json.loads(line) for line in of if line.startswith("{")] for of in lines]


def so_far(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run that was cut or that failed, as far as all ranks have written them."""
    records = written(args, folder)
    whole = min(len(of) for of in records)
    return merged([of[:whole] for of in records], len(args.devices))


@contextmanager
def launched(
    commands: list[list[str]], env: Callable[[int], dict[str, str]], folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start ranks that write to RANK.out and RANK.err of a folder; end them when left."""
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank, command in enumerate(commands):
            with (folder / f"{rank}.out").open("w") as out, (folder / f"{rank}.err").open("w") as err:
                ranks.append(subprocess.Popen(command, env=env(rank), stdout=out, stderr=err))
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def host(args: argparse.Namespace, rank: int) -> list[str]:
    """Return what starts a command on a rank's host of the testbed; nothing without one."""
    return [str(LAB), "testbed", "rsh", "--name", args.testbed, str(rank), "--"] if args.testbed else []


def wait(ranks: list[subprocess.Popen[bytes]], deadline: float) -> tuple[int, int | None] | None:
    """Wait for all; return None, or the first rank that failed and its status (None: it is late)."""
    while True:
        statuses = [process.poll() for process in ranks]
        for rank, status in enumerate(statuses):
            if status:
                return rank, status
        if None not in statuses:
            return None
        if time.monotonic() > deadline:
            return statuses.index(None), None
        time.sleep(0.05)


def tail(folder: Path, rank: int) -> str:
    """Return the end of what a rank and its NCCL have said."""
    log = folder / f"nccl.{rank}.log"
    parts = [(folder / f"{rank}.err").read_text(errors="replace")[-3000:]]
    if log.is_file():
        parts += [w for w in log.read_text(errors="replace").splitlines() if "NCCL WARN" in w][-5:]
    return "\n".join(parts)


def judge(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what NCCL's log tells; raise Failed where it is not what the contender should have done."""
    logs = [(folder / f"nccl.{rank}.log").read_text(errors="replace") for rank in range(args.ranks)]
    log, contender = ncclog.read(logs), CONTENDERS[name]
    if found := ncclog.problems(log, contender.network, contender.collnet, args.bytes):
        raise Failed("\n".join([f"{name}: {text}" for text in found] + log.warnings[:5]))
    return {
        "networks": dict(log.networks),
        "collnet": dict(log.collnet),
        "algorithms": {what: ncclog.algorithms(log, what) for what in ncclog.COLLECTIVES},
        "warnings": log.warnings,
    }


def setting(text: str) -> tuple[str, str]:
    """Return the name and the value of NAME=value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=value")
    return name, value


def multiple_of_four(text: str) -> int:
    """Return a size in bytes that holds whole f32 elements."""
    size = int(text)
    if size < 4 or size % 4:
        raise argparse.ArgumentTypeError(f"{text}: sizes are multiples of 4 bytes, 4 or more")
    return size


def options(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options; ends with status 2 where they are wrong."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("run.sh", description=__doc__, formatter_class=raw)
    parser.add_argument("--ranks", type=int, help="at most 8 (default: one a device, and at least 2)")
    parser.add_argument("--devices", default="0", help="comma-separated, as in CUDA_VISIBLE_DEVICES "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--turns", type=int, default=2, help="of all contenders (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of each timing (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="of training (default: %(default)s)")
    parser.add_argument("--matrix", type=int, default=4096,
                        help="width of matrices beside collectives (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--bytes", type=multiple_of_four, nargs="+", default=SIZES, help="a rank, to be timed"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, metavar="NAME",
                        help=f"of {', '.join(CONTENDERS)} (default: {' '.join(DEFAULT)})")  # fmt: skip
    parser.add_argument("--env", type=setting, action="append", default=[], metavar="NAME=value",
                        help="for every contender; may be repeated")  # fmt: skip
    parser.add_argument("--limit", type=float, default=LIMIT_S,
                        help="seconds for one run (default: %(default)s)")  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="CPU tensors: tries out this program")
    parser.add_argument("--testbed", metavar="NAME",
                        help="rank r runs on host r of this testbed (`mcast-lab testbed with`)")  # fmt: skip
    parser.add_argument("--trace", type=Path, metavar="DIR",
                        help="write a Chrome trace of one step, and of both collectives at once, for each "
                        "contender")  # fmt: skip
    parser.add_argument("--output", type=Path, help="rows are appended (default: benchmarks/results/gpu/"
                        "rows.ndjson; of times that mean nothing: none)")  # fmt: skip
    args = parser.parse_args(words)
    args.words = sys.argv[1:] if words is None else words
    args.devices = [d for d in args.devices.split(",") if d]
    args.emulated = bool(RUNNER) and not args.cpu
    real = not args.cpu and not args.emulated
    if args.contenders is None:
        args.contenders = DEFAULT if real else WITHOUT_GPU
    if args.ranks is None:
        args.ranks = max(2, len(args.devices))
    if not 2 <= args.ranks <= 8:
        parser.error("--ranks is 2 to 8: fp8 holds the sums of no more")
    if not 1 <= len(args.devices) <= args.ranks:
        parser.error(
            f"--devices names {len(args.devices)} devices for {args.ranks} ranks: want 1 to {args.ranks}"
        )
    if args.turns < 1 or args.rounds < 1 or args.steps < 1 or args.matrix < 1:
        parser.error("--turns, --rounds, --steps and --matrix are at least 1")
    if real and args.output is None:
        args.output = RESULTS / "gpu" / "rows.ndjson"
    if not real and args.output is not None and args.output.resolve().is_relative_to(RESULTS):
        parser.error("--output: these times mean nothing, and no row of them goes to benchmarks/results")
    return args


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run every contender in turn; write each one's rows as it ends, and return all. Raises Failed."""
    host, rows = machine(args), []
    for turn in range(args.turns):
        for name in args.contenders:
            print(f"turn {turn + 1} of {args.turns}: {name}", file=sys.stderr, flush=True)
            about = {"contender": name, "backend": CONTENDERS[name].backend, "turn": turn, **host}
            with tempfile.TemporaryDirectory(prefix="mcast-gpu-") as scratch:
                folder = Path(scratch)
                try:
                    got = launch(name, args, folder)
                    if CONTENDERS[name].nccl:
                        got.append({"record": "log", **judge(name, args, folder)})
                except (Failed, SystemExit):  # what was measured by then is kept
                    with suppress(Failed, OSError):
                        write(args, complete(so_far(args, folder), about))
                    raise
            ended = complete(got, about)
            write(args, ended)
            rows += ended
    device = [record for record in got if record["record"] == "device"]
    losses = {"record": "losses", "contender": "", "difference": difference(rows)}
    rows += complete([*device, losses], about)
    write(args, rows[-1:])
    return rows


def complete(records: list[dict[str, Any]], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a run as rows: each says what ran, where, and on which device."""
    device = next((r for r in records if r["record"] == "device"), {})
    return [{**device, **about, **record} for record in records if record is not device]


def write(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Append rows to the output, if there is one."""
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        with args.output.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def main(words: list[str] | None = None) -> int:
    """Run every contender in turn, write the rows, print the table."""
    args = options(words)
    if (lack := missing(args.contenders, args.cpu, args.emulated)) is not None:
        print(f"missing: {lack}", file=sys.stderr)
        return MISSING
    if args.trace is not None:
        args.trace.mkdir(parents=True, exist_ok=True)
    try:
        rows = measured(args)
    except Failed as e:
        print(e, file=sys.stderr)
        return 1
    first = rows[0]
    print(f"{first['device']}, driver {first['driver'] or 'none'}, torch {first['torch']}, "
          f"{args.ranks} ranks, {args.turns} turns")  # fmt: skip
    print(table(rows, args.contenders))
    checked = {k: len(v) for k, v in next(r for r in rows if r["record"] == "check")["checked"].items()}
    print(
        f"element types checked, every byte: {checked}; losses differ by {rows[-1]['difference']:.1g} at most"
    )
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of launch, which ends its ranks
    sys.exit(main())
