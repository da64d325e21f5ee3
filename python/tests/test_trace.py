"""Traces of what operations did last: on torch.profiler's clock, by call, at a signal, on an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

import torch_mcast

from .limits import LIMIT_S
from .world import World

# What clocks may be apart: torch.profiler converts the processor's counter, we the kernel's monotonic clock.
CLOCKS_US = 1000.0

Span = tuple[float, float]
MORE = pytest.mark.more


def profiled(scratch: str) -> tuple[dict[str, Span], dict[str, Span]]:
    """Return calls as torch.profiler has them and our operations as the trace has, in us since 1970."""
    rank, size = dist.get_rank(), dist.get_world_size()
    calls: dict[str, Callable[[], Any]] = {
        "allgather": lambda: dist.all_gather_into_tensor(torch.zeros(size << 20), torch.ones(1 << 20)),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(torch.zeros(1 << 20), torch.ones(size << 20)),
        "broadcast": lambda: dist.broadcast(torch.ones(1 << 20), src=0),
        "barrier": dist.barrier,
    }
    for call in calls.values():
        call()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for name, call in calls.items():
            with record_function(f"call {name}"):
                call()
    theirs, ours = Path(scratch) / f"torch{rank}.json", Path(scratch) / f"ours{rank}.json"
    recorded.export_chrome_trace(str(theirs))
    torch_mcast.dump_trace(ours)
    torch_spans = {n.removeprefix("call "): s for n, s, _ in spans(theirs) if n.startswith("call ")}
    last: dict[str, Span] = {}
    began = min(begin for begin, _ in torch_spans.values()) - CLOCKS_US  # what was before is other tests'
    for name, span, args in sorted(spans(ours), key=lambda s: s[1]):
        if "outcome" in args and args["rank"] == rank and span[0] >= began:
            assert args["outcome"] == "done"
            assert args["bytes"] == (0 if name == "barrier" else 4 << 20)
            last[name] = span
    return torch_spans, last


def spans(path: Path) -> list[tuple[str, Span, dict[str, Any]]]:
    document = json.loads(path.read_text())
    base = document["baseTimeNanoseconds"] / 1000
    return [
        (e["name"], (base + e["ts"], base + e["ts"] + e["dur"]), e.get("args", {}))
        for e in document["traceEvents"]
        if e["ph"] == "X"
    ]


def test_operations_lie_within_the_calls_that_the_profiler_shows(world: World) -> None:
    for calls, operations in world.run(profiled, world.scratch):
        assert calls.keys() == operations.keys()
        for name, (begin, end) in operations.items():
            assert calls[name][0] - CLOCKS_US <= begin <= end <= calls[name][1] + CLOCKS_US, name


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(torch_mcast.ArgumentError, match=r"none/trace\.json"):
        torch_mcast.dump_trace(tmp_path / "none" / "trace.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(torch_mcast.ArgumentError, match=r"/pipe: not a regular file"):
        torch_mcast.dump_trace(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts a file system of a page")
def test_a_full_disk_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", tmp_path], check=True)
    try:
        (tmp_path / "filler").write_bytes(bytes(4096))
        with pytest.raises(torch_mcast.UnavailableError, match=r"/trace\.json: no space left on device"):
            torch_mcast.dump_trace(tmp_path / "trace.json")
        assert [left.name for left in tmp_path.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


JOB = """
import glob, os, signal, sys
import torch, torch.distributed as dist
from tests.limits import until
from torch_mcast import dump_trace

called = []
if "before" in sys.argv:
    signal.signal(signal.SIGUSR2, lambda *_: called.append("before"))
dist.init_process_group("mcast", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
if "after" in sys.argv:
    signal.signal(signal.SIGUSR2, lambda *_: called.append("after"))
def written():
    return bool(glob.glob(f"{os.environ['MCAST_TRACE']}/trace-*-{os.getpid()}.json"))
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGUSR2)
        os._exit(0)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    os.kill(os.getpid(), signal.SIGUSR2)
    if "after" not in sys.argv:
        until(written, "a trace")
print("called", *called)
print("trace", written())
dist.destroy_process_group()
"""


@pytest.fixture
def folder() -> Iterator[str]:
    """Give a folder with a short name: MCAST_TRACE takes 64 bytes."""
    with tempfile.TemporaryDirectory(prefix="mcast-") as name:
        yield name


def job(trace: str, *words: str) -> tuple[int, list[str]]:
    """Return how a job of one rank ends that is sent SIGUSR2, and its output."""
    ended = subprocess.run(
        [sys.executable, "-c", JOB, *words],
        env={**os.environ, "MCAST_TRACE": trace},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    print(ended.stderr)  # where it ends otherwise
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), ["called", "trace True"]),
        pytest.param(("before",), ["called before", "trace True"], marks=MORE),
        pytest.param(("after",), ["called after", "trace False"], marks=MORE),
        pytest.param(("fork",), [f"child {-signal.SIGUSR2}", "called", "trace False"], marks=MORE),
    ],
)
def test_sigusr2_writes_a_trace_beside_what_the_program_does(
    folder: str, words: tuple[str, ...], said: list[str]
) -> None:
    assert job(folder, *words) == (0, said)


@pytest.mark.more
def test_sigusr2_is_the_programs_where_traces_are_off() -> None:
    assert job("off") == (-signal.SIGUSR2, [])
