"""The torch.distributed backend "mcast".

Allgather, Broadcast, Reduce-Scatter, Allreduce and Barrier are ours; everything else, and
reductions that the library does not know, goes to an embedded gloo group.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ErrorType, PrefixStore, ProcessGroupGloo, Store

from . import connections, device, errors, profile, reduction, secret, shared
from ._lib import StreamStruct
from .capabilities import collective
from .counters import Stats
from .delegate import GlooBacked
from .device import DeviceWork
from .group import Group, Info, Lane
from .reduction import Reduction
from .rendezvous import exchange
from .tensor import (
    flat_view,
    only,
    require_cpu,
    require_dense,
    require_pairs,
    require_reducible,
    scatter_into,
    staging,
)
from .work import AnyWork, DelegatedWork, JoinedWork, McastWork, forward_holders


def gloo_at(address: str, store: Store, rank: int, size: int, timeout: timedelta) -> ProcessGroupGloo:
    """Return a gloo group that reaches the others as ours does, unless GLOO_SOCKET_IFNAME says otherwise.

    By itself gloo goes by the host's name, which may stand for loopback or for another network.
    """
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timeout
    names = os.environ.get("GLOO_SOCKET_IFNAME")
    if names:
        options._devices = [ProcessGroupGloo.create_device(interface=name) for name in names.split(",")]
    else:
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    options._threads = 2 * len(options._devices)  # as torch does
    return ProcessGroupGloo(store, rank, size, options)


class MulticastBackend(GlooBacked):
    """One rank of a process group over the multicast library.

    Tensors must be dense, on the CPU or on a CUDA device (see device.py). Tensors that are not contiguous
    go through a staging copy.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        options: Backend.Options | None = None,
    ) -> None:
        """Meet the other ranks in the store and connect to them.

        Args:
            store: a store of this group alone.
            rank: rank in the group.
            size: ranks in the group.
            timeout: of the rendezvous, and of a wait that is given none.
            options: settings that override the environment.
        """
        super().__init__(rank, size, timeout, options)
        forward_holders()
        self._store = store
        blobs: list[bytes] = []

        def meet(blob: bytes) -> list[bytes]:
            blobs[:] = exchange(store, rank, size, blob, timeout)
            return blobs

        settings = secret.settings(self.options, store)
        self.group = Group(rank, size, settings, meet, int(timeout.total_seconds() * 1000))
        # The store may hold what gloo wrote for processes that are dead, since torchrun keeps one over its
        # restarts. Blobs have random bits and are the same on all ranks, so they name this meeting alone.
        meeting = hashlib.sha256(b"".join(blobs)).hexdigest()[:16]
        self._gloo, gloo = connections.made_by(
            lambda: gloo_at(self.info().address, PrefixStore(f"gloo/{meeting}", store), rank, size, timeout),
            size - 1,
            store,
        )
        self.group.disconnect = gloo.end
        self.group.broken = device.failed
        _alive.append(self)

    def info(self) -> Info:
        """Return what the group runs on."""
        return self.group.info()

    def stats(self) -> Stats:
        """Return the counters of the group."""
        return self.group.stats()

    def shutdown(self) -> None:
        """Leave the group."""
        self._forgotten()
        self.group.close()
        self._recorder.close()

    def abort(self) -> None:
        """End the group on all ranks at once, without waiting for them."""
        self._forgotten()
        self.group.abort("its program called abort()")
        self._recorder.close()

    def _forgotten(self) -> None:
        if self in _alive:
            _alive.remove(self)

    def get_error(self) -> ErrorType:
        """Say whether an operation of the group has failed."""
        return ErrorType.REMOTE_ERROR if self.group.failed else ErrorType.SUCCESS

    def split(self, store: Store, ranks: list[int], opts: Any) -> MulticastBackend:
        """Make a group of some ranks of this one."""
        if self.rank() not in ranks:  # torch 2.15 crashes where a backend in Python returns None
            raise errors.UnsupportedError(
                f"split_group: rank {self.rank()} is in none of split_ranks, which must name every rank "
                "of the group: give the others a list of their own, or use new_group"
            )
        return self._part(store, ranks, opts)

    def shrink(
        self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None
    ) -> MulticastBackend:
        """Make a group of the other ranks, which alone call it. This group ends on all ranks."""
        self.abort()
        ranks = [r for r in range(self.size()) if r not in ranks_to_exclude]
        return self._part(PrefixStore("shrunk", self._store), ranks, opts_override or self.options)

    def _part(self, store: Store, ranks: list[int], opts: Backend.Options) -> MulticastBackend:
        return MulticastBackend(store.clone(), ranks.index(self.rank()), len(ranks), opts._timeout, opts)

    # ---- Allgather

    @collective
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> McastWork:  # noqa: A002
        """Gather each rank's input (n elements) into output (size*n elements, in rank order)."""
        return self._gather_single(output, input, opts)

    def reserve(self, numel: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Return memory that the ranks of a host share, for the next all_gather_single; see shared.py."""
        return shared.reserve(self.group, numel, dtype, self._timeout)

    def _gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> McastWork:  # noqa: A002
        require_dense(output, input)
        if output.dtype != input.dtype:
            raise errors.ArgumentError(
                f"all_gather: output is {output.dtype} and input {input.dtype}: they must be the same"
            )
        if output.numel() != input.numel() * self.size():
            raise errors.ArgumentError(
                f"all_gather: output has {output.numel()} elements, which is not "
                f"{self.size()} (ranks) times the {input.numel()} of the input"
            )
        recv, finish = staging(output)
        return self._gather_flat(recv, input, [output], finish, opts)

    @collective
    def allgather(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> AnyWork:
        """Gather each rank's input into the list; shapes may differ from rank to rank."""
        return self._gather_list(output_lists, inputs, opts)

    def _gather_list(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> AnyWork:
        outputs, tensor = only(output_lists, "all_gather"), only(inputs, "all_gather")
        require_dense(tensor, *outputs)
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
        if any(t.numel() != tensor.numel() for t in outputs):
            return self._allgather_unequal(outputs, tensor, opts)
        flat = flat_view(outputs)
        finish = None
        if flat is None:
            flat = torch.empty(self.size() * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
            finish = scatter_into(outputs, flat)
        return self._gather_flat(flat, tensor, outputs, finish, opts)

    def _gather_flat(
        self,
        recv: torch.Tensor,
        tensor: torch.Tensor,
        outputs: list[torch.Tensor],
        finish: Callable[[], None] | None,
        opts: Any,
    ) -> McastWork:
        send = tensor.contiguous()
        nbytes = send.nbytes
        return self._post(
            "all_gather",
            self.group.gather,
            lambda g, at: g.lib.allgather(g.live(), send.data_ptr(), recv.data_ptr(), nbytes, at),
            f"of {nbytes} bytes a rank",
            [tensor],
            outputs,
            (send, recv),
            finish,
            opts,
        )

    def _allgather_unequal(self, outputs: list[torch.Tensor], tensor: torch.Tensor, opts: Any) -> AnyWork:
        """One broadcast a rank: every rank knows all sizes from its list."""
        with torch.no_grad():
            outputs[self.rank()].copy_(tensor.view_as(outputs[self.rank()]))
        return JoinedWork([self._broadcast(t, root, opts) for root, t in enumerate(outputs)])

    @collective
    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do all_gather_single for each pair, as one work."""
        require_pairs(outputs, inputs, "all_gather_coalesced")
        return JoinedWork([self._gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    @collective
    def allgather_coalesced(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> AnyWork:
        """Do allgather for each input, as one work; output_lists[rank][i] is rank's i-th tensor."""
        if any(len(outputs) != len(inputs) for outputs in output_lists):
            raise errors.ArgumentError(
                "all_gather_coalesced: every rank's list must be as long as the inputs"
            )
        return JoinedWork(
            [
                self._gather_list([[outputs[i] for outputs in output_lists]], [tensor], opts)
                for i, tensor in enumerate(inputs)
            ]
        )

    # ---- Broadcast, Barrier

    @collective
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> McastWork:
        """Broadcast a tensor from opts.rootRank to all."""
        return self._broadcast(only(tensors, "broadcast"), opts.rootRank, opts)

    def _broadcast(self, tensor: torch.Tensor, root: int, opts: Any) -> McastWork:
        require_dense(tensor)
        if not 0 <= root < self.size():
            raise errors.ArgumentError(f"broadcast: root is {root}, it must be in 0..{self.size() - 1}")
        if root == self.rank():
            buf, finish = tensor.contiguous(), None
        else:
            buf, finish = staging(tensor)
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
        require_dense(output, input)
        if output.dtype != input.dtype:
            raise errors.ArgumentError(
                f"reduce_scatter: output is {output.dtype} and input {input.dtype}: they must be the same"
            )
        if input.numel() != output.numel() * self.size():
            raise errors.ArgumentError(
                f"reduce_scatter: input has {input.numel()} elements, which is not "
                f"{self.size()} (ranks) times the {output.numel()} of the output"
            )
        known = reduction.find(output.dtype, opts.reduceOp)
        if known is None:
            require_cpu("this reduce_scatter", output)
            require_reducible("reduce_scatter", (output, opts))
            method = getattr(self._gloo, "reduce_scatter_single", None) or self._gloo._reduce_scatter_base
            return DelegatedWork(method(output, input, opts))
        return self._reduce_flat(output, input.contiguous(), [input], known, opts)

    @collective
    def reduce_scatter(
        self, outputs: list[torch.Tensor], input_lists: list[list[torch.Tensor]], opts: Any
    ) -> AnyWork:
        """Reduce a list of size tensors over ranks; each rank gets the tensor of its number."""
        output, inputs = only(outputs, "reduce_scatter"), only(input_lists, "reduce_scatter")
        require_dense(output, *inputs)
        known = reduction.find(output.dtype, opts.reduceOp)
        equal = all(t.numel() == output.numel() and t.dtype == output.dtype for t in inputs)
        if len(inputs) != self.size():
            raise errors.ArgumentError(
                f"reduce_scatter: the list has {len(inputs)} tensors, and there are {self.size()} ranks"
            )
        if known is None or not equal:
            require_cpu("this reduce_scatter", output)
            require_reducible("reduce_scatter", (output, opts))
            return DelegatedWork(self._gloo.reduce_scatter(outputs, input_lists, opts))
        flat = flat_view(inputs)
        if flat is None:
            flat = torch.cat([t.reshape(-1) for t in inputs])
        return self._reduce_flat(output, flat, inputs, known, opts)

    @collective
    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do reduce_scatter_single for each pair, as one work."""
        require_pairs(outputs, inputs, "reduce_scatter_coalesced")
        pairs = zip(outputs, inputs, strict=True)
        return JoinedWork([self._reduce_single(o, i, opts) for o, i in pairs])

    def _reduce_flat(
        self,
        output: torch.Tensor,
        send: torch.Tensor,
        inputs: list[torch.Tensor],
        known: Reduction,
        opts: Any,
    ) -> McastWork:
        recv, finish = staging(output)
        count = output.numel()
        return self._post(
            "reduce_scatter",
            self.group.reduce,
            lambda g, at: g.lib.reduce_scatter(g.live(), send.data_ptr(), recv.data_ptr(), count, *known, at),
            f"of {count} elements ({output.dtype}) a rank",
            inputs,
            [output],
            (send, recv),
            finish,
            opts,
        )

    # ---- Allreduce

    @collective
    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> AnyWork:
        """Reduce a tensor over ranks, in place; all ranks get the same bits. Sparse ones go to gloo."""
        return self._allreduce(only(tensors, "all_reduce"), opts)

    @collective
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> AnyWork:
        """Do allreduce for each tensor, as one work."""
        return JoinedWork([self._allreduce(tensor, opts) for tensor in tensors])

    def _allreduce(self, tensor: torch.Tensor, opts: Any) -> AnyWork:
        if tensor.layout == torch.sparse_coo and tensor.device.type == "cpu":
            return DelegatedWork(self._gloo.allreduce([tensor], opts))
        require_dense(tensor)
        known = reduction.find(tensor.dtype, opts.reduceOp)
        if known is None:
            require_cpu("this all_reduce", tensor)
            require_reducible("allreduce", (tensor, opts))
            return DelegatedWork(self._gloo.allreduce([tensor], opts))
        memory = tensor.contiguous()
        count = memory.numel()

        def finish() -> None:
            tensor.copy_(memory)

        return self._post(
            "all_reduce",
            self.group.both,
            lambda g, at: g.lib.allreduce(g.live(), memory.data_ptr(), memory.data_ptr(), count, *known, at),
            f"of {count} elements ({tensor.dtype})",
            [tensor],
            [tensor],
            (memory,),
            None if memory.data_ptr() == tensor.data_ptr() else finish,
            opts,
        )

    # ---- what all operations share

    def _post(
        self,
        operation: str,
        lane: Lane,
        start: Callable[[Group, StreamStruct | None], int],
        details: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        keep: tuple[torch.Tensor, ...],
        finish: Callable[[], None] | None,
        opts: Any,
    ) -> McastWork:
        group, number, recorder = self.group, self._sequence, self._recorder
        timeout = opts.timeout if opts is not None and opts.timeout > timedelta(0) else self._timeout
        name = f"{operation} {details}".rstrip()
        at = device.place(keep[0], timeout) if keep else None
        event = profile.begin(operation, self.group_name, lane.name, number, self.size(), inputs, outputs)

        def track(handle: int) -> McastWork:
            work = (McastWork if at is None else DeviceWork)(
                group, lane, handle, name, outputs, keep, finish, timeout, number, recorder, event
            )
            if isinstance(work, DeviceWork):
                work.temporaries = device.made_here(keep, [*inputs, *outputs])
                work.follow_up(keep[0].device)
            return work

        try:
            return lane.post(lambda: start(group, at), track)
        except BaseException:
            profile.end(event)
            raise

    # Names of torch before the summer of 2026.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


# torch holds backends in C++ alone and would lose their Python half.
_alive: list[MulticastBackend] = []


def alive() -> list[MulticastBackend]:
    """Return the backends of this process that have not been shut down."""
    return list(_alive)
