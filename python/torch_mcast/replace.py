"""MCAST_REPLACE: programs that can only name another backend get ours.

torch makes every process group in one function. Here that function is given our name in the place of the
one that the program said. torch.distributed goes on to answer with the program's name, since programs
compare get_backend() to the names that they know; torch_mcast.info() tells which backend it is.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

from . import errors
from .group_in_python import TAKES_BACKENDS
from .options import NAME

VARIABLE = "MCAST_REPLACE"
_REPLACEABLE = ("gloo", "nccl")

# A group is being made, with options that the program meant for the backend that ours replaces.
of_replaced: ContextVar[bool] = ContextVar("of_replaced", default=False)

_log = logging.getLogger(__name__)


def names() -> list[str]:
    """Return the names that stand for our backend.

    Raises:
        ArgumentError: MCAST_REPLACE names another.
    """
    value = os.environ.get(VARIABLE, "")
    given = [name.strip() for name in value.split(",")] if value else []
    if not set(given) <= set(_REPLACEABLE):
        raise errors.ArgumentError(f"{VARIABLE}={value} is not allowed: it must be gloo, nccl or gloo,nccl")
    return given


def install() -> None:
    """Have torch's function that makes groups take our name where a name is replaced."""
    make = c10d._new_process_group_helper
    signature = inspect.signature(make)

    @functools.wraps(make)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        said = str(call.arguments["backend"])
        ours = _instead(said)
        if ours == said:
            return make(*args, **kwargs)
        if (c10d.get_rank() if c10d.is_initialized() else call.arguments["group_rank"]) == 0:
            _say_once()
        call.arguments["backend"] = ours
        before = of_replaced.set(True)
        try:
            group, store = make(*call.args, **call.kwargs)
        finally:
            of_replaced.reset(before)
        if isinstance(group, c10d.ProcessGroup):
            c10d._world.pg_map[group] = said, c10d._world.pg_map[group][1]
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(said))
        return group, store

    c10d._new_process_group_helper = replaced


def replaced_in(group: Any) -> str:
    """Return the name that the program said for a group which MCAST_REPLACE made ours, or ""."""
    maps: Any = c10d._world.pg_map
    known = maps.get(group or c10d.GroupMember.WORLD)  # torchft's groups are not there
    said = known[0] if known else ""
    return said if said and _instead(said) != said else ""


def _instead(said: str) -> str:
    """Return a backend's name, such as torch has it, with ours in the place of names that are replaced."""
    replaceable = names()
    # torch chooses by device if the program names none.
    full = str(c10d.BackendConfig(said)) if said == c10d.Backend.UNDEFINED else said.lower()
    pairs = [pair.rpartition(":") for pair in full.split(",")]
    ours = [name in (NAME, *replaceable) for _, _, name in pairs]
    mixed = any(ours) and not all(ours) and not TAKES_BACKENDS
    if mixed and torch.cuda.is_available():
        advice = f", or set {VARIABLE}=gloo,nccl" if replaceable else ""
        raise errors.ArgumentError(
            f"a group of {full}: before torch 2.14 {NAME} shares a group with no other backend; name {NAME} for all "
            f"devices{advice}"
        )
    if not any(name in replaceable for _, _, name in pairs):
        return said
    if mixed:
        return NAME
    return ",".join(device + colon + (NAME if name in replaceable else name) for device, colon, name in pairs)


@functools.cache
def _say_once() -> None:
    _log.warning("torch_mcast: groups that ask for %s are of %s (%s)", os.environ[VARIABLE], NAME, VARIABLE)
