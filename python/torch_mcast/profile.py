"""Our operations in the traces of torch.profiler."""

from __future__ import annotations

import torch
import torch._C._distributed_c10d as c10d
from torch._C._autograd import _profiler_enabled
from torch._C._profiler import _RecordFunctionFast

from .options import NAME


def begin(
    operation: str,
    group: str,
    lane: str,
    number: int,
    size: int,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
) -> _RecordFunctionFast | None:
    """Begin an event from posting to completion; None while nothing is profiled.

    Where shapes are recorded the event has sizes and types of the tensors, and the names of torch's
    record_param_comms. "Lane" is ours: operations of one lane of a group run one after another, those of
    "gather" and of "reduce" side by side, and those of "both" have a place in each. Whoever completes the
    operation ends it.
    """
    if not _profiler_enabled():
        return None
    name = getattr(c10d, "_get_comm_profiling_name", str)() or f"{NAME}:{operation}"
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
    event = _RecordFunctionFast(name, inputs, details)
    event.__enter__()
    return event


def end(event: _RecordFunctionFast | None) -> None:
    """End an event, on any thread."""
    if event is not None:
        event.__exit__(None, None, None)
