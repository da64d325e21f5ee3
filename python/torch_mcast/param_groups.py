"""The parameter groups of FSDP2's modules, which torch keeps for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule


def on_cpu(module: FSDPModule) -> bool:
    """Say whether FSDP has no streams for a module's collectives.

    Where it has, an asynchronous Allgather would leave them: it would begin, and cast and copy its
    input, on the current stream, behind the compute that is queued there.
    """
    return all(group.device.type == "cpu" for group in param_groups(module))


def param_groups(module: FSDPModule) -> list[Any]:
    """Return them: one, several where fully_shard was asked for them, none without parameters."""
    return groups_of(module._get_fsdp_state())


def groups_of(state: Any) -> list[Any]:
    """Return those of FSDP's state of a module, or of several that share one."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


def in_backward() -> bool:
    """Say whether autograd runs a backward on this thread."""
    return bool(torch._C._current_graph_task_id() >= 0)


def instead(of: Any, method: str, function: Callable[..., Any] | None) -> None:
    """Have FSDP call a function for a method of this group, or state; None: the method again."""
    if function is None:
        vars(of).pop(method, None)
    else:
        setattr(of, method, function)


def drop(group: Any) -> None:
    """Wait for what a group has gathered and not taken yet, and forget it."""
    result, group._all_gather_result = group._all_gather_result, None
    if result is None:
        return
    if result.all_gather_event is not None:
        group.device_handle.current_stream().wait_event(result.all_gather_event)
    if isinstance(result.all_gather_work, dist.Work):
        result.all_gather_work.wait()


def versions(group: Any) -> list[tuple[int, ...]]:
    """Return values that change with each write to this rank's shards that torch has counted.

    torch counts a write to a DTensor there, one to its local tensor there. Neither count sees a write through
    `.data`.
    """
    return [
        (
            param._sharded_param_data.data_ptr(),
            *map(_version, (param.sharded_param, param.sharded_param._local_tensor)),
        )
        for param in group.fsdp_params
    ]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
