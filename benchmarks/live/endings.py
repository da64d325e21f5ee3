"""How long ranks live once one of three has ended, by all ways to end and all places where the others are.

A job of three ranks over torch.distributed: over "mcast" with shm and with udp, and over "gloo". The others
come to their place, then rank 1 ends. A row has the seconds from then until rank 1 has gone and until all
have gone, the exit codes (a negative one is a signal), and the last line that each of the others wrote to
its standard error. A rank that lives LIMIT_S later "stays", and is killed. No launcher kills anybody.

A place with a computation is a loop of WORK_S without a collective. Nobody sets the key that is waited for at
the store, which is given up after WORK_S.

A busy machine has other work to do before, unless the benchmark goes first: as root,
`echo -20 > /proc/self/autogroup; nice -n -20 benchmarks/live/endings.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import torch_mcast  # noqa: F401  the backend

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import shared_machine  # noqa: E402

RANKS, ENDS = 3, 1  # how many, and the one that ends
WORK_S = 3.0
LIMIT_S = 30.0
START_S = 120.0  # for a job until all ranks are at their places
THERE_S = 0.5  # from when a rank says that it goes to its place until it is there
LATE_S = 2.0  # later than gloo by more is too late
OVER = ("shm", "udp", "gloo")


# ---- ways to end


def raises() -> None:
    """Fail by an exception that nothing catches."""
    raise ValueError("a bug")


def finally_destroys() -> None:
    """Fail, and destroy the group before any other code hears of the failure."""
    try:
        raises()
    finally:
        dist.destroy_process_group()


def except_destroys() -> None:
    """Fail, destroy the group, and let the exception go on."""
    try:
        raises()
    except ValueError:
        dist.destroy_process_group()
        raise


def destroys_and_exits() -> None:
    """Destroy the group, then end as one that has failed."""
    dist.destroy_process_group()
    sys.exit(1)


def handles() -> None:
    """Handle an exception, and end well."""
    with contextlib.suppress(ValueError):
        raises()


def handles_and_destroys() -> None:
    """Handle an exception, destroy the group meanwhile, and end well."""
    try:
        raises()
    except ValueError:
        dist.destroy_process_group()


def exits_in_hook() -> None:
    """Exit as one that has failed in a hook of a backward."""
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda _: sys.exit(1))
    x.backward()


def of_signal(number: int) -> Callable[[], object]:
    """Return what sends a signal to this process."""
    return lambda: os.kill(os.getpid(), number)


WAYS: dict[str, Callable[[], object]] = {
    "return": lambda: None,
    "destroy, return": dist.destroy_process_group,
    "sys.exit(0)": lambda: sys.exit(0),
    "exception handled, return": handles,
    "exception handled with destroy, return": handles_and_destroys,
    "exception": raises,
    "exception, destroy in finally": finally_destroys,
    "exception, destroy in except, raise": except_destroys,
    "sys.exit(1)": lambda: sys.exit(1),
    "destroy, sys.exit(1)": destroys_and_exits,
    "sys.exit(1) in a hook": exits_in_hook,
    "sys.exit(1) in a callback": lambda: None,  # which play adds
    "sys.exit(1) beside a callback": lambda: sys.exit(1),
    "os._exit(1)": lambda: os._exit(1),
    "SIGINT": of_signal(signal.SIGINT),
    "SIGTERM": of_signal(signal.SIGTERM),
    "SIGKILL": of_signal(signal.SIGKILL),
}
WELL = list(WAYS)[:5]

# ---- places where the others are


def gathers() -> None:
    """Wait in an operation that the library does."""
    dist.all_gather_into_tensor(torch.empty(RANKS << 10), torch.ones(1 << 10))


def exchanges() -> None:
    """Wait in an operation that goes on to gloo."""
    dist.all_to_all_single(torch.empty(RANKS << 10), torch.ones(RANKS << 10))


def computes() -> None:
    """Compute for a while."""
    until = time.monotonic() + WORK_S
    while time.monotonic() < until:
        torch.ones(1 << 10).sum()


def waits(keys: Any) -> None:
    """Wait at the store for a key that does not come."""
    keys.wait(["never set"], timedelta(seconds=WORK_S))


PLACES: dict[str, Callable[[Any], object]] = {
    "all_gather": lambda _: gathers(),
    "all_to_all": lambda _: exchanges(),
    "store": waits,
    "computation, then all_gather": lambda _: (computes(), gathers()),
    "computation, then destroy": lambda _: (computes(), dist.destroy_process_group()),
    "destroyed": lambda _: dist.destroy_process_group(),
    "returned": lambda _: None,
}

# ---- a job


def play(rank: int, keys: Any, over: str, way: str, place: str, begun: Path) -> None:
    """Be a rank until its script ends."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["MCAST_FABRIC"] = "shm" if over == "gloo" else over
    dist.init_process_group("gloo" if over == "gloo" else "mcast", store=keys, rank=rank, world_size=RANKS)
    gathers()
    exchanges()
    others = [r for r in range(RANKS) if r != ENDS]

    def begin() -> None:
        keys.wait([f"at its place: {r}" for r in others], timedelta(seconds=START_S))
        time.sleep(THERE_S)
        begun.write_text(repr(time.monotonic()))

    if rank != ENDS:
        keys.wait(["has posted"], timedelta(seconds=START_S))
        dist.all_reduce(torch.ones(1))
        keys.set(f"at its place: {rank}", "")
        PLACES[place](keys)
        return
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    if way == "sys.exit(1) in a callback":
        future = future.then(lambda _: (begin(), sys.exit(1)))
    if way == "sys.exit(1) beside a callback":
        future.then(lambda _: (keys.set("callback", ""), time.sleep(2 * LIMIT_S)))
        keys.set("has posted", "")
        keys.wait(["callback"], timedelta(seconds=START_S))
    keys.set("has posted", "")
    future.wait()
    begin()
    WAYS[way]()


def ranks_of(folder: Path, over: str, way: str, place: str) -> bool:
    """Play a case and write its outcome; return whether this process is a rank, which ends by itself."""
    said, begun = [folder / f"said by {r}" for r in range(RANKS)], folder / "begun"
    running: dict[int, int] = {}
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(said[rank], os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
            play(rank, FileStore(str(folder / "store"), RANKS), over, way, place, begun)
            return True
        running[pid] = rank
    started = time.monotonic()
    gone: dict[int, float] = {}
    codes: dict[int, int | None] = dict.fromkeys(range(RANKS))
    cpu: dict[int, float | None] = dict.fromkeys(range(RANKS))
    while running:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid:
            rank = running.pop(pid)
            cpu[rank] = round(used.ru_utime + used.ru_stime, 2)
            gone[rank], codes[rank] = time.monotonic(), os.waitstatus_to_exitcode(status)
            continue
        text = begun.read_text() if begun.exists() else ""
        if time.monotonic() > (float(text) + LIMIT_S if text else started + START_S):
            break
        time.sleep(0.01)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    words = [path.read_text(errors="replace").strip() for path in said]
    words = [text.replace(f"{ROOT}/", "").replace(str(Path.home()), "~") for text in words]
    if not begun.exists():
        raise SystemExit(f"{over}/{way}/{place} has not begun: {words}")
    since = {rank: round(at - float(begun.read_text()), 2) for rank, at in gone.items()}
    row = {
        "over": over,
        "way": way,
        "place": place,
        "gone_s": since.get(ENDS),
        "all_gone_s": max(since.values()) if len(since) == RANKS else None,
        "codes": [codes[r] for r in range(RANKS)],
        "cpu_s": [cpu[r] for r in range(RANKS)],
        "said": [text.rsplit("\n", 1)[-1][-300:] for text in words],
    }
    (folder / "row").write_text(json.dumps(row))
    return False


# ---- the table


def median(rows: list[dict[str, Any]], key: str) -> float:
    """Return the median of a figure in seconds; a rank that stays counts as LIMIT_S."""
    return statistics.median(LIMIT_S if row[key] is None else row[key] for row in rows)


def cell(rows: list[dict[str, Any]]) -> str:
    """Return the seconds and the exit codes of a case."""
    middle = [median(rows, key) for key in ("gone_s", "all_gone_s")]
    codes = ["/".join("-" if c is None else str(c) for c in row["codes"]) for row in rows]
    seconds = ["stays" if m >= LIMIT_S else f"{m:.1f}" for m in middle]
    return " | ".join([*seconds, " or ".join(dict.fromkeys(codes))])


def later(ours: list[dict[str, Any]], gloo: list[dict[str, Any]]) -> bool:
    """Say whether a rank has gone later than gloo's by more than is allowed."""
    return any(median(ours, key) > median(gloo, key) + LATE_S for key in ("gone_s", "all_gone_s"))


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of all cases that have rows, as Markdown."""
    heads = [f"{over}: rank {ENDS} gone | all gone | exit codes" for over in OVER]
    lines = [f"| rank {ENDS} ends by | the others | {' | '.join(heads)} | later than gloo by {LATE_S:g} s |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for place in PLACES:
        for way in WAYS:
            by = {o: [r for r in rows if (r["over"], r["way"], r["place"]) == (o, way, place)] for o in OVER}
            if not any(by.values()):
                continue
            cells = [cell(by[over]) if by[over] else " | | " for over in OVER]
            late = [over for over in OVER[:-1] if by[over] and by["gloo"] and later(by[over], by["gloo"])]
            said = ", ".join(late) + (": no rank has failed" if late and way in WELL else "")
            lines.append(f"| {way} | {place} | {' | '.join(cells)} | {said} |")
    return lines


def main() -> None:
    """Play the cases, some beside each other, append a row for each, and print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--over", choices=OVER, action="append", help="one or several (default: all)")
    parser.add_argument("--way", choices=WAYS, action="append", help="one or several (default: all)")
    parser.add_argument("--place", choices=PLACES, action="append", help="one or several (default: all)")
    parser.add_argument("--repeats", type=int, default=1, help="0: the table of the rows there are")
    parser.add_argument("--beside", type=int, default=4, help="cases at a time (default: %(default)s)")
    results = ROOT / "benchmarks" / "results" / "live" / "endings.ndjson"
    parser.add_argument("--output", type=Path, default=results)
    args = parser.parse_args()
    torch.set_num_threads(1)
    gc.freeze()  # so that ranks do not look through all of torch as they end, which takes a second each
    cases = [
        (over, way, place)
        for _ in range(args.repeats)
        for place in args.place or PLACES
        for way in args.way or WAYS
        for over in args.over or OVER
    ]
    rows, playing = [], {}
    while cases or playing:
        if cases and len(playing) < args.beside:
            folder, where = Path(tempfile.mkdtemp(prefix="mcast-endings-")), shared_machine()
            pid = os.fork()
            if pid == 0:
                if ranks_of(folder, *cases[0]):
                    return
                os._exit(0)
            playing[pid] = cases.pop(0), folder, where
            continue
        pid, status = os.wait()
        case, folder, where = playing.pop(pid)
        if status:
            raise SystemExit(f"no row of {case}")
        rows.append(json.loads((folder / "row").read_text()) | {"nice": os.nice(0)} | where)
        shutil.rmtree(folder)
        with args.output.open("a") as f:
            f.write(json.dumps(rows[-1]) + "\n")
        print(*case, *(rows[-1][key] for key in ("gone_s", "all_gone_s", "codes")), sep=", ", file=sys.stderr)
    if not args.repeats:
        rows = [json.loads(line) for line in args.output.read_text().splitlines()]
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
