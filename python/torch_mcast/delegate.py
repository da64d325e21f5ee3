"""What the library does not do: an embedded gloo group does it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroupGloo, Work

from . import errors
from .capabilities import Capabilities, collective
from .tensor import require_cpu, require_reducible, tensors_in
from .work import NO_TIMEOUT, DelegatedWork


class CopiedWork(DelegatedWork):
    """A work of gloo on one flat tensor, from which the outputs are copied once it is done."""

    def __init__(self, inner: Work, flat: torch.Tensor, outputs: list[torch.Tensor]) -> None:
        super().__init__(inner)
        self._flat: torch.Tensor | None = flat
        self._outputs = outputs
        self._copying = threading.Lock()

    def _copied(self) -> list[torch.Tensor]:
        with self._copying, torch.no_grad():
            if self._flat is not None:
                parts = self._flat.split([t.numel() for t in self._outputs])
                for output, part in zip(self._outputs, parts, strict=True):
                    output.copy_(part.view_as(output))
                self._flat = None
        return self._outputs

    def is_completed(self) -> bool:
        """Say whether the outputs are there, or gloo has failed."""
        done = super().is_completed()
        if done and super().exception() is None:
            self._copied()
        return done

    def is_success(self) -> bool:
        """Say whether the outputs are there."""
        return self.is_completed() and super().exception() is None

    def result(self) -> list[torch.Tensor]:
        """Return the outputs."""
        return self._copied()

    def synchronize(self) -> None:
        """Wait as gloo's work does."""
        super().synchronize()
        self._copied()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait as gloo's work does."""
        done = super().wait(timeout)
        self._copied()
        return done

    def future(self) -> Any:
        """Return a future of the outputs."""
        return super().future().then(lambda done: (done.value(), self._copied())[1])


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

    @collective
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> DelegatedWork:
        """Send the i-th input to rank i and receive the i-th output from it, of shapes that may differ."""
        require_cpu("all_to_all", *outputs, *inputs)
        if len(inputs) != self.size() or len(outputs) != self.size():
            raise errors.ArgumentError(
                f"all_to_all: {len(outputs)} outputs, {len(inputs)} inputs, and there are {self.size()} ranks"
            )
        # gloo's own takes equal shapes alone, which no rank knows of the others.
        send, recv = (torch.cat([t.reshape(-1) for t in ts]) for ts in (inputs, outputs))
        method = getattr(self._gloo, "all_to_all_single", None) or self._gloo.alltoall_base
        splits = [t.numel() for t in outputs], [t.numel() for t in inputs]
        return CopiedWork(method(recv, send, *splits, opts), recv, outputs)


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
        work = self._coalesce(method(self, *args))
        self._recorder.exchanged(work)
        return work

    return coalesced


for _name in ("send", "recv", "recv_anysource"):
    setattr(GlooBacked, _name, _coalescing(_delegate(_name)))
for _name in ("reduce", "gather", "scatter", "alltoall_base", "all_to_all_single"):
    if hasattr(ProcessGroupGloo, _name):
        setattr(GlooBacked, _name, collective(_delegate(_name)))
