"""What torch's tools show of our operations: futures, the profiler, the Flight Recorder."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

import torch_mcast
from torch_mcast import profile as events
from torch_mcast import recorder
from torch_mcast.structs import Account
from torch_mcast.work import McastWork

from .limits import LIMIT_S, until
from .values import FLIGHT_RECORDER, distributed, sparse_ones
from .world import World


def exported(recorded: profile, scratch: str) -> list[dict[str, Any]]:
    """Return the events of a trace that have a length, in the order in which they begin."""
    path = Path(scratch) / f"profile{dist.get_rank()}.json"
    recorded.export_chrome_trace(str(path))
    return sorted((e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"), key=began)


def began(event: dict[str, Any]) -> float:
    return float(event["ts"])


def ended(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def profiled(scratch: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Return torch's name of the group, and of each of our events the name and the details within."""
    size = dist.get_world_size()
    halves, whole = torch.ones(6, dtype=torch.bfloat16), torch.zeros(4, 6, dtype=torch.bfloat16)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        works = [
            dist.all_gather_into_tensor(whole, halves, async_op=True),
            dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2, size), async_op=True),
        ]
        for work in works:
            assert work is not None
            work.wait()
        dist.all_reduce(torch.ones(3, 5, dtype=torch.int32))
        dist.broadcast(torch.ones(7), src=0)
        dist.barrier()
        with distributed.record_comm("layer 1"):
            dist.broadcast(torch.ones(8), src=0)
    assert not events._open
    ours = [
        e for e in exported(recorded, scratch) if e["name"].startswith("mcast:") or e["name"] == "layer 1"
    ]
    pairs = [(span, e) for span, e in pairwise(ours) if e["name"] == "mcast:record_param_comms"]
    for span, details in pairs:
        assert span["tid"] == details["tid"]
        assert began(span) <= began(details) < ended(details) <= ended(span)
    name: str = distributed.group.WORLD.group_name
    return name, [(span["name"], details["args"]) for span, details in pairs]


@pytest.mark.skipif(not hasattr(dist, "record_comm"), reason="this torch has no record_comm")
def test_the_profiler_shows_operations_with_sizes_and_types(world: World) -> None:
    for group, shown in world.run(profiled, world.scratch):
        keys = ("Input Dims", "Input type", "Out msg nelems")
        assert {name: tuple(args.get(key) for key in keys) for name, args in shown} == {
            "mcast:all_gather": ([[6]], ["c10::BFloat16"], 24),
            "mcast:reduce_scatter": ([[2, 4]], ["float"], 2),
            "mcast:all_reduce": ([[3, 5]], ["int"], 15),
            "mcast:broadcast": ([[7]], ["float"], 7),
            "mcast:barrier": (None, None, 0),
            "layer 1": ([[8]], ["float"], 8),
        }
        assert {name: (args["Lane"], args.get("dtype")) for name, args in shown} == {
            "mcast:all_gather": ("gather", "bfloat16"),
            "mcast:reduce_scatter": ("reduce", "float32"),
            "mcast:all_reduce": ("both", "int32"),
            "mcast:broadcast": ("gather", "float32"),
            "mcast:barrier": ("gather", None),
            "layer 1": ("gather", "float32"),
        }
        assert {args["Process Group Name"] for _, args in shown} == {group}


def marked(events: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (event,) = [e for e in events if e["name"] == name]
    return event


def waits_for_the_others(scratch: str) -> None:
    """Hold each rank's event of an Allgather to last until the last rank has come, and no longer.

    Another thread than the caller's completes it: the one that watches for futures.
    """
    group: Any = dist.new_group(backend="mcast")
    store = distributed.PrefixStore(group.group_name, distributed.distributed_c10d._get_default_store())
    rank, size = dist.get_rank(), dist.get_world_size()
    out = torch.zeros(size)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        with record_function("before"):
            if rank == 0:  # comes last
                store.wait([f"waits {r}" for r in range(1, size)])
        work = dist.all_gather_into_tensor(out, torch.full((1,), float(rank)), group=group, async_op=True)
        assert work is not None
        with record_function("in flight"):
            store.set(f"waits {rank}", "")
        work.get_future().wait()
        with record_function("after"):
            pass
    assert out.tolist() == list(range(size))
    found = exported(recorded, scratch)
    gather = marked(found, "mcast:all_gather")
    assert ended(marked(found, "before")) <= began(gather)
    assert ended(gather) <= began(marked(found, "after"))
    if rank:
        assert began(gather) < began(marked(found, "in flight")) < ended(gather)
        assert "finished" not in gather["args"]
    dist.destroy_process_group(group)


def test_an_event_ends_when_the_operation_does_on_whatever_thread(world: World) -> None:
    world.run(waits_for_the_others, world.scratch)


def outlives_the_profiler(scratch: str) -> None:
    """Stop a profiler while operations are in flight, which end during the next."""
    group: Any = dist.new_group(backend="mcast")
    store = distributed.PrefixStore(group.group_name, distributed.distributed_c10d._get_default_store())
    rank, size = dist.get_rank(), dist.get_world_size()
    outs = torch.zeros(40, size)
    works = []
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        if rank:
            works = [
                dist.all_gather_into_tensor(out, torch.ones(1), group=group, async_op=True) for out in outs
            ]
        with record_function("in flight"):
            pass
    store.set(f"stopped {rank}", "")
    assert not events._open
    found = exported(recorded, scratch)
    ends = [ended(e) for e in found if e["name"] == "mcast:all_gather"]
    assert len(ends) == len(works)
    assert all(end > ended(marked(found, "in flight")) for end in ends)
    if rank == 0:
        store.wait([f"stopped {r}" for r in range(size)])
        works = [dist.all_gather_into_tensor(out, torch.ones(1), group=group, async_op=True) for out in outs]
    with profile(activities=[ProfilerActivity.CPU]) as second:
        for work in works:
            assert work is not None
            work.wait()
    assert not [e for e in exported(second, scratch) if e["name"].startswith("mcast:")]
    assert outs.eq(1).all()
    dist.destroy_process_group(group)


def test_operations_outlive_the_profiler(world: World) -> None:
    world.run(outlives_the_profiler, world.scratch)


def is_aborted(scratch: str) -> None:
    """Abort a barrier that lacks a rank, and post another operation, which is refused."""
    group: Any = dist.new_group(backend="mcast")
    backend = group._get_backend(torch.device("cpu"))
    store = distributed.PrefixStore(group.group_name, distributed.distributed_c10d._get_default_store())
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        if dist.get_rank():
            work = dist.barrier(group=group, async_op=True)
            assert work is not None
            with record_function("in flight"):
                store.set(f"waits {dist.get_rank()}", "")
            with pytest.raises(RuntimeError):
                work.get_future().wait()
            with record_function("after"):
                pass
        else:
            store.wait([f"waits {r}" for r in range(1, dist.get_world_size())])
            backend.abort()
        with pytest.raises(torch_mcast.McastError):
            dist.all_reduce(torch.ones(1), group=group)
        assert not events._open
    if dist.get_rank():
        found = exported(recorded, scratch)
        barrier = marked(found, "mcast:barrier")
        assert began(marked(found, "in flight")) < ended(barrier) <= began(marked(found, "after"))
    dist.destroy_process_group(group)


def test_events_of_operations_that_fail_end(world: World) -> None:
    world.run(is_aborted, world.scratch)


def analysed(traces: Path, *options: str) -> str:
    """Return what torchfrtrace says of the traces."""
    tool = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    command = [*tool, str(traces), "--prefix", "trace_rank_", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def on_demand() -> dict[str, Any]:
    group: Any = dist.new_group(backend="mcast", group_desc="on demand")
    out = torch.zeros(40)
    dist.all_gather_into_tensor(out, torch.ones(10), group=group)
    dist.reduce(out, 0, group=group)
    waiting = dist.barrier(group=group, async_op=True) if dist.get_rank() else None
    with Path(torch_mcast.dump_flight_recorder()).open("rb") as file:
        trace: dict[str, Any] = pickle.load(file)
    dist.barrier()
    if waiting is None:
        dist.barrier(group=group)
    else:
        waiting.wait()
    dist.destroy_process_group(group)
    # torch gives out names again once the default group is gone; its ring has entries of those before.
    own = (group.group_name, "on demand")
    return {**trace, "entries": [e for e in trace["entries"] if tuple(e["process_group"]) == own]}


@FLIGHT_RECORDER
def test_the_flight_recorder_says_what_is_done(world: World) -> None:
    for rank, trace in enumerate(world.run(on_demand)):
        got = [(e["profiling_name"], e["state"], e["retired"]) for e in trace["entries"]]
        assert got[0][1:] == got[1][1:] == ("completed", True)
        assert trace["entries"][0]["input_sizes"] == [[10]]
        assert trace["entries"][0]["output_dtypes"] == ["Float"]
        assert got[2:] == ([("mcast:barrier", "scheduled", False)] if rank else [])


def traces_without_the_compiler() -> tuple[list[str], bool]:
    """Trace without torch._inductor; return the files of the last entry's stack, and whether it is loaded."""
    dist.barrier()
    kept = torch.__dict__.pop("_inductor", None)
    with mock.patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.startswith("torch._inductor")]:
            del sys.modules[name]
        try:
            lines = [frame["filename"] for frame in recorder.trace()["entries"][-1]["frames"]]
            return lines, "torch._inductor" in sys.modules or "_inductor" in torch.__dict__
        finally:
            if kept is not None:
                torch.__dict__["_inductor"] = kept


@FLIGHT_RECORDER
def test_a_trace_has_the_lines_of_the_program_and_loads_no_compiler(world: World) -> None:
    for lines, loaded in world.run(traces_without_the_compiler):
        assert __file__ in lines
        assert not loaded


def comes_last() -> tuple[int, dict[str, Any]]:
    """Return when the last rank came to a barrier that the others waited in, and this rank's trace."""
    group: Any = dist.new_group(backend="mcast")
    store = distributed.PrefixStore(group.group_name, distributed.distributed_c10d._get_default_store())
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        store.wait([f"posted {r}" for r in range(1, size)])
        store.set("last", str(time.time_ns()))
    work = dist.barrier(group=group, async_op=True)
    store.set(f"posted {rank}", "")
    assert work is not None
    work.wait()
    sent = dist.isend(torch.ones(3), (rank + 1) % size, group=group)
    dist.recv(torch.zeros(3), (rank - 1) % size, group=group)
    assert sent is not None
    sent.wait()
    trace = recorder.trace(stacks=False)
    trace["entries"] = [e for e in trace["entries"] if e["process_group"][0] == group.group_name]
    last = int(store.get("last"))
    dist.barrier(group=group)
    dist.destroy_process_group(group)
    return last, trace


def recorded() -> list[bool]:
    """Return for operations of this rank whether they were done for others before the recorder knew."""
    group: Any = dist.new_group(backend="mcast")
    done = []
    with pytest.MonkeyPatch.context() as patch:
        completed = recorder.Recorder.completed

        def noted(self: recorder.Recorder, work: McastWork, account: Account | None) -> None:
            done.append(work._done)
            completed(self, work, account)

        patch.setattr(recorder.Recorder, "completed", noted)
        for _ in range(3):
            dist.barrier(group=group)
    dist.destroy_process_group(group)
    return done


def reductions() -> list[tuple[bool, str, bool]]:
    """Return what is recorded of reductions that are several operations of the library, and of one."""
    group: Any = dist.new_group(backend="mcast")
    rank = dist.get_rank()
    dist.reduce(torch.ones(3), 1, group=group)
    parts = [torch.ones(n) for n in (1, 2, 3, 4)]
    works = [dist.reduce_scatter(torch.zeros(rank + 1), parts, group=group, async_op=True)]
    works.append(dist.all_reduce(sparse_ones([[rank]], 4), group=group, async_op=True))
    for work in works:
        assert work is not None
        work.wait()
    entries = recorder.trace(stacks=False)["entries"]
    dist.destroy_process_group(group)
    own = [e for e in entries if e["process_group"][0] == group.group_name]
    return [("waited_ms" in e, e["state"], e["retired"]) for e in own[-3:]]  # others: of a group that had its name


@FLIGHT_RECORDER
def test_the_flight_recorder_knows_calls_that_are_several_operations(world: World) -> None:
    assert world.run(reductions) == [[(True, "completed", True)] * 3] * 4


def test_an_operation_is_recorded_before_another_thread_learns_that_it_is_done(world: World) -> None:
    for done in world.run(recorded):
        assert done
        assert not any(done)


@FLIGHT_RECORDER
def test_the_flight_recorder_says_how_long_operations_took_and_who_is_in_them(world: World) -> None:
    for rank, (last, trace) in enumerate(world.run(comes_last)):
        barrier, *exchanges = trace["entries"][-3:]  # others: of a group that had its name
        began, ended = (barrier[f"time_discovered_{what}_ns"] for what in ("started", "completed"))
        assert began <= ended
        assert last < ended
        if rank:
            assert began < last
        assert barrier["duration_ms"] == (ended - began) / 1e6
        waited = barrier["waited_ms"]
        assert list(waited) == ["queued", "peers", "turn", "transfer", "finish"]
        assert sum(waited.values()) - waited["queued"] == pytest.approx(barrier["duration_ms"])
        assert [(e["is_p2p"], e["state"], e["retired"]) for e in exchanges] == [(True, "completed", True)] * 2
        name, pg = barrier["process_group"][0], str(barrier["pg_id"])
        assert trace["pg_config"][name]["ranks"] == "[0, 1, 2, 3]"
        assert trace["pg_status"][pg]["last_completed_collective"] == 1


def own_pid() -> int:
    return os.getpid()


def fails() -> tuple[str, str]:
    """Return what a future and its callback make of an operation that fails."""
    dist.all_reduce(torch.ones(100))
    store = dist.distributed_c10d._get_default_store()
    store.set(f"passed {dist.get_rank()}", "")  # who dies takes an operation from those who are still in it
    if dist.get_rank() == 1:
        store.wait(["passed 0", "passed 2"])
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_gather_into_tensor(torch.zeros(3000), torch.ones(1000), async_op=True)
    assert work is not None
    future = work.get_future()
    after = future.then(lambda done: f"called with {done.value()}")  # raises, and fails the next future

    def outcome(future: torch.futures.Future[Any]) -> str:
        with pytest.raises(RuntimeError, match=r"RankError: .*rank 1 ") as raised:
            future.wait()
        with pytest.raises(RuntimeError, match=r"RankError: .*rank 1 "):
            future.value()
        return str(raised.value)

    both = torch.futures.collect_all([future, after])
    with pytest.raises(RuntimeError, match="RankError"):
        both.wait()
    assert isinstance(work.exception(), torch_mcast.RankError)
    return outcome(future), outcome(after)


def goes_on() -> list[int]:
    """Leave the rank that was killed behind."""
    group = distributed.shrink_group([1])
    out = torch.zeros(2, dtype=torch.int64)
    dist.all_gather_into_tensor(out, torch.tensor([10 * dist.get_rank()]))
    assert dist.get_process_group_ranks(group) == [0, 2]
    return [int(x) for x in out]


@pytest.fixture
def traces(tmp_path: Path) -> Iterator[Path]:
    """Give the traces that two ranks left after the third was killed, and have them go on."""
    world = World(3, MCAST_FABRIC="shm", TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_rank_")
    try:
        world.start(fails)
        world.collect([0, 2])
        until(lambda: len(list(tmp_path.glob("trace_rank_?"))) == 2, "a thread of each rank writes its trace")
        yield tmp_path
        for rank in (0, 2):
            world.pipes[rank].send((goes_on, ()))
        assert world.collect([0, 2]) == [[0, 10]] * 2
    finally:
        world.close()


@FLIGHT_RECORDER
def test_a_killed_rank_fails_futures_and_leaves_traces(traces: Path) -> None:
    assert sorted(path.name for path in traces.iterdir()) == ["trace_rank_0", "trace_rank_2"]
    for path in traces.iterdir():
        entries = pickle.loads(path.read_bytes())["entries"]
        assert [(e["profiling_name"], e["state"], e["retired"]) for e in entries] == [
            ("mcast:all_reduce", "completed", True),
            ("mcast:_all_gather_base", "scheduled", False),
        ]
    said = analysed(traces, "--allow-incomplete-ranks")
    assert "mcast:_all_gather_base" in said
    assert re.search(r"missed FR dumps from ranks \(\{1\}\)", said)


@FLIGHT_RECORDER
def test_at_exit_a_trace_is_written_before_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(recorder.Recorder):
        def complete(self, trace: dict[str, Any]) -> None:
            super().complete(trace)
            self.late("this is found as the trace is written")

    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/trace_rank_")
    monkeypatch.setattr(recorder, "_recorders", {})
    monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: False)
    Failing().open("a group")
    writer = threading.Thread(target=recorder.Recorder().late, args=("the first",), daemon=True)
    writer.start()
    writer.join(LIMIT_S)
    assert not writer.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == ["trace_rank_0"]


def test_entries_are_read_while_others_are_posted() -> None:
    """torch's debug server asks from a thread of its own, while the program goes on."""

    class Done:
        def is_success(self) -> bool:
            return True

    entries = recorder.Recorder()
    works: deque[Any] = deque(maxlen=50)
    stop = threading.Event()

    def post() -> None:
        while not stop.is_set():
            works.append(Done())
            entries.exchanged(works[-1])

    thread = threading.Thread(target=post)
    thread.start()
    try:
        for _ in range(2000):
            entries.complete({"entries": []})
    finally:
        stop.set()
        thread.join()
