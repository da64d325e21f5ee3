"""The name "mcast" in torch.distributed, and the way from a process group to our backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler

from . import errors, group_in_python, launcher, replace
from .backend import MulticastBackend
from .counters import Stats
from .group import Info
from .group_in_python import TAKES_BACKENDS
from .options import NAME, Options
from .registration import Registration

DEVICES = ["cpu", "cuda"]


def create(opts: Any, options: object | None) -> MulticastBackend:
    """Make the backend of a new process group; torch calls this."""
    if replace.of_replaced.get() and not isinstance(options, Options):
        options = None
    if options is not None and not isinstance(options, Options):
        raise errors.ArgumentError(
            f"pg_options is a {type(options).__name__}: the mcast backend takes torch_mcast.Options"
        )
    return MulticastBackend(opts.store, opts.group_rank, opts.group_size, opts.timeout, options)


def register() -> None:
    """Make the names "mcast" and "launcher://" known to torch.distributed. A second call does nothing."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=DEVICES)
    register_rendezvous_handler(launcher.SCHEME, launcher.rendezvous)
    replace.install()
    if not TAKES_BACKENDS:
        group_in_python.install()


def backend_of(group: dist.ProcessGroup | None = None, devices: Sequence[str] = DEVICES) -> MulticastBackend | None:
    """Return the mcast backend of a process group (None: the default group) for one of these devices, or None."""
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise errors.ArgumentError("there is no default process group: call init_process_group first")
    if not isinstance(group, dist.ProcessGroup):
        raise errors.ArgumentError(f"{group!r} is no process group, or one that this rank is not in")
    for device in devices:
        try:
            backend = group._get_backend(torch.device(device))
        except RuntimeError:
            continue
        backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        if isinstance(backend, MulticastBackend):
            return backend
    return None


def stats(group: dist.ProcessGroup | None = None) -> Stats:
    """Return the counters of an mcast group (None: the default group)."""
    return _mcast_backend(group).stats()


def info(group: dist.ProcessGroup | None = None) -> Info:
    """Return what an mcast group (None: the default group) runs on."""
    info = _mcast_backend(group).info()
    return dataclasses.replace(info, replaces=replace.replaced_in(group))


def register_memory(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> Registration:
    """Have an RDMA device send Allgathers and Broadcasts from a tensor's memory, without a copy.

    It is of use with MCAST_FABRIC=verbs, for memory that is an input over and over, such as a shard of
    parameters, or a result: from there the right neighbour reads chunks that it has lost. A group that
    copies takes it as well. Views of the tensor count. Where it works `stats().gather_lent_bytes` grows, and
    `chunks_read` of the neighbour; where it is refused info().notes says why.

    Args:
        tensor: contiguous, on the CPU, of 1 byte at least. The registration keeps its memory.
        group: an mcast group; None: the default group.

    Returns:
        The registration, which lasts until its release(), or until nobody refers to it any more.

    Raises:
        ArgumentError: the tensor is none of that.
        ClosedError: the group is closed.
    """
    return Registration(_mcast_backend(group).group, tensor)


def _mcast_backend(group: dist.ProcessGroup | None) -> MulticastBackend:
    backend = backend_of(group)
    if backend is None:
        raise errors.ArgumentError(f'the group\'s backend is not "mcast" but "{dist.get_backend(group)}"')
    return backend
