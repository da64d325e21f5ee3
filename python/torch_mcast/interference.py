"""What compute and communication of a training step cost each other.

Two calibrations say what each takes alone: forward and backward without a collective, and the
collectives of a step without compute. Steps with both are held against them: compute that takes longer
beside communication (they share cores, caches and memory) was slowed down by it, and of the
communication that part is exposed which training waited for.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from . import errors
from .param_groups import on_cpu, param_groups
from .timeline import Kind, Summary, Timeline


@dataclass(frozen=True)
class Collective:
    """One collective of a step: `numel` elements of a shard, reduced by `op`."""

    kind: Kind
    numel: int
    dtype: torch.dtype
    group: dist.ProcessGroup
    op: Any = None


@dataclass(frozen=True)
class Calibration:
    """Seconds that a step's parts take alone, one value a trial."""

    compute: tuple[float, ...]
    communication: tuple[float, ...]


@dataclass(frozen=True)
class Interference:
    """Medians over steps; times in seconds, the rest shares of 1.

    Attributes:
        steps: how many there were.
        compute_alone: a step without communication.
        compute: what a step took without its waits for collectives.
        slowdown: how much longer compute takes beside communication, of compute_alone.
        slowdown_spread: by how much slowdown varies from step to step and from trial to trial.
        communication_alone: a step's collectives without compute.
        exposed: what a step waited for collectives.
        exposed_share: exposed of communication_alone. More than 1 where collectives take longer beside
            compute, or wait for a rank that is late.
        exposed_spread: by how much exposed_share varies.
    """

    steps: int
    compute_alone: float
    compute: float
    slowdown: float
    slowdown_spread: float
    communication_alone: float
    exposed: float
    exposed_share: float
    exposed_spread: float

    def __str__(self) -> str:
        """Return two lines for people, which claim no effect that is within the spread."""
        if abs(self.slowdown) <= self.slowdown_spread:
            slower = f"no difference beyond the {self.slowdown_spread:.1%} by which it varies"
        else:
            word = "slower" if self.slowdown > 0 else "faster"
            slower = f"{abs(self.slowdown):.1%} {word} (varies by {self.slowdown_spread:.1%})"
        if self.exposed_share <= self.exposed_spread:
            share = f"no more than the {self.exposed_spread:.1%} by which that varies"
        else:
            share = f"{self.exposed_share:.1%} of that (varies by {self.exposed_spread:.1%})"
        return (
            f"compute: {self.compute * 1e3:.2f} ms a step, {self.compute_alone * 1e3:.2f} ms alone: "
            f"{slower}\n"
            f"communication: {self.communication_alone * 1e3:.2f} ms alone, "
            f"{self.exposed * 1e3:.2f} ms exposed: {share}; medians of {self.steps} steps"
        )


class Meter:
    """Says what compute and communication of a model cost each other.

        handle.interference.calibrate(lambda: loss(model(x)).backward())
        for x in data:
            with handle.interference.step():
                loss(model(x)).backward()
            optimizer.step()
        print(handle.interference)

    Attributes:
        calibration: what the parts of a step take alone; None until calibrate().
        steps: what the steps since then were spent on.
    """

    def __init__(self, model: nn.Module, timeline: Timeline) -> None:
        self.calibration: Calibration | None = None
        self.steps: list[Summary] = []
        self._model = model
        self._timeline = timeline
        self._collectives: list[Collective] | None = None  # those of a step that is being calibrated

    def calibrate(self, step: Callable[[], object], trials: int = 5) -> Calibration:
        """Find what compute and communication of a step take alone; all ranks call it, between two steps.

        Compute alone is measured on the model while it stays gathered and does not reduce its gradients:
        each rank has memory for the whole of both meanwhile. Gradients are dropped; parameters stay as they
        are, and so do FSDP's settings for resharding and reducing.

        Args:
            step: forward and backward, without the optimizer.
            trials: of each kind, after one that does not count.

        Raises:
            UnsupportedError: the model is on a GPU, where the host does not see waits; or this torch does
                not show how FSDP was set, to be set back. Nothing has changed then.
            ArgumentError: trials is below 2, which has no spread.
        """
        modules = [m for m in self._model.modules() if isinstance(m, FSDPModule)]
        if not all(map(on_cpu, modules)):
            raise errors.UnsupportedError(
                "calibrate: the model is on a GPU, and the host does not see the GPU's waits"
            )
        if trials < 2:
            raise errors.ArgumentError(f"calibrate: trials is {trials}, it must be 2 or more")
        collectives: list[Collective] = []
        compute = []
        with _settings_kept(modules):
            self._collectives = collectives
            try:
                step()
            finally:
                self._collectives = None
                self._model.zero_grad()
            communication = [alone(collectives) for _ in range(trials + 1)]
            _keep_whole(modules, True)
            for _ in range(trials + 1):  # the first gathers
                began = time.perf_counter()
                step()
                compute.append(time.perf_counter() - began)
                self._model.zero_grad()  # to add to the gradients of the trial before is no part of a step
            _keep_whole(modules, False)
            step()  # gives the memory back
            self._model.zero_grad()
        self.calibration, self.steps = Calibration(tuple(compute[1:]), tuple(communication[1:])), []
        return self.calibration

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Count a step, which is what calibrate() was given. It uses the handle's timeline."""
        self._timeline.start()
        yield
        self.steps.append(self._timeline.stop())

    def result(self) -> Interference:
        """Return what compute and communication cost each other in the steps since calibrate().

        Raises:
            ArgumentError: calibrate() or step() has not been called.
        """
        if self.calibration is None:
            raise errors.ArgumentError("interference: call calibrate() before")
        return compare(self.calibration, self.steps)

    def note(self, collective: Collective) -> None:
        """Keep a collective if its step is being calibrated."""
        if self._collectives is not None:
            self._collectives.append(collective)

    def __str__(self) -> str:
        """Return the result for people."""
        return str(self.result())


def compare(calibration: Calibration, steps: Sequence[Summary]) -> Interference:
    """Hold steps against what their parts take alone."""
    if not steps:
        raise errors.ArgumentError(
            "interference: no step to hold against the calibration: train within step()"
        )
    alone, compute = calibration.compute, [step.compute for step in steps]
    wire = calibration.communication
    exposed = [step.exposed_allgather + step.exposed_reduce_scatter for step in steps]
    base, sent = statistics.median(alone), statistics.median(wire)
    share = statistics.median(exposed) / sent if sent else 0.0
    ratio = statistics.median(compute) / base
    return Interference(
        steps=len(steps),
        compute_alone=base,
        compute=statistics.median(compute),
        slowdown=ratio - 1,
        slowdown_spread=(spread(compute) + ratio * spread(alone)) / base,
        communication_alone=sent,
        exposed=statistics.median(exposed),
        exposed_share=share,
        exposed_spread=(spread(exposed) + share * spread(wire)) / sent if sent else 0.0,
    )


def spread(values: Sequence[float]) -> float:
    """Return the width of the middle half of values; of a single one it is not known: infinite."""
    if len(values) < 2:
        return float("inf")
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def alone(collectives: Sequence[Collective]) -> float:
    """Do the collectives of a step, of either kind one after another; return the seconds until all are done.

    All ranks of their groups call it.
    """
    sizes: dict[tuple[Kind, torch.dtype], tuple[int, int]] = {}  # operations of one kind share their memory
    for one in collectives:
        shard, whole = sizes.get((one.kind, one.dtype), (0, 0))
        n = one.numel
        sizes[one.kind, one.dtype] = max(shard, n), max(whole, n * dist.get_world_size(one.group))
    buffers = {key: [torch.zeros(n, dtype=key[1]) for n in numbers] for key, numbers in sizes.items()}
    calls = []
    for one in collectives:
        small, large = buffers[one.kind, one.dtype]
        calls.append((one, small[: one.numel], large[: one.numel * dist.get_world_size(one.group)]))
    for group in {id(one.group): one.group for one in collectives}.values():
        dist.barrier(group=group)
    began = time.perf_counter()
    works: list[Any] = []
    for one, small, large in calls:
        if one.kind == "allgather":
            works.append(dist.all_gather_into_tensor(large, small, group=one.group, async_op=True))
        else:
            works.append(dist.reduce_scatter_tensor(small, large, op=one.op, group=one.group, async_op=True))
    for work in works:
        work.wait()
    return time.perf_counter() - began


# What FSDP2's parameter groups, and the states of its modules, have from set_requires_gradient_sync(),
# set_requires_all_reduce(), set_reshard_after_backward() and set_reshard_after_forward(). There is no public
# way to ask for it.
_OF_GROUPS = ("reduce_grads", "all_reduce_grads", "reshard_after_backward", "post_forward_mesh_info")
_OF_STATES = ("_auto_reshard_after_forward",)


@contextlib.contextmanager
def _settings_kept(modules: Sequence[FSDPModule]) -> Iterator[None]:
    """Restore how FSDP was set to reshard and reduce; refuse where torch does not show it."""
    owners: list[tuple[Any, tuple[str, ...]]] = []
    for module in modules:
        owners.append((module._get_fsdp_state(), _OF_STATES))
        owners.extend((group, _OF_GROUPS) for group in param_groups(module))
    try:
        before = [[getattr(owner, name) for name in names] for owner, names in owners]
    except AttributeError as e:
        raise errors.UnsupportedError(
            f"calibrate: it changes settings of FSDP for a while, and torch {torch.__version__} does not "
            f"show them, to be set back: {e}"
        ) from None
    try:
        yield
    finally:
        for (owner, names), values in zip(owners, before, strict=True):
            for name, value in zip(names, values, strict=True):
                setattr(owner, name, value)


def _keep_whole(modules: Sequence[FSDPModule], whole: bool) -> None:
    """Have modules stay gathered and their gradients stay unreduced, or not after a backward."""
    for module in modules:
        module.set_requires_gradient_sync(not whole, recurse=False)
        module.set_reshard_after_backward(not whole, recurse=False)
        if whole:
            module.set_reshard_after_forward(False, recurse=False)
