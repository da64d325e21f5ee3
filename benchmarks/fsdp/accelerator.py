"""An emulated accelerator: a block takes as long as one would need, and the CPU is free meanwhile.

The block is computed on the CPU as ever, so losses and gradients are real. If that was quicker than the
accelerator is to be, the rank then sleeps for the rest. So compute and communication share no cores, as
on hosts with GPUs, where the ranks of a testbed share those of one machine.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

_BACKWARD = 2  # a backward takes so many times its forward: gradients of inputs and of weights


class Accelerator:
    """Computes one block, in so many seconds forward and twice as many backward."""

    def __init__(self, forward_s: float) -> None:
        self._forward_s = forward_s
        self._due = 0.0

    def begin(self, x: torch.Tensor) -> torch.Tensor:
        """Mark where a block begins, and where its backward ends."""
        self._start(self._forward_s)
        y: torch.Tensor = _Mark.apply(x, self._wait)
        return y

    def end(self, x: torch.Tensor) -> torch.Tensor:
        """Wait for a block to end; mark where its backward begins."""
        self._wait()
        y: torch.Tensor = _Mark.apply(x, self._backward)
        return y

    def _backward(self) -> None:
        self._start(_BACKWARD * self._forward_s)

    def _start(self, seconds: float) -> None:
        self._due = time.perf_counter() + seconds

    def _wait(self) -> None:
        with _RecordFunctionFast("accelerator::compute"):  # an operator in torch.profiler's traces
            time.sleep(max(0.0, self._due - time.perf_counter()))


class _Mark(torch.autograd.Function):
    """A copy; its backward calls a function."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, then: Any) -> torch.Tensor:
        ctx.then = then
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.then()
        return gradients[0], None
