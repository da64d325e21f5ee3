"""The parameter groups of FSDP2's modules, which torch keeps for itself."""

from __future__ import annotations

from typing import Any

from torch.distributed.fsdp import FSDPModule


def on_cpu(module: FSDPModule) -> bool:
    """Say whether FSDP has no streams for a module's collectives.

    Where it has, an asynchronous Allgather would leave them: it would begin, and cast and copy its
    input, on the current stream, behind the compute that is queued there.
    """
    return all(group.device.type == "cpu" for group in param_groups(module))


def param_groups(module: FSDPModule) -> list[Any]:
    """Return them: one, several where fully_shard was asked for them, none without parameters."""
    state: Any = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []
