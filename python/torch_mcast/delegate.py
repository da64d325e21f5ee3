"""Operations that the library does not do: an embedded gloo group does them.

gloo takes the memory of a tensor for its elements, one after another, and knows few types. So tensors that
are not contiguous are staged here, and elements that are only moved go as bytes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from . import errors
from .capabilities import Capabilities, collective
from .tensor import (
    Finish,
    only,
    overlap,
    plain,
    require_cpu,
    require_writable,
    scatter_into,
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


class GlooBacked(Capabilities):
    """A backend with a gloo group of the same ranks beside it."""

    _gloo: Any

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of waits that are given none."""
        super().set_timeout(timeout)
        self._gloo._set_default_timeout(timeout)

    _set_default_timeout = set_timeout

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        """Wait for all ranks, and name the missing ones."""
        self._gloo.monitored_barrier(opts.timeout, wait_all_ranks)

    # ---- from one to many, from many to one

    @collective
    def gather(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> DelegatedWork:
        """Gather each rank's input, of equal sizes, into the list of the root."""
        tensor, outputs = only(inputs, "gather"), self._roots(output_lists, "gather", opts.rootRank)
        require_cpu("gather", tensor, *outputs)
        require_writable("gather", *outputs)
        self._require_equal("gather", tensor, outputs)
        places = [receiving_by_gloo(output) for output in outputs]
        lists = [[_bytes(memory) for memory, _ in places]] if places else []
        work = self._gloo.gather(lists, [_bytes(sending(tensor))], opts)
        return CopiedWork(work, outputs, _all(places))

    @collective
    def scatter(
        self, outputs: list[torch.Tensor], input_lists: list[list[torch.Tensor]], opts: Any
    ) -> DelegatedWork:
        """Give each rank the tensor of its number in the list of the root, of equal sizes."""
        output, inputs = only(outputs, "scatter"), self._roots(input_lists, "scatter", opts.rootRank)
        require_cpu("scatter", output, *inputs)
        require_writable("scatter", output)
        self._require_equal("scatter", output, inputs)
        memory, finish = receiving_by_gloo(output)
        lists = [[_bytes(sending(t)) for t in inputs]] if inputs else []
        return CopiedWork(self._gloo.scatter([_bytes(memory)], lists, opts), outputs, finish)

    def _roots(self, lists: list[list[torch.Tensor]], operation: str, root: int) -> list[torch.Tensor]:
        """Return the root's list, of a tensor for each rank; other ranks have none."""
        if root != self.rank():
            if any(lists):
                raise errors.ArgumentError(
                    f"{operation}: rank {self.rank()} has a list, the root {root} alone may"
                )
            return []
        tensors: list[torch.Tensor] = only(lists, operation)
        if len(tensors) != self.size():
            raise errors.ArgumentError(
                f"{operation}: the list has {len(tensors)} tensors, and there are {self.size()} ranks"
            )
        return tensors

    def _require_equal(self, operation: str, tensor: torch.Tensor, listed: Sequence[torch.Tensor]) -> None:
        for t in listed:
            if t.numel() != tensor.numel() or t.dtype != tensor.dtype:
                raise errors.ArgumentError(
                    f"{operation}: {t.numel()} elements of {t.dtype} in the list, and {tensor.numel()} of "
                    f"{tensor.dtype} in the tensor: both must be the same"
                )

    # ---- from all to all

    @collective
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> DelegatedWork:
        """Send the i-th input to rank i and receive the i-th output from it, of shapes that may differ."""
        require_cpu("all_to_all", *outputs, *inputs)
        require_writable("all_to_all", *outputs)
        if len(inputs) != self.size() or len(outputs) != self.size():
            raise errors.ArgumentError(
                f"all_to_all: {len(outputs)} outputs, {len(inputs)} inputs, and there are {self.size()} ranks"
            )
        _require_one_dtype("all_to_all", *outputs, *inputs)
        # gloo's own takes equal shapes alone, which no rank knows of the others.
        with torch.no_grad(), torch.inference_mode(False):
            send = torch.cat([_bytes(sending(t)) for t in inputs])
            recv = torch.empty(sum(t.nbytes for t in outputs), dtype=torch.uint8, device="cpu")
        sizes = [t.nbytes for t in outputs], [t.nbytes for t in inputs]
        parts = [part.view(t.dtype) for part, t in zip(recv.split(sizes[0]), outputs, strict=True)]
        finish = functools.partial(scatter_into, outputs, parts)
        return CopiedWork(self._exchange(recv, send, *sizes, opts), outputs, finish)

    @collective
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        to: list[int],
        sent: list[int],
        opts: Any,
    ) -> DelegatedWork:
        """Send rows of input to each rank in turn, and receive rows of output from each.

        Args:
            output: of R rows.
            input: of S rows, as long as those of output on the ranks that receive them.
            to: how many rows come from each rank, R in all; empty: R / size from each.
            sent: how many rows go to each rank, S in all; empty: S / size to each.
            opts: torch's.
        """
        require_cpu("all_to_all_single", output, input)
        require_writable("all_to_all_single", output)
        _require_one_dtype("all_to_all_single", output, input)
        sizes = self._rows("output", output, to), self._rows("input", input, sent)
        memory, finish = receiving_by_gloo(output)
        send = sending(input)
        if overlap(send, memory):
            send = send.clone()
        work = self._exchange(_bytes(memory), _bytes(send), *sizes, opts)
        return CopiedWork(work, [output], finish)

    alltoall_base = all_to_all_single  # its name before the summer of 2026

    def _rows(self, what: str, tensor: torch.Tensor, counts: list[int]) -> list[int]:
        """Return how many bytes each rank's rows have."""
        rows = tensor.shape[0] if tensor.dim() else -1
        if counts and (len(counts) != self.size() or min(counts) < 0 or sum(counts) != rows):
            raise errors.ArgumentError(
                f"all_to_all_single: sizes {list(counts)} of the {what}, which has {max(rows, 0)} rows: "
                f"one for each of {self.size()} ranks is needed, none below 0, and their sum must be the rows"
            )
        if not counts and rows % self.size():
            raise errors.ArgumentError(
                f"all_to_all_single: the {what} has {max(rows, 0)} rows, which {self.size()} ranks cannot "
                "share equally: give sizes"
            )
        row = tensor.nbytes // max(rows, 1)
        return [row * n for n in counts or [rows // self.size()] * self.size()]

    def _exchange(
        self, recv: torch.Tensor, send: torch.Tensor, received: list[int], sent: list[int], opts: Any
    ) -> Work:
        method = getattr(self._gloo, "all_to_all_single", None) or self._gloo.alltoall_base
        work: Work = method(recv, send, received, sent, opts)
        return work

    # ---- from one rank to another

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> DelegatedWork:
        """Send a tensor to a rank."""
        tensor = only(tensors, "send")
        require_cpu("send", tensor)
        return self._exchanged(CopiedWork(self._gloo.send([_bytes(sending(tensor))], to, tag), tensors, None))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> DelegatedWork:
        """Receive a tensor from a rank."""
        return self._receive("recv", tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> DelegatedWork:
        """Receive a tensor from whichever rank sends one; source_rank() of the work says which."""
        return self._receive("recv_anysource", tensors, tag)

    def _receive(self, method: str, tensors: list[torch.Tensor], *args: int) -> DelegatedWork:
        tensor = only(tensors, "recv")
        require_cpu("recv", tensor)
        require_writable("recv", tensor)
        memory, finish = receiving_by_gloo(tensor)
        work = getattr(self._gloo, method)([_bytes(memory)], *args)
        return self._exchanged(CopiedWork(work, tensors, finish))

    def _exchanged(self, work: DelegatedWork) -> DelegatedWork:
        """Have a send or receive be one of the works that are coalesced, though it is no collective."""
        self._coalesce(work)
        self._recorder.exchanged(work)
        return work


def _all(places: Sequence[tuple[torch.Tensor, Finish]]) -> Finish:
    """Return one copy for those of several outputs."""
    copies = [finish for _, finish in places if finish is not None]

    def finish() -> None:
        for copy in copies:
            copy()

    return finish if copies else None


def _require_one_dtype(operation: str, *tensors: torch.Tensor) -> None:
    dtypes = {str(t.dtype) for t in tensors}
    if len(dtypes) > 1:
        raise errors.ArgumentError(
            f"{operation}: tensors of {' and '.join(sorted(dtypes))}: they must be the same"
        )
