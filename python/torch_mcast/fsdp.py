"""FSDP2 over a group in which Allgather and Reduce-Scatter do not wait behind each other.

FSDP2 as it comes issues one collective at a time on a CPU. enable() changes
three things, and no gradient by a bit:

- Allgathers are asynchronous, and each module prefetches those of the next
  ones (lookahead.py);
- Reduce-Scatters are left in flight while the backward goes on (deferred),
  where FSDP2 itself does not read their output; what else reads it waits (in_flight.py);
- the end of the backward waits for them, so that clipping, the optimizer and
  everything else after loss.backward() finds ordinary gradients.

On a GPU FSDP2 has streams for that: one that copies in, one for Allgathers, one
for Reduce-Scatters. There enable() leaves it at that: each collective is waited
for on the stream that FSDP2 calls it on, which does not block the host, and
FSDP2's events say when memory is free again. Over NCCL it takes two
communicators as well: see nccl.py.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.distributed import Work
from torch.distributed.fsdp import FSDPModule

from . import nccl
from .explain import Explanation, Setup, Shards, explain
from .in_flight import Reduction
from .interference import Collective, Meter
from .lookahead import Lookahead, take_back
from .nccl import Groups
from .options import NAME
from .param_groups import in_backward, instead, named_groups
from .registry import backend_of
from .timeline import Timeline

Defer = Literal["auto"] | bool

_NEEDED = ("set_custom_all_gather", "_get_fsdp_state")  # torch 2.9 has both
_NEEDED_OF_GROUPS = (
    "unshard",
    "pre_forward",
    "post_backward",
    "_backward_prefetch",
    "_prefetch_unshard",
    "_all_gather_comm",
    "_reduce_scatter_comm",
)
_NO_TIMEOUT = timedelta(0)

_log = logging.getLogger(__name__)


class Handle:
    """What enable() returns.

    Attributes:
        reasons: why the Reduce-Scatter of a module had to block at least once, the latest reason, by the
            module's name ("" is the root, "norm, head" are two of one group). Of a module with several
            groups each has the name of what holds its parameters, such as "block.experts".
        timeline: records collectives and waits between start() and stop().
        deferred: Reduce-Scatters left in flight so far: on a GPU all, for which a stream waits.
        blocked: Reduce-Scatters that the host has waited for at once so far.
        groups: the groups that Allgathers and Reduce-Scatters go over, or None: FSDP's own. Another
            model's enable(group=...) may share them.
        interference: says what compute and communication cost each other, see Meter; print it.
        why_serial: why an Allgather and a Reduce-Scatter do not run side by side over NCCL, or "".
    """

    def __init__(self, model: nn.Module, defer: Defer, groups: Groups | None, why_serial: str = "") -> None:
        self.reasons: dict[str, str] = {}
        self.timeline = Timeline()
        self.deferred = 0
        self.blocked = 0
        self.groups = groups
        self.why_serial = why_serial
        self._defer = defer
        self._pending: list[Reduction] = []
        self._collnet: nccl.Communicator | None = None  # Allgathers alone go over FSDP's own where that is faster
        self._setup: Callable[[], Setup]  # what explain() needs to know of the model
        self._drains_after = -1  # the backward (graph task) that will call drain() at its end
        self.interference = Meter(model, self.timeline)

    def __repr__(self) -> str:
        """Return what was deferred, and why the rest was not."""
        serial = f", why_serial={self.why_serial!r}" if self.why_serial else ""
        said = f"Handle(deferred={self.deferred}, blocked={self.blocked}, reasons={self.reasons}{serial})"
        return f"{said}\n{self.interference}" if self.interference.steps else said

    def drain(self) -> None:
        """Wait for all Reduce-Scatters left in flight. The end of each backward does this."""
        pending, self._pending = self._pending, []
        self._drains_after = -1
        failure: Exception | None = None
        for reduction in pending:
            try:
                reduction.wait()
            except Exception as e:
                failure = failure or e
        if failure is not None:
            raise failure

    def explain(self) -> Explanation:
        """Say which collectives were exposed in what the timeline recorded last, and what would hide them.

            handle.timeline.start()
            ...  # a few steps
            handle.timeline.stop()
            print(handle.explain())

        It says of each module how long its collectives were waited for, and what to change, with what that
        would gain at most. On a GPU, where streams wait and not the host, only what has nothing to do with
        waits is found.

        Raises:
            RuntimeError: nothing was recorded, or the recording goes on.
        """
        timeline = self.timeline
        if timeline.recording or timeline.ended == 0:
            raise RuntimeError(
                "explain() is about a recording: call handle.timeline.start(), train, then "
                "handle.timeline.stop()"
            )
        return explain(timeline.events, timeline.waits, timeline.began, timeline.ended, self._setup())

    def _group_for(self, kind: nccl.Kind, group: dist.ProcessGroup) -> dist.ProcessGroup:
        if self.groups is None:
            return group
        chosen: dist.ProcessGroup = getattr(self.groups, kind)
        if chosen is group:
            return group
        theirs, ours = dist.get_process_group_ranks(group), dist.get_process_group_ranks(chosen)
        if theirs != ours:
            raise ValueError(
                f"enable(group=...) has the ranks {ours}, FSDP shards over {theirs}: they must be the same"
            )
        return chosen

    def _gathers_over(self, group: dist.ProcessGroup, nbytes: int) -> dist.ProcessGroup:
        """Return the group for an Allgather: in a forward no Reduce-Scatter runs beside it."""
        chosen = self._group_for("allgather", group)
        if not in_backward() and self._collnet is not None and not self._collnet.gathers_alone(nbytes):
            return group
        return chosen

    def _note_group(
        self, kind: nccl.Kind, group: dist.ProcessGroup, shard: torch.Tensor, op: Any = None
    ) -> dist.ProcessGroup:
        if kind == "allgather":
            chosen = self._gathers_over(group, shard.nbytes * group.size())
        else:
            chosen = self._group_for(kind, group)
        self.interference.note(Collective(kind, shard.numel(), shard.dtype, chosen, op))
        return chosen

    def _keep(self, reduction: Reduction) -> bool:
        """Leave a Reduce-Scatter in flight until the end of this backward; False outside a backward."""
        task = torch._C._current_graph_task_id()
        if task < 0:
            return False
        if task != self._drains_after:
            # Left over from a backward that raised before its end, or of an outer one.
            self.drain()
            Variable._execution_engine.queue_callback(self.drain)
            self._drains_after = task
        self._pending.append(reduction)
        return True


class _Comm:
    """Memory of this rank for FSDP's staging buffers."""

    def __init__(self, handle: Handle, param_group: Any, name: str) -> None:
        self.handle = handle
        self.param_group = param_group
        self.name = name

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Comm):
    """Allgather that counts the time spent waiting for it."""

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return memory that the ranks of a host share, if there is some, for FSDP to gather into next."""
        if device.type == "cpu":
            # FSDP gathers over this group at once; it copies its own shard into the result first.
            group = self.handle._group_for("allgather", self.param_group._all_gather_process_group)
            backend = backend_of(group, ["cpu"])
            if backend is not None:
                shared = backend.reserve(math.prod(int(s) for s in size), dtype)
                if shared is not None:
                    return shared.view(*size)
        return super().allocate(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Work | None:
        timeline = self.handle.timeline
        start = time.perf_counter()
        work: Any = dist.all_gather_into_tensor(
            output_tensor,
            input_tensor,
            group=self.handle._note_group("allgather", group, input_tensor),
            async_op=True,
        )
        on_gpu = input_tensor.device.type != "cpu"
        done = timeline.track("allgather", work, start, input_tensor.nbytes, self.name, on_gpu)
        if async_op:
            return _TimedWork(work, timeline, done, self.name)
        work.wait()
        done()
        timeline.waited("allgather", start, self.name)
        return None


class _TimedWork(Work):
    """A work with a counted wait."""

    def __init__(self, inner: Work, timeline: Timeline, done: Callable[[], None], module: str) -> None:
        super().__init__()
        self._inner = inner
        self._timeline = timeline
        self._done = done
        self._module = module

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        start = time.perf_counter()
        try:
            return self._inner.wait(timeout)
        finally:
            self._done()
            self._timeline.waited("allgather", start, self._module)

    def is_completed(self) -> bool:
        return self._inner.is_completed()

    def get_future(self) -> Any:
        return self._inner.get_future()


class _ReduceScatter(_Comm):
    """Reduce-Scatter that stays in flight where that is legal."""

    def __init__(self, handle: Handle, param_group: Any, name: str) -> None:
        super().__init__(handle, param_group, name)
        self.left: Reduction | None = None  # the latest, until its gradients are handed out

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        handle = self.handle
        on_gpu = output_tensor.device.type != "cpu"
        reason = None if on_gpu else self.why_block(output_tensor.dtype, op)
        if reason is not None and handle._defer is True:
            raise RuntimeError(f'Reduce-Scatter of module "{self.name}" cannot be deferred: {reason}')
        if reason is not None:
            handle.drain()  # what FSDP does next may touch gradients that are still in flight
        start = time.perf_counter()
        work: Any = dist.reduce_scatter_tensor(
            output_tensor,
            input_tensor,
            op=op,
            group=handle._note_group("reduce_scatter", group, output_tensor, op),
            async_op=True,
        )
        done = handle.timeline.track("reduce_scatter", work, start, output_tensor.nbytes, self.name, on_gpu)
        if on_gpu:
            # Before FSDP records, on this stream, the event behind which it frees the input's memory.
            work.wait()
            done()
            handle.deferred += 1
            return
        waited = partial(handle.timeline.waited, "reduce_scatter", module=self.name)
        reduction = Reduction(work, output_tensor, done, waited)
        if reason is None:
            if handle._keep(reduction):
                handle.deferred += 1
                self.left = reduction
                return
            reason = "outside a backward: nothing would wait for it"
        handle.blocked += 1
        handle.reasons[self.name] = reason
        reduction.wait()

    def post_backward(self, *_: object) -> None:
        """Do what FSDP does after a module's backward, and hand out its gradients, in flight or not."""
        group = self.param_group
        try:
            type(group).post_backward(group)
        finally:
            left, self.left = self.left, None
            if left is not None:
                left.hand_out([param.sharded_param for param in group.fsdp_params])

    def why_block(self, reduce_dtype: torch.dtype, op: Any) -> str | None:
        """Return what reads the output of CPU tensors before the end of the backward, or None.

        What follows the Reduce-Scatter in FSDP2's foreach_reduce, in its order.
        """
        if self.handle._defer is False:
            return "defer_reduce_scatter=False"
        kind = getattr(op, "op", op)
        if kind not in (dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM):
            forced = reduce_dtype in (torch.float32, torch.bfloat16)  # of other types torch divides no mean
            return f"the sum is divided afterwards: {'SUM is forced' if forced else f'reduced in {reduce_dtype}'}"
        group = self.param_group
        if group._is_hsdp:
            return "HSDP: an all-reduce over replicas follows"
        if group._all_reduce_hook is not None:
            return "set_all_reduce_hook: the hook reads the result"
        for param in group.fsdp_params:
            if param.offload_to_cpu:
                return "CPU offload: the result is copied"
            grad_dtype = getattr(param, "sharded_grad_dtype", param.orig_dtype)
            if grad_dtype is not None and grad_dtype != reduce_dtype:
                return f"the result is cast from {reduce_dtype} to {grad_dtype}"
            if param.sharded_param.grad is not None:
                return "gradient accumulation: the result is added to a gradient"
            if getattr(param.sharded_param, "_post_accumulate_grad_hooks", None):
                return "a post-accumulate-grad hook reads the gradient"
        return None


def enable(
    model: nn.Module,
    *,
    prefetch: bool | int = True,
    defer_reduce_scatter: Defer = "auto",
    group: dist.ProcessGroup | Groups | None = None,
) -> Handle:
    """Overlap Allgather, Reduce-Scatter and compute in a model that fully_shard was applied to.

    Works over any backend; over "mcast" the two collectives do not wait behind
    each other either. Over NCCL they do unless they have two communicators: where both can go through
    CollNet enable() makes them (all ranks of the mesh call it), else it warns, and Handle.why_serial
    says why. Gradients are those of the plain run, bit for bit: a gather for a module that did not run is
    dropped with its forward or backward, and any read of a gradient in flight waits for the gradient.
    A second enable() takes the place of the first.

    Args:
        model: the root, or a part to overlap alone, after fully_shard on its parts and on itself.
        prefetch: how many modules ahead: let each FSDP module start the
            Allgathers of so many next ones in the order of model.modules()
            (backward: previous ones), unless the module was given its own
            list. Each takes the memory of one more unsharded module. True
            is 1; False, or 0, leaves every Allgather blocking, and on a GPU
            to FSDP's streams.
        defer_reduce_scatter: "auto": leave a Reduce-Scatter in flight until
            the end of the backward where that is legal, see Handle.reasons;
            False: never; True: raise where it is not legal. On a GPU, where
            FSDP2 has a stream for them, it changes nothing.
        group: communicate over this group instead of the mesh's, or over these two
            (torch_mcast.nccl.groups()); same ranks. No others are made then.

    Returns:
        A handle with reasons, counts and a timeline.
    """
    if defer_reduce_scatter not in ("auto", True, False):
        raise ValueError(f'defer_reduce_scatter={defer_reduce_scatter!r}: it must be "auto", True or False')
    if not isinstance(prefetch, int) or prefetch < 0:
        raise ValueError(f"prefetch={prefetch!r}: it must be a bool, or 0 or more modules")
    if not isinstance(group, (dist.ProcessGroup, Groups, type(None))):
        raise TypeError(
            f"group={group!r}: it must be a process group, torch_mcast.nccl.groups(), or None: "
            "the groups of the mesh"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"enable() takes the model, and got {type(model).__name__}: pass what fully_shard was applied to"
        )
    missing = [name for name in _NEEDED if not hasattr(FSDPModule, name)]
    if missing:
        raise RuntimeError(
            f"torch {torch.__version__} lacks {', '.join(missing)}: torch_mcast.fsdp needs torch 2.9 or newer"
        )
    named = named_groups(model)
    if not named:
        raise ValueError(
            f"{type(model).__name__} has no FSDP module with parameters: call fully_shard (FSDP2) on "
            "the model before enable(); of FullyShardedDataParallel (FSDP1) or DistributedDataParallel it "
            "overlaps nothing"
        )
    parts = [part for _, part in named]
    if missing := [name for name in _NEEDED_OF_GROUPS if not hasattr(parts[0], name)]:
        raise RuntimeError(
            f"FSDP2's groups of torch {torch.__version__} have no {', '.join(missing)}: "
            "enable() was tried with torch 2.9 to 2.15"
        )
    handle = Handle(model, defer_reduce_scatter, *_choose(group, parts))
    if handle.groups is not None:
        for part in parts:  # a wrong group is named before anything is changed
            handle._group_for("allgather", part._all_gather_process_group)
            handle._group_for("reduce_scatter", part._reduce_scatter_process_group)
        if all(nccl.is_nccl(part._all_gather_process_group) for part in parts):
            handle._collnet = nccl.of(handle.groups.allgather)
    if handle.why_serial and dist.get_rank() == 0:
        _log.warning("FSDP's Allgathers and Reduce-Scatters run one after another: %s", handle.why_serial)
    for name, part in named:
        # As set_custom_all_gather and set_custom_reduce_scatter do, which take a module of one group only.
        part._all_gather_comm = _AllGather(handle, part, name)
        part._reduce_scatter_comm = reduce_scatter = _ReduceScatter(handle, part, name)
        instead(part, "post_backward", reduce_scatter.post_backward)
    handle._setup = partial(_setup, handle, named, int(prefetch))
    take_back(parts)
    if prefetch:
        Lookahead(model, int(prefetch))
    return handle


def _setup(handle: Handle, named: list[tuple[str, Any]], prefetch: int) -> Setup:
    """Return what Handle.explain needs to know of the model."""
    shards: dict[str, Shards] = {}
    for name, part in named:
        ranks = part.mesh_info.shard_mesh_size
        elements = sum(p._orig_size.numel() for p in part.fsdp_params)
        padded = sum(p.padded_sharded_param_size.numel() * ranks for p in part.fsdp_params)
        shards[name] = Shards(elements, padded, ranks, len(part.fsdp_params))
    first = named[0][1]
    group = handle._group_for("allgather", first._all_gather_process_group)
    on_gpu = first.device.type != "cpu"
    backend = NAME if backend_of(group, [first.device.type]) is not None else dist.get_backend(group)  # MCAST_REPLACE
    return Setup(prefetch, backend, on_gpu, dict(handle.reasons), shards)


def _choose(
    group: dist.ProcessGroup | Groups | None, parts: Sequence[Any]
) -> tuple[Groups | None, str]:
    """Return which groups to use, None: FSDP's own; and why operations over NCCL wait for each other."""
    if isinstance(group, Groups):
        return group, ""
    if group is not None:
        why = "enable(group=...) is one NCCL communicator: give it torch_mcast.nccl.groups()"
        return Groups(group, group), why if nccl.is_nccl(group) else ""
    shards = list(filter(nccl.is_nccl, (shard for part in parts for shard in _shards(part))))
    if not shards:
        return None, ""
    groups: Groups | None = None
    why = "the model's modules are sharded over different ranks"
    if len({tuple(dist.get_process_group_ranks(shard)) for shard in shards}) == 1:
        groups, why = nccl.beside(shards[0])
    # set_separate_reduce_scatter_group of torch 2.15: FSDP's own are two communicators, without CollNet.
    separate = all(
        getattr(part.mesh_info, "reduce_scatter_process_group", None) is not None
        for part in parts
        if part.device.type == "cuda"
    )
    return groups, "" if separate else why


def _shards(part: Any) -> Iterator[dist.ProcessGroup]:
    """Yield the groups over which a parameter group on a GPU gathers and reduces."""
    if part.device.type == "cuda":
        for mesh in (part.mesh_info, part.post_forward_mesh_info):
            if (shard := getattr(mesh, "shard_process_group", None)) is not None:
                yield shard
