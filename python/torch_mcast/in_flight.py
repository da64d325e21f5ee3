"""Gradients that a Reduce-Scatter is still writing, and what becomes of them when somebody reads them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import Work
from torch.utils._pytree import tree_map_only


class Reduction:
    """A Reduce-Scatter of CPU tensors that was left in flight."""

    def __init__(
        self, work: Work, output: torch.Tensor, done: Callable[[], None], waited: Callable[[float], None]
    ) -> None:
        """Begin; done() is called when a wait has returned, then waited() with when it began."""
        self._work = work
        self._output = output  # a program may drop the gradients, and memory that is written to has to stay
        self._done = done
        self._waited = waited
        self._lock = threading.RLock()  # another thread may read gradients
        self._ended = False
        self._failure: Exception | None = None
        self._gradients: list[Any] = []

    def hand_out(self, parameters: list[Any]) -> None:
        """Make any read of the gradients of these sharded parameters, which FSDP has just set, wait."""
        memory = self._output.untyped_storage().data_ptr()
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            local = gradient._local_tensor
            if type(local) is torch.Tensor and local.untyped_storage().data_ptr() == memory:
                gradient._local_tensor = _Unfinished.over(local, self)
                self._gradients.append(gradient)

    def wait(self) -> None:
        """Wait for it, and let its gradients be ordinary tensors; raise its error, each time."""
        with self._lock:
            if not self._ended:
                self._end()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        start = time.perf_counter()
        try:
            self._work.wait()
        except Exception as e:  # not ^C, after which it is still in flight
            self._failure = e
        self._ended = True
        self._done()
        self._waited(start)
        for gradient in self._gradients:
            if isinstance(gradient._local_tensor, _Unfinished):
                gradient._local_tensor = gradient._local_tensor.finished
        self._gradients = []


class _Unfinished(torch.Tensor):
    """The local tensor of a gradient that is in flight: any operation on it waits first."""

    finished: torch.Tensor  # the same memory
    reduction: Reduction

    @staticmethod
    def over(tensor: torch.Tensor, reduction: Reduction) -> _Unfinished:
        held: _Unfinished = torch.Tensor._make_subclass(_Unfinished, tensor)
        held.finished, held.reduction = tensor, reduction
        return held

    def landed(self) -> torch.Tensor:
        self.reduction.wait()
        return self.finished

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(_Unfinished, _Unfinished.landed, (args, kwargs or {}))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map_only(_Unfinished, _Unfinished.landed, (args, kwargs or {}))
        return function(*args, **kwargs)
