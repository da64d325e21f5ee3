"""Messages from rank to rank, and the collectives that are made of them: all-to-all, gather and scatter.

Elements go as bytes, of any type. Tensors on a CUDA device go by way of memory of the host: the call waits for
what its stream has queued before, and a wait returns when the results are on the device.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from . import capture, device, errors
from .capabilities import collective
from .group import Group
from .group_in_python import keep
from .posting import Posting
from .tensor import (
    Finish,
    flat_view,
    only,
    overlap,
    receiving,
    require_dense,
    require_writable,
    scatter_into,
    sending,
)
from .work import McastWork, MessageWork

ANY_SOURCE = -1

# Tags of programs have 32 bits; those of monitored barriers are above.
_BARRIER_TAG = 1 << 62
_TAG_MASK = (1 << 32) - 1


class Messages(Posting):
    """Operations that move bytes between single ranks."""

    _barriers = 0

    # ---- from one to many, from many to one

    @collective
    def gather(self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> McastWork:
        """Gather each rank's input, of equal sizes, into the list of the root."""
        tensor, outputs = only(inputs, "gather"), self._roots(output_lists, "gather", opts.rootRank)
        require_dense(tensor, *outputs)
        require_writable("gather", *outputs)
        _require_equal("gather", tensor, outputs)
        send = _outgoing(tensor)
        recv, finish = _incoming_all(outputs) if outputs else (send, None)
        if outputs and overlap(send, recv):
            send = send.clone()
        nbytes, root = send.nbytes, opts.rootRank
        return self._post(
            "gather",
            self.group.messages,
            lambda g, _: g.lib.gather(g.live(), send.data_ptr(), recv.data_ptr(), nbytes, root),
            f"of {nbytes} bytes a rank to rank {root}",
            [tensor],
            outputs,
            (send, recv),
            finish,
            opts,
        )

    @collective
    def scatter(self, outputs: list[torch.Tensor], input_lists: list[list[torch.Tensor]], opts: Any) -> McastWork:
        """Give each rank the tensor of its number in the list of the root, of equal sizes."""
        output, inputs = only(outputs, "scatter"), self._roots(input_lists, "scatter", opts.rootRank)
        require_dense(output, *inputs)
        require_writable("scatter", output)
        _require_equal("scatter", output, inputs)
        recv, finish = _incoming(output)
        send = _outgoing_all(inputs) if inputs else recv
        if inputs and overlap(send, recv):
            send = send.clone()
        nbytes, root = recv.nbytes, opts.rootRank
        return self._post(
            "scatter",
            self.group.messages,
            lambda g, _: g.lib.scatter(g.live(), send.data_ptr(), recv.data_ptr(), nbytes, root),
            f"of {nbytes} bytes a rank from rank {root}",
            inputs,
            [output],
            (send, recv),
            finish,
            opts,
        )

    def _roots(self, lists: list[list[torch.Tensor]], operation: str, root: int) -> list[torch.Tensor]:
        """Return the root's list, of a tensor for each rank; other ranks have none."""
        if root != self.rank():
            if any(lists):
                raise errors.ArgumentError(f"{operation}: rank {self.rank()} has a list, the root {root} alone may")
            return []
        tensors: list[torch.Tensor] = only(lists, operation)
        if len(tensors) != self.size():
            raise errors.ArgumentError(
                f"{operation}: the list has {len(tensors)} tensors, and there are {self.size()} ranks"
            )
        return tensors

    # ---- from all to all

    @collective
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> McastWork:
        """Send the i-th input to rank i and receive the i-th output from it, of shapes that may differ."""
        require_dense(*outputs, *inputs)
        require_writable("all_to_all", *outputs)
        if len(inputs) != self.size() or len(outputs) != self.size():
            raise errors.ArgumentError(
                f"all_to_all: {len(outputs)} outputs, {len(inputs)} inputs, and there are {self.size()} ranks"
            )
        _require_one_dtype("all_to_all", *outputs, *inputs)
        send = _outgoing_all(inputs)
        recv, finish = _incoming_all(outputs)
        sizes = [t.nbytes for t in outputs], [t.nbytes for t in inputs]
        return self._exchange("all_to_all", recv, send, sizes, inputs, outputs, finish, opts)

    @collective
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        to: list[int],
        sent: list[int],
        opts: Any,
    ) -> McastWork:
        """Send rows of input to each rank in turn, and receive rows of output from each.

        Args:
            output: of R rows.
            input: of S rows, as long as those of output on the ranks that receive them.
            to: how many rows come from each rank, R in all; empty: R / size from each.
            sent: how many rows go to each rank, S in all; empty: S / size to each.
            opts: torch's.
        """
        require_dense(output, input)
        require_writable("all_to_all_single", output)
        _require_one_dtype("all_to_all_single", output, input)
        sizes = self._rows("output", output, to), self._rows("input", input, sent)
        recv, finish = _incoming(output)
        return self._exchange("all_to_all_single", recv, _outgoing(input), sizes, [input], [output], finish, opts)

    alltoall_base = all_to_all_single  # its name before the summer of 2026

    def _rows(self, what: str, tensor: torch.Tensor, counts: list[int]) -> list[int]:
        """Return how many bytes each rank's rows have."""
        if not tensor.dim():
            raise errors.ArgumentError(f"all_to_all_single: the {what} is a scalar; it must have rows")
        rows = tensor.shape[0]
        if counts and (len(counts) != self.size() or min(counts) < 0 or sum(counts) != rows):
            raise errors.ArgumentError(
                f"all_to_all_single: sizes {list(counts)} of the {what}, which has {rows} rows: "
                f"one for each of {self.size()} ranks is needed, none below 0, and their sum must be the rows"
            )
        if not counts and rows % self.size():
            raise errors.ArgumentError(
                f"all_to_all_single: the {what} has {rows} rows, which {self.size()} ranks cannot "
                "share equally: give sizes"
            )
        row = tensor.nbytes // max(rows, 1)
        return [row * n for n in counts or [rows // self.size()] * self.size()]

    def _exchange(
        self,
        operation: str,
        recv: torch.Tensor,
        send: torch.Tensor,
        sizes: tuple[list[int], list[int]],
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        finish: Finish,
        opts: Any,
    ) -> McastWork:
        if overlap(send, recv):
            send = send.clone()
        received, sent = sizes
        mine = self.rank()
        if sent[mine] != received[mine]:
            raise errors.ArgumentError(
                f"{operation}: rank {mine} sends {sent[mine]} bytes to itself and has room for {received[mine]}"
            )
        return self._post(
            operation,
            self.group.messages,
            lambda g, _: g.lib.all_to_all(g.live(), send.data_ptr(), recv.data_ptr(), sent, received),
            f"of {send.nbytes} bytes",
            inputs,
            outputs,
            (send, recv),
            finish,
            opts,
        )

    # ---- from one rank to another

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> MessageWork:
        """Send a tensor to a rank. It is done once a receive there has matched it."""
        tensor = only(tensors, "send")
        require_dense(tensor)
        memory = _outgoing(tensor)
        return self._message(
            "send",
            f"of {memory.nbytes} bytes to rank {to} with tag {tag}",
            lambda g, _: g.lib.send(g.live(), memory.data_ptr(), memory.nbytes, to, tag & _TAG_MASK),
            tensors,
            [],
            memory,
            None,
        )

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> MessageWork:
        """Receive a tensor from a rank; what was sent may be shorter."""
        return self._receive("recv", tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> MessageWork:
        """Receive a tensor from whichever rank sends one; source_rank() of the work says which."""
        return self._receive("recv_anysource", tensors, ANY_SOURCE, tag)

    def _receive(self, operation: str, tensors: list[torch.Tensor], source: int, tag: int) -> MessageWork:
        tensor = only(tensors, "recv")
        require_dense(tensor)
        require_writable("recv", tensor)
        memory, finish = _incoming(tensor)
        whom = "any rank" if source == ANY_SOURCE else f"rank {source}"
        return self._message(
            operation,
            f"of {memory.nbytes} bytes from {whom} with tag {tag}",
            lambda g, _: g.lib.recv(g.live(), memory.data_ptr(), memory.nbytes, source, tag & _TAG_MASK),
            [],
            tensors,
            memory,
            finish,
        )

    def _message(
        self,
        operation: str,
        details: str,
        start: Callable[[Group, Any], int],
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        memory: torch.Tensor,
        finish: Finish,
    ) -> MessageWork:
        work = self._post(
            operation, self.group.messages, start, details, inputs, outputs, (memory,), finish, None, MessageWork
        )
        assert isinstance(work, MessageWork)
        self._recorder.exchanged(work)
        keep(work, several=False)
        return self._coalesce(work)

    # ---- a barrier that names who is missing

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        """Wait for all ranks. On rank 0 an error names the first that is missing, or all of them.

        After such an error messages stay in flight, so that leaving the group ends it on all ranks.
        """
        given = getattr(opts, "timeout", opts)  # torch gives a process group in Python the timeout itself
        timeout = given if given >= timedelta(0) else self._timeout
        word, limit = torch.zeros(1, dtype=torch.uint8, device="cpu"), f"{timeout.total_seconds() * 1000:g} ms"
        if timeout == timedelta(0):
            raise errors.WaitTimeoutError(f"Rank {self.rank()} timed out in monitoredBarrier after 0 ms")
        self._barriers += 1
        tag = _BARRIER_TAG + self._barriers
        if self.rank() != 0:
            try:
                self._word(word, 0, tag, sends=True).wait(timeout)
                self._word(word, 0, tag, sends=False).wait(timeout)
            except errors.WaitTimeoutError as e:
                raise errors.WaitTimeoutError(
                    f"Rank {self.rank()} successfully reached monitoredBarrier, but received errors while waiting for "
                    f"send/recv from rank 0 within {limit}: its own error names the missing ranks"
                ) from e
            return
        others = range(1, self.size())
        words = {r: self._word(torch.empty_like(word), r, tag, sends=False) for r in others}
        deadline = time.monotonic() + timeout.total_seconds()
        missing = []
        for r, work in words.items():
            try:
                work.wait(timedelta(seconds=max(deadline - time.monotonic(), 1e-3)))
            except errors.WaitTimeoutError:
                missing.append(r)
                if not wait_all_ranks:
                    break
        if missing:
            names = ", ".join(str(r) for r in missing)
            raise errors.WaitTimeoutError(
                f"Rank{'s' if len(missing) > 1 else ''} {names} failed to pass monitoredBarrier in {limit}"
            )
        for work in [self._word(word, r, tag, sends=True) for r in others]:
            work.wait(timeout)

    def _word(self, memory: torch.Tensor, peer: int, tag: int, *, sends: bool) -> MessageWork:
        def start(g: Group, _: Any) -> int:
            move = g.lib.send if sends else g.lib.recv
            return move(g.live(), memory.data_ptr(), memory.nbytes, peer, tag)

        work = self._post(
            "monitored_barrier", self.group.messages, start, f"with rank {peer}", [], [], (memory,), None, None,
            MessageWork,
        )  # fmt: skip
        assert isinstance(work, MessageWork)
        return work


def _outgoing(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory of the host with the elements of a tensor, one after another."""
    if tensor.device.type == "cuda":
        device.refuse_capture(tensor.device)
        with capture.beside():
            tensor = tensor.detach().cpu()
    return sending(tensor)


def _incoming(output: torch.Tensor) -> tuple[torch.Tensor, Finish]:
    """Return memory of the host to receive into, and the copy to do afterwards, if any."""
    if output.device.type != "cuda":
        return receiving(output)
    memory = _host_memory(output.numel(), output)
    return memory, device.CopyIn([output], [memory])


def _outgoing_all(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return memory of the host with the elements of all tensors, one after another."""
    flat = flat_view(tensors)
    if flat is None:
        with torch.no_grad():
            flat = torch.cat([t.reshape(-1) for t in tensors])
    return _outgoing(flat)


def _incoming_all(outputs: list[torch.Tensor]) -> tuple[torch.Tensor, Finish]:
    """Return memory of the host to receive all outputs into, and the copies to do afterwards, if any."""
    on_device = outputs[0].device.type == "cuda"
    flat = None if on_device else flat_view(outputs)
    if flat is not None:
        return flat, None
    sizes = [t.numel() for t in outputs]
    memory = _host_memory(sum(sizes), outputs[0])
    parts = list(memory.split(sizes))
    if on_device:
        return memory, device.CopyIn(outputs, parts)
    return memory, functools.partial(scatter_into, outputs, parts)


def _host_memory(numel: int, like: torch.Tensor) -> torch.Tensor:
    if like.device.type != "cuda":
        return torch.empty(numel, dtype=like.dtype, device="cpu")
    with capture.beside():
        return torch.empty(numel, dtype=like.dtype, device="cpu", pin_memory=True)


def _require_equal(operation: str, tensor: torch.Tensor, listed: Sequence[torch.Tensor]) -> None:
    for t in listed:
        if t.numel() != tensor.numel() or t.dtype != tensor.dtype:
            raise errors.ArgumentError(
                f"{operation}: {t.numel()} elements of {t.dtype} in the list, and {tensor.numel()} of "
                f"{tensor.dtype} in the tensor: both must be the same"
            )


def _require_one_dtype(operation: str, *tensors: torch.Tensor) -> None:
    dtypes = {str(t.dtype) for t in tensors}
    if len(dtypes) > 1:
        raise errors.ArgumentError(f"{operation}: tensors of {' and '.join(sorted(dtypes))}: they must be the same")
