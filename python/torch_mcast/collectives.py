"""The operations that the library does for torch.distributed, a method for each of torch's names.

All arguments of a call are checked before the call begins anything.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import errors, reduction, shared, sparse
from .capabilities import collective
from .messages import Messages
from .reduction import Reduction
from .tensor import (
    Finish,
    flat_view,
    misplaced,
    only,
    overlap,
    receiving,
    require_dense,
    require_writable,
    scatter_into,
    sending,
    shares,
    write,
)
from .work import AnyWork, JoinedWork, McastWork


class Collectives(Messages):
    """The collectives of one rank of a group."""

    # ---- Allgather

    @collective
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> McastWork:  # noqa: A002
        """Gather each rank's input (n elements) into output (size*n elements, in rank order)."""
        return self._gather_single(output, input, opts)

    def reserve(self, numel: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Return memory that the ranks of a host share, for the next all_gather_single; see shared.py."""
        return shared.reserve(self.group, numel, dtype, self._timeout)

    def _gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> McastWork:  # noqa: A002
        self._check_gather(output, input)
        recv, finish = receiving(output)
        return self._gather_flat(recv, sending(input), [input], [output], finish, opts)

    def _check_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:  # noqa: A002
        require_dense(output, input)
        require_writable("all_gather", output)
        if output.dtype != input.dtype:
            raise errors.ArgumentError(
                f"all_gather: output is {output.dtype} and input {input.dtype}: they must be the same"
            )
        if output.numel() != input.numel() * self.size():
            raise errors.ArgumentError(
                f"all_gather: output has {output.numel()} elements, which is not "
                f"{self.size()} (ranks) times the {input.numel()} of the input"
            )

    @collective
    def allgather(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> AnyWork:
        """Gather each rank's input into the list; shapes may differ from rank to rank."""
        outputs, tensor = only(output_lists, "all_gather"), only(inputs, "all_gather")
        self._check_gather_list(outputs, tensor)
        return self._gather_list(outputs, tensor, opts)

    def _check_gather_list(self, outputs: list[torch.Tensor], tensor: torch.Tensor) -> None:
        require_dense(tensor, *outputs)
        require_writable("all_gather", *outputs)
        if len(outputs) != self.size():
            raise errors.ArgumentError(
                f"all_gather: the list has {len(outputs)} tensors, and there are {self.size()} ranks"
            )
        mine = outputs[self.rank()]
        if mine.numel() != tensor.numel() or any(t.dtype != tensor.dtype for t in outputs):
            raise errors.ArgumentError(
                f"all_gather: input has {tensor.numel()} elements of {tensor.dtype}, its place in the list "
                f"{mine.numel()}; types {sorted({str(t.dtype) for t in outputs})}: both must be the same"
            )

    def _gather_list(self, outputs: list[torch.Tensor], tensor: torch.Tensor, opts: Any) -> AnyWork:
        if any(t.numel() != tensor.numel() for t in outputs):
            return self._allgather_unequal(outputs, tensor, opts)
        flat = flat_view(outputs)
        finish = None
        if flat is None:
            flat = torch.empty(self.size() * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
            finish = functools.partial(scatter_into, outputs, flat.chunk(self.size()))
        return self._gather_flat(flat, sending(tensor), [tensor], outputs, finish, opts)

    def _gather_flat(
        self,
        recv: torch.Tensor,
        send: torch.Tensor,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        finish: Finish,
        opts: Any,
    ) -> McastWork:
        if misplaced(send, recv, self.rank()):
            send = send.clone()
        nbytes = send.nbytes
        return self._post(
            "all_gather",
            self.group.gather,
            lambda g, at: g.lib.allgather(g.live(), send.data_ptr(), recv.data_ptr(), nbytes, at),
            f"of {nbytes} bytes a rank",
            inputs,
            outputs,
            (send, recv),
            finish,
            opts,
        )

    def _allgather_unequal(self, outputs: list[torch.Tensor], tensor: torch.Tensor, opts: Any) -> AnyWork:
        """One broadcast a rank: every rank knows all sizes from its list."""
        send = sending(tensor)
        if any(overlap(send, memory) for memory, _ in map(receiving, outputs)):
            send = send.clone()
        write(outputs[self.rank()], send)
        works = [
            self._broadcast(send if root == self.rank() else output, root, opts)
            for root, output in enumerate(outputs)
        ]
        return JoinedWork(works, outputs)

    # ---- Broadcast, Barrier

    @collective
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> McastWork:
        """Broadcast a tensor from opts.rootRank to all."""
        return self._broadcast(only(tensors, "broadcast"), opts.rootRank, opts)

    def _broadcast(self, tensor: torch.Tensor, root: int, opts: Any) -> McastWork:
        require_dense(tensor)
        require_writable("broadcast", tensor)
        self._require_root("broadcast", root)
        if root == self.rank():
            buf, finish = sending(tensor), None
        else:
            buf, finish = receiving(tensor)
        nbytes = buf.nbytes
        return self._post(
            "broadcast",
            self.group.gather,
            lambda g, at: g.lib.broadcast(g.live(), buf.data_ptr(), nbytes, root, at),
            f"of {nbytes} bytes from rank {root}",
            [tensor],
            [tensor],
            (buf,),
            finish,
            opts,
        )

    @collective
    def barrier(self, opts: Any) -> McastWork:
        """Wait for all ranks."""
        return self._post(
            "barrier", self.group.gather, lambda g, _: g.lib.barrier(g.live()), "", [], [], (), None, opts
        )

    # ---- Reduce-Scatter

    @collective
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> AnyWork:  # noqa: A002
        """Reduce input (size*n elements) over ranks; each rank gets its n elements in output.

        Sums run in a fixed order, so the same inputs give the same bits, unless MCAST_SWITCH_MODE=fast.
        """
        return self._reduce_single(output, input, opts)

    def _reduce_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> AnyWork:  # noqa: A002
        return self._reduce_flat(output, sending(input), [input], self._check_reduce(output, input, opts), opts)

    def _check_reduce(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Reduction:  # noqa: A002
        require_dense(output, input)
        require_writable("reduce_scatter", output)
        if output.dtype != input.dtype:
            raise errors.ArgumentError(
                f"reduce_scatter: output is {output.dtype} and input {input.dtype}: they must be the same"
            )
        if input.numel() != output.numel() * self.size():
            raise errors.ArgumentError(
                f"reduce_scatter: input has {input.numel()} elements, which is not "
                f"{self.size()} (ranks) times the {output.numel()} of the output"
            )
        return reduction.find("reduce_scatter", output.dtype, opts.reduceOp)

    @collective
    def reduce_scatter(
        self, outputs: list[torch.Tensor], input_lists: list[list[torch.Tensor]], opts: Any
    ) -> AnyWork:
        """Reduce a list of size tensors over ranks; each rank gets the tensor of its number.

        Shapes may differ within the list.
        """
        output, inputs = only(outputs, "reduce_scatter"), only(input_lists, "reduce_scatter")
        require_dense(output, *inputs)
        require_writable("reduce_scatter", output)
        if len(inputs) != self.size():
            raise errors.ArgumentError(
                f"reduce_scatter: the list has {len(inputs)} tensors, and there are {self.size()} ranks"
            )
        mine = inputs[self.rank()]
        if mine.numel() != output.numel() or any(t.dtype != output.dtype for t in inputs):
            raise errors.ArgumentError(
                f"reduce_scatter: output has {output.numel()} elements of {output.dtype}, its place in the "
                f"list {mine.numel()}; types {sorted({str(t.dtype) for t in inputs})}: both must be the same"
            )
        known = reduction.find("reduce_scatter", output.dtype, opts.reduceOp)
        if any(t.numel() != output.numel() for t in inputs):
            return self._reduce_unequal(output, inputs, known, opts)
        flat = flat_view(inputs)
        if flat is None:
            with torch.no_grad():
                flat = torch.cat([t.reshape(-1) for t in inputs])
        return self._reduce_flat(output, flat, inputs, known, opts)

    def _reduce_unequal(
        self, output: torch.Tensor, inputs: list[torch.Tensor], known: Reduction, opts: Any
    ) -> AnyWork:
        """One Reduce a rank: every rank knows all sizes from its list."""
        memory, finish = receiving(output)
        sends = [sending(tensor) for tensor in inputs]
        # The result may be written while contributions to others are still read.
        for root, send in enumerate(sends):
            in_place = root == self.rank() and send.data_ptr() == memory.data_ptr()
            if shares(send, output) and not in_place:
                sends[root] = send.clone()
        works = []
        for root, (send, tensor) in enumerate(zip(sends, inputs, strict=True)):
            mine = root == self.rank()
            to = (memory, [tensor], [output]) if mine else (send, [tensor], [])
            works.append(self._reduce_to(root, send, *to, known, finish if mine else None, opts))
        return JoinedWork(works, [output])

    def _reduce_flat(
        self,
        output: torch.Tensor,
        send: torch.Tensor,
        inputs: list[torch.Tensor],
        known: Reduction,
        opts: Any,
    ) -> McastWork:
        recv, finish = receiving(output)
        if misplaced(recv, send, self.rank()):
            recv = torch.empty_like(recv)
            finish = functools.partial(write, output, recv)
        return self._reduce_into(recv, send, inputs, [output], known, finish, opts)

    def _reduce_into(
        self,
        recv: torch.Tensor,
        send: torch.Tensor,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        known: Reduction,
        finish: Finish,
        opts: Any,
    ) -> McastWork:
        count = reduction.count(recv)
        return self._post(
            "reduce_scatter",
            self.group.reduce,
            lambda g, at: g.lib.reduce_scatter(g.live(), send.data_ptr(), recv.data_ptr(), count, *known, at),
            f"of {recv.numel()} elements ({recv.dtype}) a rank",
            inputs,
            outputs,
            (send, recv),
            finish,
            opts,
        )

    # ---- Reduce

    @collective
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> McastWork:
        """Reduce a tensor over ranks, in place on opts.rootRank; the others' tensors stay as they are."""
        tensor, root = only(tensors, "reduce"), opts.rootRank
        require_dense(tensor)
        require_writable("reduce", tensor)
        self._require_root("reduce", root)
        known = reduction.find("reduce", tensor.dtype, opts.reduceOp)
        memory, finish = sending(tensor), None
        if memory is not tensor and root == self.rank():
            finish = functools.partial(write, tensor, memory)
        return self._reduce_to(root, memory, memory, tensors, tensors, known, finish, opts)

    def _reduce_to(
        self,
        root: int,
        send: torch.Tensor,
        recv: torch.Tensor,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        known: Reduction,
        finish: Finish,
        opts: Any,
    ) -> McastWork:
        count = reduction.count(send)
        return self._post(
            "reduce",
            self.group.reduce,
            lambda g, at: g.lib.reduce(g.live(), send.data_ptr(), recv.data_ptr(), count, *known, root, at),
            f"of {send.numel()} elements ({send.dtype}) to rank {root}",
            inputs,
            outputs,
            (send, recv),
            finish,
            opts,
        )

    # ---- Allreduce

    @collective
    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> AnyWork:
        """Reduce a tensor over ranks, in place; all ranks get the same bits. Of sparse ones, the sum."""
        tensor = only(tensors, "all_reduce")
        self._check_allreduce([tensor], opts)
        return self._allreduce(tensor, opts)

    allreduce_sparse = allreduce  # its name for sparse tensors on a GPU

    def _check_allreduce(self, tensors: list[torch.Tensor], opts: Any) -> None:
        dense = [t for t in tensors if t.layout != torch.sparse_coo]
        require_dense(*dense)
        require_writable("all_reduce", *dense)
        for dtype in dict.fromkeys(t.dtype for t in dense):
            reduction.find("all_reduce", dtype, opts.reduceOp)
        if len(dense) < len(tensors):
            sparse.require_sum(opts.reduceOp)

    def _allreduce(self, tensor: torch.Tensor, opts: Any) -> AnyWork:
        if tensor.layout == torch.sparse_coo:
            return self._allreduce_sparse(tensor, opts)
        memory = sending(tensor)
        finish = None if memory is tensor else functools.partial(write, tensor, memory)
        return self._allreduce_flat(memory, [tensor], finish, opts)

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> AnyWork:
        """Gather what each rank has, and add it. A GPU's tensors go through the host's memory.

        Ranks need the sizes of each other first, so the call waits until all have made it.
        """
        mine = sparse.on_host(tensor)
        record = sparse.record(mine)
        records = record.new_empty(self.size(), record.numel())
        self._gather_flat(records, record, [record], [records], None, opts).wait()
        indices, values = sparse.places(mine, records)
        works = [
            self._gather_list(indices, mine.indices(), opts),
            self._gather_list(values, mine.values(), opts),
        ]
        return JoinedWork(works, [tensor], functools.partial(sparse.add_up, tensor, indices, values))

    def _allreduce_flat(
        self, memory: torch.Tensor, tensors: list[torch.Tensor], finish: Finish, opts: Any
    ) -> McastWork:
        known = reduction.find("all_reduce", memory.dtype, opts.reduceOp)
        count = reduction.count(memory)
        return self._post(
            "all_reduce",
            self.group.both,
            lambda g, at: g.lib.allreduce(g.live(), memory.data_ptr(), memory.data_ptr(), count, *known, at),
            f"of {memory.numel()} elements ({memory.dtype})",
            tensors,
            tensors,
            (memory,),
            finish,
            opts,
        )

    # ---- what all operations share

    def _require_root(self, operation: str, root: int) -> None:
        if not 0 <= root < self.size():
            raise errors.ArgumentError(f"{operation}: root is {root}, it must be in 0..{self.size() - 1}")

    # Names of torch before the summer of 2026.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
