"""NCCL's own test programs over the plugin and over Socket, several ranks on one GPU: a row for each line.

`make gpu-kit` builds them with scripts/nccl-tests. They check every element on the device.
Status: 0 all right, 1 something is wrong, 77 something is missing (one line says what).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from contenders import ROOT, environment, missing
from gpu import MISSING, launched, wait, write
from rows import machine

PROGRAMS = {"all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf"}
NCCL = ["nccl-socket", "nccl-net", "nccl-collnet"]
COLUMNS = 13  # size count type redop root, and twice: time algbw busbw #wrong; the second time in place


def lines(text: str) -> list[dict[str, Any]]:
    """Return what a test program says of each size, of both buffers."""
    found = []
    for words in (line.split() for line in text.splitlines()):
        if len(words) == COLUMNS and words[0].isdigit():
            for place, at in (("out of place", 5), ("in place", 9)):
                time_us, algbw, busbw, wrong = words[at : at + 4]
                found.append({
                    "record": "nccl-tests", "bytes": int(words[0]), "type": words[2], "place": place,
                    "time_us": float(time_us), "algbw": float(algbw), "busbw": float(busbw),
                    "wrong": None if wrong == "N/A" else int(float(wrong)),
                })  # fmt: skip
    return found


def run(program: Path, contender: str, args: argparse.Namespace, folder: Path) -> tuple[str, str]:
    """Run all ranks; return what rank 0 printed, and "" or how the run failed."""
    words = [str(program), "-b", "8", "-e", args.largest, "-f", "8", "-n", "5", "-w", "2"]
    own = str(Path(torch.__file__).parents[1] / "nvidia" / "nccl" / "lib")  # the NCCL that torch loads

    def env(rank: int) -> dict[str, str]:
        of = environment(contender, rank, args, folder)
        paths = [*filter(None, [of.get("LD_LIBRARY_PATH")]), own]
        of |= {"LD_LIBRARY_PATH": ":".join(paths)}
        return of | {"MPI_FILE": str(folder / "mpi"), "NCCL_TESTS_DEVICE": "0"}

    with launched([words] * args.ranks, env, folder) as ranks:
        ended = wait(ranks, time.monotonic() + args.limit)
    said = (folder / "0.out").read_text(errors="replace")
    if ended is None:
        return said, ""
    rank, status = ended
    how = f"not done after {args.limit:g} s" if status is None else f"ended with {status}"
    texts = [(folder / f"{rank}.{kind}").read_text(errors="replace")[-2000:] for kind in ("out", "err")]
    return said, "\n".join([f"rank {rank}: {how}", *texts])


def main() -> int:
    """Run every program over every network; print and append the rows."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--programs", type=Path, default=ROOT / "nccl-tests", help="their folder")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--largest", default="256M", help="size in all, as they write it")
    parser.add_argument("--contenders", nargs="+", choices=NCCL, default=NCCL)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one run")
    parser.add_argument("--output", type=Path, help="rows are appended")
    args = parser.parse_args()
    args.cpu, args.testbed, args.env, args.devices, args.words = False, "", [], ["0"], sys.argv[1:]
    absent = [name for name in PROGRAMS.values() if not (args.programs / name).is_file()]
    if absent:
        names = ", ".join(absent)
        print(f"missing: NCCL's test programs: scripts/nccl-tests builds {names}", file=sys.stderr)
        return MISSING
    if (lack := missing(args.contenders, cpu=False, emulated=False)) is not None:
        print(f"missing: {lack}", file=sys.stderr)
        return MISSING
    about, failed = machine(args), False
    for operation, program in PROGRAMS.items():
        for contender in args.contenders:
            with tempfile.TemporaryDirectory(prefix="mcast-nccl-") as scratch:
                text, failure = run(args.programs / program, contender, args, Path(scratch))
            rows = [{**about, "operation": operation, "contender": contender, **row} for row in lines(text)]
            wrong = sum(row["wrong"] or 0 for row in rows)
            failed |= bool(failure) or not rows or wrong > 0
            print(f"{program} over {contender}: {len(rows)} rows, {wrong} wrong {failure}", flush=True)
            write(args, rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
