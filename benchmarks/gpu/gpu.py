"""NCCL over the plugin beside NCCL over its own Socket, several ranks on one GPU.

Every rank is a node of its own to NCCL (NCCL_HOSTID), so that all traffic goes through the network.
Contenders run in turn: "socket"; "net", Ring through the plugin's net; "collnet", where the tuner
takes CollNet for Allgather and Reduce-Scatter of every size. Each checks all_gather_into_tensor and
reduce_scatter_tensor with every element type, times them, and trains FSDP2. NCCL's log must show that
each used what it should, and their losses must agree. Ranks share the GPU's time, so that figures
compare contenders, and say little about several GPUs.

Status: 0 all well, 1 something is wrong, 2 wrong options, 77 something is missing (one line says what).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ncclog

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARY = ROOT / "lib" / "libnccl-net-mcast.so"
MISSING = 77
LIMIT_S = 900  # for one run of one contender
TOLERANCE = 1e-3  # between losses of contenders, relative: sums are added in another order
SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
KEPT = ("NCCL_SOCKET_IFNAME",)  # of the caller's NCCL_ variables

# The network and whether CollNet is used.
CONTENDERS = {
    "socket": ("Socket", False, {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}),
    "net": ("mcast", False, {"NCCL_NET": "mcast", "NCCL_NET_PLUGIN": "mcast"}),
    "collnet": (
        "mcast",
        True,
        {
            "NCCL_NET": "mcast",
            "NCCL_NET_PLUGIN": "mcast",
            "NCCL_COLLNET_ENABLE": "1",
            "MCAST_TUNER_ALLGATHER": "1",
            "MCAST_TUNER_REDUCE_SCATTER": "1",
        },
    ),
}


class Failed(Exception):
    """A run is not what it must be."""


def missing(cpu: bool, library: Path = LIBRARY) -> str | None:
    """Return in one line what this machine lacks, or None."""
    if importlib.util.find_spec("torch") is None:
        return f"torch for {sys.executable}: run `make setup`, or set PYTHON to one that has it"
    import torch
    import torch.distributed as dist

    if cpu:
        return None
    if not library.is_file():
        return f"{library.name} in {library.parent.name}/: run `make build`"
    if not torch.cuda.is_available():
        return f"a GPU: torch {torch.__version__} finds none that it can use"
    if not dist.is_nccl_available():
        return f"NCCL: torch {torch.__version__} is built without it"
    if torch.cuda.nccl.version() < (2, 25):  # type: ignore[no-untyped-call]
        version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        return f"NCCL 2.25 or newer, whose log names the algorithm: torch {torch.__version__} has {version}"
    return None


def environment(contender: str, rank: int, args: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Return the environment of a rank: the caller's, without what would change the contender."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_") or k in KEPT}
    env |= {"RANK": str(rank), "WORLD_SIZE": str(args.ranks), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
    if args.cpu:
        return env | {"GLOO_SOCKET_IFNAME": "lo"}
    env.setdefault("NCCL_SOCKET_IFNAME", "lo")
    paths = [str(LIBRARY.parent), *filter(None, [env.get("LD_LIBRARY_PATH")])]
    return env | {
        "LD_LIBRARY_PATH": ":".join(paths),
        "CUDA_VISIBLE_DEVICES": args.device,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # sums of matrices the same in every run
        "NCCL_HOSTID": f"r{rank}",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_MAX_CTAS": "4",
        "NCCL_NET_PLUGIN_REF_COUNT": "1",  # 2.28.3 to 2.29.7 forget the plugin's name
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,TUNING",
        "NCCL_DEBUG_FILE": str(folder / f"nccl.{rank}.log"),
        **CONTENDERS[contender][2],
        **dict(args.env),
    }


def launch(contender: str, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run all ranks of a contender; return rank 0's records. Raises Failed."""
    words = [sys.executable, str(HERE / "rank.py"), "--store", str(folder / "store")]
    words += ["--steps", str(args.steps), "--rounds", str(args.rounds), "--bytes", *map(str, args.bytes)]
    words += ["--cpu"] * args.cpu
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(args.ranks):
            with (folder / f"{rank}.out").open("w") as out, (folder / f"{rank}.err").open("w") as err:
                env = environment(contender, rank, args, folder)
                ranks.append(subprocess.Popen(words, env=env, stdout=out, stderr=err))
        ended = wait(ranks, time.monotonic() + args.limit)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    if ended is not None:
        rank, status = ended
        if status is None:
            raise Failed(f"{contender}: rank {rank} is not done after {args.limit:g} s\n{tail(folder, rank)}")
        raise Failed(f"{contender}: rank {rank} ended with {status}\n{tail(folder, rank)}")
    return [json.loads(line) for line in (folder / "0.out").read_text().splitlines() if line.startswith("{")]


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


def judge(contender: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what NCCL's log tells; raise Failed where it is not what the contender should have done."""
    logs = [(folder / f"nccl.{rank}.log").read_text(errors="replace") for rank in range(args.ranks)]
    log = ncclog.read(logs)
    network, collnet, _ = CONTENDERS[contender]
    if found := ncclog.problems(log, network, collnet, args.bytes):
        raise Failed("\n".join([f"{contender}: {text}" for text in found] + log.warnings[:5]))
    return {
        "networks": dict(log.networks),
        "collnet": dict(log.collnet),
        "algorithms": {what: ncclog.algorithms(log, what) for what in ncclog.COLLECTIVES},
        "warnings": log.warnings,
    }


def driver() -> str:
    """Return the version of NVIDIA's driver, or ""."""
    version = Path("/sys/module/nvidia/version")
    return version.read_text().strip() if version.is_file() else ""


def machine(args: argparse.Namespace) -> dict[str, Any]:
    """Describe what the figures were measured on."""
    import torch

    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        commit = ""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "driver": driver(),
        "torch": torch.__version__,
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "ranks": args.ranks,
        "env": dict(args.env) | {k: v for k, v in os.environ.items() if k.startswith("MCAST_")},
    }


def difference(records: list[dict[str, Any]]) -> float:
    """Return by how much losses differ at most, relative to the first contender's first run."""
    runs = [r["losses"] for r in records if r["record"] == "train"]
    if len({len(losses) for losses in runs}) != 1:
        raise Failed(f"runs have {sorted({len(losses) for losses in runs})} losses; all should have as many")
    pairs = [(a, b) for losses in runs[1:] for a, b in zip(runs[0], losses, strict=True)]
    # A comparison with NaN is false.
    if not all(abs(a - b) <= TOLERANCE * abs(a) for a, b in pairs):
        raise Failed(f"losses differ by more than {TOLERANCE:g}: " + json.dumps(runs))
    return max((abs(a - b) / abs(a) for a, b in pairs), default=0.0)


def table(records: list[dict[str, Any]], contenders: list[str]) -> str:
    """Return the medians over the rounds, contenders side by side, and the first's time to each."""

    def cells(values: dict[str, float], unit: float, form: str) -> str:
        base = values[contenders[0]]
        return "".join(f"{values[c] / unit:>12{form}}{base / values[c]:>7.2f}" for c in contenders)

    def median(kind: str, field: str, **such: Any) -> dict[str, float]:
        return {
            c: statistics.median(
                r[field] for r in records if {"record": kind, "contender": c, **such}.items() <= r.items()
            )
            for c in contenders
        }

    head = f"{'p50, bytes a rank':<30}" + "".join(f"{c + ' us':>12}{'x':>7}" for c in contenders)
    lines = [head]
    for collective, size in dict.fromkeys(
        (r["collective"], r["bytes_per_rank"]) for r in records if r["record"] == "time"
    ):
        values = median("time", "p50_us", collective=collective, bytes_per_rank=size)
        lines.append(f"{collective:<16}{size:>14}" + cells(values, 1, ".1f"))
    lines.append(f"{'FSDP2 step, us':<30}" + cells(median("train", "step_p50_s"), 1e-6, ".0f"))
    return "\n".join(
        [*lines, f"x: the time of {contenders[0]} to the contender's; above 1 the contender is faster."]
    )


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
    parser.add_argument("--ranks", type=int, default=2, help="default: %(default)s; at most 8")
    parser.add_argument("--turns", type=int, default=2, help="of all contenders (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of each timing (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="of training (default: %(default)s)")
    parser.add_argument(
        "--bytes", type=multiple_of_four, nargs="+", default=SIZES, help="a rank, to be timed"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--device", default="0", help="for CUDA_VISIBLE_DEVICES (default: %(default)s)")
    parser.add_argument("--env", type=setting, action="append", default=[], metavar="NAME=value",
                        help="for every contender; may be repeated")  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds for one run (default: %(default)s)"
    )
    parser.add_argument(
        "--cpu", action="store_true", help="gloo on the CPU in all places: tries out this program"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "gpu.ndjson")
    args = parser.parse_args(words)
    if not 2 <= args.ranks <= 8:
        parser.error("--ranks is 2 to 8: fp8 holds the sums of no more")
    if args.turns < 1 or args.rounds < 1 or args.steps < 1:
        parser.error("--turns, --rounds and --steps are at least 1")
    return args


def main(words: list[str] | None = None) -> int:
    """Run every contender in turn, write the records, print the table."""
    args = options(words)
    if (lack := missing(args.cpu)) is not None:
        print(f"missing: {lack}", file=sys.stderr)
        return MISSING
    host, records = machine(args), []
    try:
        for turn in range(args.turns):
            for contender in args.contenders:
                print(f"turn {turn + 1} of {args.turns}: {contender}", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory(prefix="mcast-gpu-") as scratch:
                    folder = Path(scratch)
                    got = launch(contender, args, folder)
                    if not args.cpu:
                        got.append({"record": "log", **judge(contender, args, folder)})
                about = next((r for r in got if r["record"] == "device"), {"device": "cpu"})
                common = {**about, "contender": contender, "turn": turn, **host}
                records += [{**common, **record, "record": record["record"]} for record in got]
        records.append({"record": "losses", "difference": difference(records), **host})
    except Failed as e:
        print(e, file=sys.stderr)
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("".join(json.dumps(r) + "\n" for r in records))
    first = records[0]
    print(f"{first['device']}, driver {first['driver'] or 'none'}, torch {first['torch']}, "
          f"NCCL {first.get('nccl', 'none')}, {args.ranks} ranks, {args.turns} turns")  # fmt: skip
    print(table(records, args.contenders))
    checked = {k: len(v) for k, v in next(r for r in records if r["record"] == "check")["checked"].items()}
    print(
        f"element types checked, every byte: {checked}; "
        f"losses differ by {records[-1]['difference']:.1g} at most"
    )
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of launch, which ends its ranks
    sys.exit(main())
