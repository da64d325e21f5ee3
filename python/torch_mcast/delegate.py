"""What the library does not do: an embedded gloo group does it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import ProcessGroupGloo

from .capabilities import Capabilities, collective
from .tensor import require_cpu, require_reducible, tensors_in
from .work import DelegatedWork


class GlooBacked(Capabilities):
    """A backend with a gloo group of the same ranks beside it."""

    _gloo: Any

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of waits that are given none."""
        super().set_timeout(timeout)
        self._gloo._set_default_timeout(timeout)

    _set_default_timeout = set_timeout

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        """Wait for all ranks, and name those that do not come."""
        self._gloo.monitored_barrier(opts.timeout, wait_all_ranks)


def _delegate(name: str) -> Callable[..., DelegatedWork]:
    def method(self: GlooBacked, *args: Any) -> DelegatedWork:
        require_cpu(name, *tensors_in(args))
        require_reducible(name, args)
        return DelegatedWork(getattr(self._gloo, name)(*args))

    method.__name__ = name
    method.__doc__ = f"Do {name} over gloo."
    return method


def _coalescing(method: Callable[..., DelegatedWork]) -> Callable[..., DelegatedWork]:
    """Have a call that is no collective be one of the works that are coalesced."""

    @functools.wraps(method)
    def coalesced(self: GlooBacked, *args: Any) -> DelegatedWork:
        return self._coalesce(method(self, *args))

    return coalesced


for _name in ("send", "recv", "recv_anysource"):
    setattr(GlooBacked, _name, _coalescing(_delegate(_name)))
for _name in ("reduce", "gather", "scatter", "alltoall", "alltoall_base", "all_to_all_single"):
    if hasattr(ProcessGroupGloo, _name):
        setattr(GlooBacked, _name, collective(_delegate(_name)))
