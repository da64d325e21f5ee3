"""Our operations in the traces of torch.profiler."""

from __future__ import annotations

import threading

import torch
import torch._C._distributed_c10d as c10d
import torch.autograd.profiler as profiler
from torch._C._autograd import _profiler_enabled, _ProfilerResult
from torch._C._profiler import _RecordFunctionFast

from .options import NAME

# torch has record_param_comms to itself: a Python event of that very name crashes torch 2.15.
DETAILS = f"{NAME}:record_param_comms"

# An event from posting to completion: it ends when the future is set, on any thread.
Event = torch.futures.Future[None]

_lock = threading.RLock()  # a signal handler may abort a group, and so end events
_open: set[Event] = set()


def begin(
    operation: str,
    group: str,
    lane: str,
    number: int,
    size: int,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
) -> Event | None:
    """Begin an event from posting to completion; None while nothing is profiled.

    The code that completes the operation ends the event. Within it, on the same thread, is a short event with
    the details where shapes are recorded, as torch gives none to an event that another thread may end: sizes
    and types of the tensors, and the names of torch's record_param_comms. "Lane" is ours: operations of one
    lane of a group run one after another, "gather" and "reduce" run side by side, and an operation of "both"
    has a place in each.
    """
    if not _profiler_enabled() or not hasattr(profiler, "_disable_profiler"):
        return None  # not profiled, or torch has no hook before its profiler's stop
    name = getattr(c10d, "_get_comm_profiling_name", str)() or f"{NAME}:{operation}"
    event = _begin(name)
    details = {
        "Collective name": operation,
        "In msg nelems": sum(t.numel() for t in inputs),
        "Out msg nelems": sum(t.numel() for t in outputs),
        "dtype": str(inputs[0].dtype).removeprefix("torch.") if inputs else "",
        "Process Group Name": group,
        "Group size": size,
        "Lane": lane,
        "Seq": number,
    }
    with _RecordFunctionFast(DETAILS, inputs, details):
        return event


def _begin(name: str) -> Event:
    event: Event = torch.futures.Future()
    with _lock:
        _end_before_profilers_stop()
        with profiler.record_function(name) as record:
            record._call_end_callbacks_on_future(event)
        _open.add(event)
    return event


def end(event: Event | None) -> None:
    """End an event, on any thread, unless it has ended."""
    if event is None:
        return
    with _lock:
        if event in _open:
            _open.remove(event)
            event.set_result(None)


def _end_before_profilers_stop() -> None:
    """Have torch end open events before it stops a profiler.

    It frees them as it stops, and a later end would write to that memory.
    """
    stop = profiler._disable_profiler  # type: ignore[attr-defined]  # by this name torch calls it
    if getattr(stop, "ends_events", False):
        return

    def end_and_stop() -> _ProfilerResult:
        with _lock:
            while _open:
                _open.pop().set_result(None)
        return stop()

    end_and_stop.ends_events = True  # type: ignore[attr-defined]
    profiler._disable_profiler = end_and_stop  # type: ignore[attr-defined]
