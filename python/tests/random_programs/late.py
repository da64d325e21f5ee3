"""Collectives that are as late as can be: begun only as they are waited for.

What reads a result before it waits then finds not-a-number, in each run and however fast the fabric is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Work

_NO_TIMEOUT = timedelta(0)


class LateWork(Work):
    """An operation that begins when it is waited for. All ranks wait in the same order."""

    def __init__(self, begin: Callable[[], Work]) -> None:
        super().__init__()
        self._begin = begin
        self._begun: Work | None = None
        self._mode = torch.is_inference_mode_enabled()  # at the call: the gathered tensors get that mode

    def begun(self) -> Work:
        if self._begun is None:
            with torch.inference_mode(self._mode):
                self._begun = self._begin()
        return self._begun

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        return self.begun().wait(timeout)

    def is_completed(self) -> bool:
        return self._begun is not None and self._begun.is_completed()

    def get_future(self) -> Any:
        return self.begun().get_future()


@contextmanager
def late(which: str) -> Iterator[None]:
    """Let asynchronous Allgathers ("gather"), Reduce-Scatters ("reduce"), "both" or none ("") be late."""
    gather: Any = dist.all_gather_into_tensor
    reduce: Any = dist.reduce_scatter_tensor

    def late_gather(*args: Any, async_op: bool = False, **kwargs: Any) -> Any:
        if not async_op:
            return gather(*args, **kwargs)
        return LateWork(lambda: gather(*args, async_op=True, **kwargs))

    def late_reduce(output: torch.Tensor, *args: Any, async_op: bool = False, **kwargs: Any) -> Any:
        if not async_op:
            return reduce(output, *args, **kwargs)
        output.fill_(torch.nan)
        return LateWork(lambda: reduce(output, *args, async_op=True, **kwargs))

    if which in ("gather", "both"):
        dist.all_gather_into_tensor = late_gather
    if which in ("reduce", "both"):
        dist.reduce_scatter_tensor = late_reduce
    try:
        yield
    finally:
        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = gather, reduce
