"""The torch.distributed backend "mcast".

Allgather, Broadcast, Reduce-Scatter and Barrier are ours; everything else, and
reductions that the library does not know, goes to an embedded gloo group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroupGloo, ReduceOp, Store

from . import _lib, errors
from .group import Group, Info, Lane, Stats
from .work import AnyWork, DelegatedWork, JoinedWork, McastWork, forward_holders

NAME = "mcast"

_DTYPES: dict[torch.dtype, int] = {
    torch.int8: _lib.I8,
    torch.uint8: _lib.U8,
    torch.int16: _lib.I16,
    torch.uint16: _lib.U16,
    torch.int32: _lib.I32,
    torch.uint32: _lib.U32,
    torch.int64: _lib.I64,
    torch.uint64: _lib.U64,
    torch.float16: _lib.F16,
    torch.bfloat16: _lib.BF16,
    torch.float32: _lib.F32,
    torch.float64: _lib.F64,
}
_OPS: dict[Any, int] = {
    ReduceOp.SUM: _lib.SUM,
    ReduceOp.PRODUCT: _lib.PROD,
    ReduceOp.MAX: _lib.MAX,
    ReduceOp.MIN: _lib.MIN,
    ReduceOp.AVG: _lib.AVG,
    ReduceOp.PREMUL_SUM: _lib.PREMUL_SUM,
}


class Options(Backend.Options):
    """MCAST_* settings of one group, for `pg_options` of init_process_group and new_group.

    They override the environment: `Options(fabric="shm", timeout="5s")` is
    MCAST_FABRIC=shm and MCAST_TIMEOUT=5s; docs/ENVIRONMENT.md lists the names.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(NAME)
        self.settings = {f"MCAST_{name.upper()}": str(value) for name, value in settings.items()}

    def lines(self) -> str:
        """Return the settings as the library takes them."""
        return "\n".join(f"{name}={value}" for name, value in self.settings.items())


class MulticastBackend(Backend):
    """One rank of a process group over the multicast library.

    Tensors must be dense and on the CPU. Tensors that are not contiguous go
    through a staging copy.
    """

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, options: Options | None = None
    ) -> None:
        """Meet the other ranks in the store and connect to them.

        Args:
            store: a store of this group alone.
            rank: rank in the group.
            size: ranks in the group.
            timeout: of the rendezvous, and of a wait that is given none.
            options: settings that override the environment.
        """
        super().__init__(rank, size)
        forward_holders()
        self._timeout = timeout
        self.group = Group(
            rank,
            size,
            options.lines() if options else "",
            lambda blob: exchange(store, rank, size, blob, timeout),
            int(timeout.total_seconds() * 1000),
        )
        self._gloo: Any = ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout=timeout)
        _alive.append(self)

    def getBackendName(self) -> str:
        """Return "mcast"."""
        return NAME

    def info(self) -> Info:
        """Return what the group runs on."""
        return self.group.info()

    def stats(self) -> Stats:
        """Return the counters of the group."""
        return self.group.stats()

    def shutdown(self) -> None:
        """Leave the group."""
        if self in _alive:
            _alive.remove(self)
        self.group.close()

    abort = shutdown

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of waits that are given none."""
        self._timeout = timeout
        self._gloo._set_default_timeout(timeout)

    _set_default_timeout = set_timeout

    # ---- Allgather

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> McastWork:  # noqa: A002
        """Gather each rank's input (n elements) into output (size*n elements, in rank order)."""
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
        recv, finish = _staging(output)
        return self._gather_flat(recv, input.contiguous(), [output], finish, opts)

    def allgather(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> AnyWork:
        """Gather each rank's input into the list; shapes may differ from rank to rank."""
        outputs, tensor = _only(output_lists, "all_gather"), _only(inputs, "all_gather")
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
        flat = _flat_view(outputs)
        finish = None
        if flat is None:
            flat = torch.empty(self.size() * tensor.numel(), dtype=tensor.dtype)
            finish = _scatter_into(outputs, flat)
        return self._gather_flat(flat, tensor.contiguous(), outputs, finish, opts)

    def _gather_flat(
        self,
        recv: torch.Tensor,
        send: torch.Tensor,
        outputs: list[torch.Tensor],
        finish: Callable[[], None] | None,
        opts: Any,
    ) -> McastWork:
        nbytes = send.nbytes
        return self._post(
            self.group.gather,
            lambda g: g.lib.allgather(g.live(), send.data_ptr(), recv.data_ptr(), nbytes),
            f"all_gather of {nbytes} bytes a rank",
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

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do all_gather_single for each pair, as one work."""
        _require_pairs(outputs, inputs, "all_gather_coalesced")
        return JoinedWork([self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

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
                self.allgather([[outputs[i] for outputs in output_lists]], [tensor], opts)
                for i, tensor in enumerate(inputs)
            ]
        )

    # ---- Broadcast, Barrier

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> McastWork:
        """Broadcast a tensor from opts.rootRank to all."""
        return self._broadcast(_only(tensors, "broadcast"), opts.rootRank, opts)

    def _broadcast(self, tensor: torch.Tensor, root: int, opts: Any) -> McastWork:
        require_dense(tensor)
        if not 0 <= root < self.size():
            raise errors.ArgumentError(f"broadcast: root is {root}, it must be in 0..{self.size() - 1}")
        if root == self.rank():
            buf, finish = tensor.contiguous(), None
        else:
            buf, finish = _staging(tensor)
        nbytes = buf.nbytes
        return self._post(
            self.group.gather,
            lambda g: g.lib.broadcast(g.live(), buf.data_ptr(), nbytes, root),
            f"broadcast of {nbytes} bytes from rank {root}",
            [tensor],
            (buf,),
            finish,
            opts,
        )

    def barrier(self, opts: Any) -> McastWork:
        """Wait for all ranks."""
        return self._post(self.group.gather, lambda g: g.lib.barrier(g.live()), "barrier", [], (), None, opts)

    # ---- Reduce-Scatter

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> AnyWork:  # noqa: A002
        """Reduce input (size*n elements) over ranks; each rank gets its n elements in output.

        Sums run in rank order: the same inputs give the same bits.
        """
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
        known = self._reduction(output.dtype, opts.reduceOp)
        if known is None:
            _require_mean("reduce_scatter", (output, opts))
            method = getattr(self._gloo, "reduce_scatter_single", None) or self._gloo._reduce_scatter_base
            return DelegatedWork(method(output, input, opts))
        return self._reduce_flat(output, input.contiguous(), known, opts)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], input_lists: list[list[torch.Tensor]], opts: Any
    ) -> AnyWork:
        """Reduce a list of size tensors over ranks; each rank gets the tensor of its number."""
        output, inputs = _only(outputs, "reduce_scatter"), _only(input_lists, "reduce_scatter")
        require_dense(output, *inputs)
        known = self._reduction(output.dtype, opts.reduceOp)
        equal = all(t.numel() == output.numel() and t.dtype == output.dtype for t in inputs)
        if len(inputs) != self.size():
            raise errors.ArgumentError(
                f"reduce_scatter: the list has {len(inputs)} tensors, and there are {self.size()} ranks"
            )
        if known is None or not equal:
            _require_mean("reduce_scatter", (output, opts))
            return DelegatedWork(self._gloo.reduce_scatter(outputs, input_lists, opts))
        flat = _flat_view(inputs)
        if flat is None:
            flat = torch.cat([t.reshape(-1) for t in inputs])
        return self._reduce_flat(output, flat, known, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do reduce_scatter_single for each pair, as one work."""
        _require_pairs(outputs, inputs, "reduce_scatter_coalesced")
        pairs = zip(outputs, inputs, strict=True)
        return JoinedWork([self.reduce_scatter_single(o, i, opts) for o, i in pairs])

    def _reduction(self, dtype: torch.dtype, op: Any) -> tuple[int, int, float] | None:
        """Return the library's type, operation and factor, or None if it has none."""
        code, kind = _DTYPES.get(dtype), _OPS.get(getattr(op, "op", op))
        if code is None or kind is None:
            return None
        factor = float(op.factor) if kind == _lib.PREMUL_SUM else 1.0
        return code, kind, factor

    def _reduce_flat(
        self, output: torch.Tensor, send: torch.Tensor, known: tuple[int, int, float], opts: Any
    ) -> McastWork:
        recv, finish = _staging(output)
        count = output.numel()
        dtype, op, factor = known
        return self._post(
            self.group.reduce,
            lambda g: g.lib.reduce_scatter(
                g.live(), send.data_ptr(), recv.data_ptr(), count, dtype, op, factor
            ),
            f"reduce_scatter of {count} elements ({output.dtype}) a rank",
            [output],
            (send, recv),
            finish,
            opts,
        )

    # ---- what all operations share

    def _post(
        self,
        lane: Lane,
        start: Callable[[Group], int],
        name: str,
        outputs: list[torch.Tensor],
        keep: tuple[torch.Tensor, ...],
        finish: Callable[[], None] | None,
        opts: Any,
    ) -> McastWork:
        group = self.group
        timeout = opts.timeout if opts is not None and opts.timeout > timedelta(0) else self._timeout
        return lane.post(
            lambda: start(group),
            lambda handle: McastWork(group, lane, handle, name, outputs, keep, finish, timeout),
        )

    # Names of torch before the summer of 2026.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _delegate(name: str) -> None:
    """Give the backend gloo's operation of this name, where this torch has it."""
    if not hasattr(ProcessGroupGloo, name):
        return

    def method(self: MulticastBackend, *args: Any) -> DelegatedWork:
        require_dense(*_tensors_in(args))
        _require_mean(name, args)
        return DelegatedWork(getattr(self._gloo, name)(*args))

    method.__name__ = name
    method.__doc__ = f"Do {name} over gloo."
    setattr(MulticastBackend, name, method)


for _name in (
    "allreduce", "allreduce_coalesced", "reduce", "gather", "gather_single", "gather_into_tensor", "scatter",
    "alltoall", "alltoall_base", "all_to_all_single", "send", "recv", "recv_anysource",
):  # fmt: skip
    _delegate(_name)

# torch holds backends in C++ alone and would lose their Python half.
_alive: list[MulticastBackend] = []


def exchange(store: Store, rank: int, size: int, blob: bytes, timeout: timedelta) -> list[bytes]:
    """Give every rank the blobs of all, in rank order, through torch's store.

    The store may outlive a group (torchrun keeps one over many
    init_process_group), so keys carry how often this rank has come here.
    """
    turn = store.add(f"mcast/turn/{rank}", 1)
    store.set(f"mcast/{turn}/{rank}", blob)  # type: ignore[arg-type]  # torch takes bytes, too
    keys = [f"mcast/{turn}/{r}" for r in range(size)]
    deadline = time.monotonic() + timeout.total_seconds()
    for key in keys:
        left = max(deadline - time.monotonic(), 0.001)
        try:
            store.wait([key], timedelta(seconds=left))
        except RuntimeError as e:
            missing = [r for r, k in enumerate(keys) if not store.check([k])]
            raise errors.WaitTimeoutError(
                f"{len(missing)} of {size} ranks have not come to the rendezvous after "
                f"{timeout.total_seconds():g} s: {missing[:16]}"
            ) from e
    return [bytes(value) for value in store.multi_get(keys)]


def create(opts: Any, options: object | None) -> MulticastBackend:
    """Make the backend of a new process group; torch calls this."""
    if options is not None and not isinstance(options, Options):
        raise errors.ArgumentError(
            f"pg_options is a {type(options).__name__}: the mcast backend takes torch_mcast.Options"
        )
    return MulticastBackend(opts.store, opts.group_rank, opts.group_size, opts.timeout, options)


def register() -> None:
    """Make the name "mcast" known to torch.distributed. A second call does nothing."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    # "cuda" is registered so that its tensors get our message and not "no backend for device".
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])


def backend_of(group: dist.ProcessGroup | None = None) -> MulticastBackend | None:
    """Return the mcast backend of a process group (None: the default group), or None."""
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise errors.ArgumentError("there is no default process group: call init_process_group first")
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return None
    return backend if isinstance(backend, MulticastBackend) else None


def stats(group: dist.ProcessGroup | None = None) -> Stats:
    """Return the counters of an mcast group (None: the default group)."""
    return _mcast_backend(group).stats()


def info(group: dist.ProcessGroup | None = None) -> Info:
    """Return what an mcast group (None: the default group) runs on."""
    return _mcast_backend(group).info()


def _mcast_backend(group: dist.ProcessGroup | None) -> MulticastBackend:
    backend = backend_of(group)
    if backend is None:
        raise errors.ArgumentError(f'the group\'s backend is not "mcast" but "{dist.get_backend(group)}"')
    return backend


def _only(items: Sequence[Any], operation: str) -> Any:
    if len(items) != 1:
        raise errors.ArgumentError(f"{operation}: {len(items)} tensors a call, one is allowed")
    return items[0]


def _require_pairs(outputs: Sequence[Any], inputs: Sequence[Any], operation: str) -> None:
    if len(outputs) != len(inputs):
        raise errors.ArgumentError(f"{operation}: {len(outputs)} outputs for {len(inputs)} inputs")


def require_dense(*tensors: torch.Tensor) -> None:
    """Raise ArgumentError unless all tensors are dense and on the CPU."""
    for tensor in tensors:
        if tensor.device.type == "cuda":
            raise errors.ArgumentError("CUDA tensors are not supported yet; move to CPU or use nccl")
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise errors.ArgumentError(
                f"a {tensor.layout} tensor on {tensor.device}: only dense tensors on the CPU are supported"
            )


def _require_mean(operation: str, args: Sequence[Any]) -> None:
    """Raise ArgumentError where gloo would sum, fail to divide and leave the sum in the tensors."""
    op = getattr(args[-1], "reduceOp", None)
    if getattr(op, "op", op) != ReduceOp.AVG:
        return
    for tensor in _tensors_in(args):
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise errors.ArgumentError(
                f"{operation}: AVG of {tensor.dtype}: only floating-point and complex tensors have a mean "
                "here; use SUM and divide"
            )


def _tensors_in(args: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found.extend(_tensors_in(arg))
    return found


def _staging(output: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None] | None]:
    """Return contiguous memory to receive into, and the copy to do afterwards, if any."""
    if output.is_contiguous():
        return output, None
    staging = torch.empty_like(output, memory_format=torch.contiguous_format)

    def finish() -> None:
        output.copy_(staging)

    return staging, finish


def _flat_view(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    """Return one tensor over tensors of equal size that lie one after another, or None."""
    first, step = tensors[0], tensors[0].nbytes
    for i, t in enumerate(tensors):
        if (
            not t.is_contiguous()
            or t.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
            or t.data_ptr() != first.data_ptr() + i * step
        ):
            return None
    return first.as_strided((len(tensors) * first.numel(),), (1,), first.storage_offset())


def _scatter_into(outputs: list[torch.Tensor], flat: torch.Tensor) -> Callable[[], None]:
    def finish() -> None:
        for output, part in zip(outputs, flat.chunk(len(outputs)), strict=True):
            output.copy_(part.view_as(output))

    return finish
