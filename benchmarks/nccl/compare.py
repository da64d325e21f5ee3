"""NCCL over the plugin beside NCCL over its own Socket: Allgather, Reduce-Scatter, both at once.

Ways run by turns, so that a slow minute of the machine hits all of them; figures are medians over
the rounds. Each collective alone has one communicator, as in a job without overlap; both at once have
two. "socket" is NCCL's Ring over its Socket; "plugin" has the plugin and nothing else set; "collnet" has
CollNet on, where the tuner chooses; "direct" is CollNet for everything; "switch" has a switch;
"in-flight" has a switch as well, and NCCL's buffers hold all windows of an operation; "registered" and
"switch-registered" have registered buffers as well. With --per-host several ranks share a host and its
link, each with a CollNet connection of its own; --count counts bytes at links.

On a testbed of this machine it takes the rig (NCCL_RIG=DIR: rigdriver and its libnccl.so.2), on
GPUs nccl-tests (NCCL_TESTS=DIR) and a launcher; both at once is the rig's alone.

Status: 0 all well, 1 something is wrong, 2 wrong options, 77 something is missing (one line says what).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "fsdp"))

import ncclog
from machine import shared_machine
from places import COLLECTIVES, COUNTED, DEFAULT_WAYS, ROOT, WAYS, Failed, GPUs, Measured, Testbed

MISSING = 77
LIMIT_S = 170.0  # for one run of one way
NAMES = {"allgather": "AllGather", "reducescatter": "ReduceScatter", "allreduce": "AllReduce"}  # NCCL's


def machine() -> dict[str, Any]:
    """Describe what the figures were measured on."""
    m = shared_machine()
    return {
        "date": m["time"],
        "commit": m["commit"],
        "machine": f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}",
        "load": round(m["load"], 1),
    }


def algorithms(measured: Measured, collective: str, size: int) -> list[str]:
    """Return by which algorithms NCCL ran a collective, most often first.

    The log has a rank's share of the bytes. For an Allreduce it has all bytes, in one size a run.
    """
    log = ncclog.read(measured.logs)
    counts: dict[str, int] = {}
    for name in [NAMES[collective]] if collective in NAMES else ["AllGather", "ReduceScatter"]:
        for how, times in ncclog.algorithms(log, name, size if name != "AllReduce" else None).items():
            counts[how] = counts.get(how, 0) + times
    return sorted(counts, key=lambda how: -counts[how])


def check(way: str, measured: Measured) -> None:
    """Raise Failed if NCCL did not use the network that the way names."""
    wanted = WAYS[way].env["NCCL_NET"]
    if found := set(ncclog.read(measured.logs).networks) - {wanted}:
        raise Failed(f"{way} should have used network {wanted}; NCCL's log names {', '.join(sorted(found))}")


def compare(place: Testbed | GPUs, hosts: int, rate: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all ways by turns on so many hosts; return a row for each collective, size and way."""
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    ranks = hosts * args.per_host
    about = {"experiment": "nccl", "place": place.name, "hosts": hosts, "per_host": args.per_host}
    about |= {"rate": rate, **machine()}

    def add(way: str, measured: Measured) -> None:
        check(way, measured)
        for (collective, size), us in measured.times.items():
            fresh: dict[str, Any] = {
                **about, "way": way, "collective": collective, "bytes": size,
                "iters": measured.iters or args.iters, "rounds_us": [],
                "algorithms": algorithms(measured, collective, size), "command": measured.command,
            }  # fmt: skip
            row = rows.setdefault((way, collective, size), fresh)
            if measured.sent:
                row["must_bytes"] = (ranks - args.per_host) * size
                row["sent_bytes"], row["received_bytes"] = round(measured.sent), round(measured.received)
            if not measured.sent or collective not in COLLECTIVES:
                row["rounds_us"].append(round(us, 1))

    with place.hosts(hosts, rate):
        for turn in range(args.rounds):
            for way in args.ways:
                print(f"{hosts} hosts, {rate}: round {turn + 1} of {args.rounds}: {way}", file=sys.stderr)
                add(way, place.measure(WAYS[way], args.bytes, args.iters, args.limit))
        for collective, size, way in product(COUNTED, args.bytes, args.ways):
            if args.count and isinstance(place, Testbed):
                print(f"{hosts} hosts, {rate}: counting {collective} of {size} bytes: {way}", file=sys.stderr)
                add(way, place.count(WAYS[way], collective, size, ranks, args.limit))
    for row in rows.values():
        row["time_us"] = statistics.median(row["rounds_us"])
    for (_, collective, size), row in rows.items():
        if ("socket", collective, size) in rows:
            row["to_socket"] = round(rows["socket", collective, size]["time_us"] / row["time_us"], 3)
    return list(rows.values())


def crossings(rows: list[dict[str, Any]]) -> str:
    """Return what was counted, to (P-K)n: a line for each size and way."""
    lines = [f"{'bytes a rank':>12} {'way':<18}" + "".join(f"{c + ' out':>20}{'in':>8}" for c in COUNTED)]
    for size in sorted({r["bytes"] for r in rows}):
        for way in dict.fromkeys(r["way"] for r in rows):
            cells = ""
            for r in rows:
                if (r["way"], r["bytes"]) == (way, size) and "must_bytes" in r:
                    out, into = r["sent_bytes"] / r["must_bytes"], r["received_bytes"] / r["must_bytes"]
                    cells += f"{out:>20.3f}{into:>8.3f}"
            lines.append(f"{size:>12} {way:<18}{cells}")
    lines.append("Bytes at the busiest host's link, to the (P-K)n that must cross it; an Allreduce twice.")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows of one setting: a line for each size and way."""
    found = {(r["way"], r["collective"], r["bytes"]): r for r in rows}
    first = rows[0]
    columns = [c for c in [*COLLECTIVES, "allreduce"] if any(r["collective"] == c for r in rows)]
    each = f" of {first['per_host']} ranks" if first["per_host"] > 1 else ""
    where = f"links of {first['rate']}, {first['place']}, load {first['load']}"
    lines = [f"{first['hosts']} hosts{each}, {where}"]
    heads = "".join(f"{c + ' ms':>18}{'x':>6}" for c in columns)
    lines.append(f"{'bytes a rank':>12} {'way':<18}{heads}  by")
    for size in sorted({r["bytes"] for r in rows}):
        for way in dict.fromkeys(r["way"] for r in rows):
            cells, by = "", []
            for c in columns:
                r = found[way, c, size]
                faster = f"{r['to_socket']:.2f}" if "to_socket" in r else ""
                cells += f"{r['time_us'] / 1e3:>18.1f}{faster:>6}"
                by += [how for how in r["algorithms"] if how not in by]
            lines.append(f"{size:>12} {way:<18}{cells}  {', '.join(by)}")
    return "\n".join([*lines, "x: the time of socket to the way's; above 1 the way is faster."])


def size(text: str) -> int:
    """Return a size in bytes: a number, or one with K, M or G. It holds whole f32 elements."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    n = int(text if unit == 1 else text[:-1]) * unit
    if n < 4 or n % 4:
        raise argparse.ArgumentTypeError(f"{text}: sizes are multiples of 4 bytes, 4 or more")
    return n


def folder(name: str) -> Path | None:
    """Return the folder that a variable names."""
    return Path(os.environ[name]) if os.environ.get(name) else None


def options(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options; ends with status 2 where they are wrong."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("run.sh", description=__doc__, formatter_class=raw)
    parser.add_argument("--on", choices=["auto", "testbed", "gpus"], default="auto")
    parser.add_argument("--hosts", type=int, nargs="+", default=[4], help="of a testbed (default: 4)")
    parser.add_argument("--per-host", type=int, default=1, help="ranks on each (default: 1)")
    parser.add_argument("--count", action="store_true", help="count bytes at links, in runs of their own")
    parser.add_argument(
        "--rate", nargs="+", default=["500mbit"], help="of its links, or unlimited (default: 500mbit)"
    )
    parser.add_argument(
        "--bytes", type=size, nargs="+", default=[4 << 20, 16 << 20], help="a rank (default: 4M 16M)"
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=DEFAULT_WAYS)
    parser.add_argument("--rounds", type=int, default=5, help="of all ways (default: %(default)s)")
    parser.add_argument("--iters", type=int, default=3, help="of each round (default: %(default)s)")
    parser.add_argument("--rig", type=Path, default=folder("NCCL_RIG"), help="default: NCCL_RIG")
    parser.add_argument("--beside", action="store_true", help="even where another testbed is up")
    parser.add_argument("--tests", type=Path, default=folder("NCCL_TESTS"), help="default: NCCL_TESTS")
    parser.add_argument("--launcher", type=shlex.split, default=[], help="of ranks on GPUs, one each")
    parser.add_argument("--ranks", type=int, default=0, help="that the launcher starts")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="of one run, s (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/nccl/compare.ndjson")
    parser.add_argument("--append", action="store_true", help="rows behind those that are there")
    args = parser.parse_args(words)
    if args.rounds < 1 or args.iters < 1 or args.per_host < 1 or min(args.hosts) < 2:
        parser.error("--rounds, --iters and --per-host are at least 1, --hosts at least 2")
    if args.launcher and args.ranks < 2:
        parser.error("--launcher wants --ranks, at least 2")
    return args


def choose(args: argparse.Namespace) -> tuple[Testbed | GPUs | None, str]:
    """Return where to measure, or None and the missing part."""
    places: list[Testbed | GPUs] = []
    if args.on in ("auto", "testbed"):
        places.append(Testbed(args.rig, args.beside, args.per_host))
    if args.on in ("auto", "gpus"):
        places.append(GPUs(args.tests, args.launcher, args.ranks))
    lacks = []
    for place in places:
        if (lack := place.missing()) is None:
            return place, ""
        lacks.append(f"{place.name} ({lack})")
    return None, "; ".join(lacks)


def main(words: list[str] | None = None) -> int:
    """Compare, write the rows, print the tables."""
    args = options(words)
    place, lack = choose(args)
    if place is None:
        print(f"missing: {lack}", file=sys.stderr)
        return MISSING
    settings = [(hosts, rate) for hosts in args.hosts for rate in args.rate]
    if isinstance(place, GPUs):
        settings = [(args.ranks, "as they are")]
        if not os.environ.get("MCAST_SWITCH"):
            args.ways = [way for way in args.ways if not WAYS[way].switch]
            print("without the ways through a switch: MCAST_SWITCH is not set", file=sys.stderr)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    mode = "a" if args.append else "w"
    for hosts, rate in settings:
        try:
            rows = compare(place, hosts, rate, args)
        except Failed as e:
            print(e, file=sys.stderr)
            return 1
        with args.output.open(mode) as output:
            output.write("".join(json.dumps(row) + "\n" for row in rows))
        mode = "a"
        print(table(rows), flush=True)
        if any("must_bytes" in row for row in rows):
            print(crossings(rows), flush=True)
    print(f"{args.rounds} rounds by turns, medians; rows in {args.output.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
