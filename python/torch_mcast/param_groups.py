"""The parameter groups of FSDP2's modules, which torch keeps for itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
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


def named_groups(model: nn.Module) -> list[tuple[str, Any]]:
    """Return all parameter groups with their names: all those of the modules that share one.

    Where a module has several groups, each has the name of what holds all of its parameters, and a number if others
    have that name too.
    """
    shared: dict[Any, list[str]] = {}
    holders: dict[nn.Module, str] = {}
    for name, module in model.named_modules():
        holders[module] = name
        if isinstance(module, FSDPModule):
            shared.setdefault(module._get_fsdp_state(), []).append(name)
    named: list[tuple[str, Any]] = []
    for state, names in shared.items():
        groups = groups_of(state)
        if len(groups) == 1:
            named.append((", ".join(names), groups[0]))
            continue
        for group in groups:
            # Modules that share a state may lie outside of the part that enable() was given.
            of = [holders.get(param._module_info.module, "").replace(".", "/") for param in group.fsdp_params]
            name = os.path.commonpath(of).replace("/", ".")
            others = sum(known.partition("#")[0] == name for known, _ in named)
            named.append((f"{name}#{others + 1}" if others else name, group))
    return named


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
