"""Operations that the library does not do: an embedded gloo group does them.

gloo takes the memory of a tensor for its elements, one after another, and knows few types. So tensors that
are not contiguous are staged here, and elements that are only moved go as bytes.
"""

from __future__ import annotations

import functools
import threading
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from .capabilities import collective
from .messages import Messages
from .tensor import (
    Finish,
    only,
    plain,
    require_cpu,
    require_reducible,
    require_writable,
    sending,
    write,
)
from .work import NO_TIMEOUT, DelegatedWork


class CopiedWork(DelegatedWork):
    """A work of gloo on memory from which the outputs are copied once it is done, if they lie elsewhere."""

    def __init__(self, inner: Work, outputs: list[torch.Tensor], finish: Finish) -> None:
        super().__init__(inner)
        self._outputs = outputs
        self._finish = finish
        self._copying = threading.Lock()
        self._waited = False

    def _copied(self) -> list[torch.Tensor]:
        with self._copying:
            if self._finish is not None:
                self._finish()
                self._finish = None
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
        """Wait, and return the outputs."""
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        """Wait as gloo's work does."""
        super().synchronize()
        self._copied()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait as gloo's work does, once: gloo would wait for a second message in a second wait."""
        if not self._waited:
            super().wait(timeout)
            self._waited = True
        self._copied()
        return True

    def future(self) -> Any:
        """Return a future of the outputs."""
        return super().future().then(lambda done: (done.value(), self._copied())[1])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a contiguous tensor as bytes."""
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def receiving_by_gloo(output: torch.Tensor) -> tuple[torch.Tensor, Finish]:
    """Return memory that a thread of gloo may write to, and the copy to do afterwards, if any."""
    if plain(output) and not output.is_inference():
        return output, None
    with torch.inference_mode(False):
        memory = torch.empty_like(output, memory_format=torch.contiguous_format)
    return memory, functools.partial(write, output, memory)


class GlooBacked(Messages):
    """A backend with a gloo group of the same ranks beside it."""

    _gloo: Any

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of waits that are given none."""
        super().set_timeout(timeout)
        self._gloo._set_default_timeout(timeout)

    _set_default_timeout = set_timeout

    @collective
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> DelegatedWork:
        """Reduce a tensor over ranks, in place on the root; on other ranks it may change as well."""
        tensor = only(tensors, "reduce")
        require_cpu("reduce", tensor)
        require_writable("reduce", tensor)
        require_reducible("reduce", (tensor, opts))
        memory, finish = sending(tensor), None
        if memory is not tensor and opts.rootRank == self.rank():
            finish = functools.partial(write, tensor, memory)
        return CopiedWork(self._gloo.reduce([memory], opts), tensors, finish)
