"""The answers to torch's questions about a backend: its features, its options, its progress."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch._C._distributed_c10d as c10d
from torch._C._distributed_c10d import Backend

from . import errors
from .group_in_python import TAKES_BACKENDS, Base, keep
from .options import NAME, Options
from .recorder import Recorder
from .work import AnyWork, JoinedWork

WorkT = TypeVar("WorkT", bound=AnyWork)
MethodT = TypeVar("MethodT", bound=Callable[..., AnyWork])


class Capabilities(Base):
    """A backend in Python that gives its own answers, instead of those of torch's base class.

    torch's own properties ask the Python class for an override, find
    themselves and recurse without end, so each is defined here.
    """

    supports_coalescing = False  # each send and receive of a batch is a work of its own
    supports_splitting = hasattr(c10d.ProcessGroup, "split_group")  # before, torch makes parts itself, in C++
    supports_shrinking = TAKES_BACKENDS  # before, torch puts a backend that is one in C++ into the smaller group
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, rank: int, size: int, timeout: timedelta, options: Backend.Options | None) -> None:
        """Take the timeout of waits that are given none, and the options, which are copied."""
        super().__init__(rank, size)
        self._timeout = timeout
        self._options = Options.of(options)
        self._options._timeout = timeout
        self._recorder = Recorder()
        self._sequence = 0
        self._coalesced: list[AnyWork] | None = None

    def getBackendName(self) -> str:
        """Return "mcast"."""
        return NAME

    @property
    def group_name(self) -> str:
        """Torch's name of the process group."""
        return self._recorder.group

    @property
    def options(self) -> Options:
        """The options of this group."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of waits that are given none."""
        self._timeout = timeout
        self._options._timeout = timeout

    _set_default_timeout = set_timeout

    def _set_group_uid(self, uid: str) -> None:
        """Take the name of the process group."""
        super()._set_group_uid(uid)
        self._recorder.open(uid)

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collectives this rank has posted: the same on all ranks that are in step."""
        return self._sequence

    def start_coalescing(self) -> None:
        """Gather the works posted until end_coalescing."""
        self._coalesced = []

    def end_coalescing(self) -> JoinedWork:
        """Return the works posted since start_coalescing as one."""
        works, self._coalesced = self._coalesced, None
        return JoinedWork(works or [])

    def _coalesce(self, work: WorkT) -> WorkT:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work


# Torch leaves options out where it calls a process group in Python that should have a default for them.
_OPTIONS = {
    "all_gather_single_coalesced": c10d.AllgatherOptions,
    "allgather": c10d.AllgatherOptions,
    "allgather_coalesced": c10d.AllgatherOptions,
    "allreduce": c10d.AllreduceOptions,
    "allreduce_coalesced": c10d.AllreduceCoalescedOptions,
    "barrier": c10d.BarrierOptions,
    "broadcast": c10d.BroadcastOptions,
    "reduce_scatter": c10d.ReduceScatterOptions,
    "reduce_scatter_single_coalesced": c10d.ReduceScatterOptions,
}


def collective(method: MethodT) -> MethodT:
    """Count the calls of a collective that torch makes, as its Flight Recorder does."""
    options = _OPTIONS.get(method.__name__)
    takes = method.__code__.co_argcount - 1  # without self

    @functools.wraps(method)
    def counted(self: Capabilities, *args: Any, **named: Any) -> AnyWork:
        if options is not None and len(args) + len(named) < takes:
            named["opts"] = options()
        self._sequence += 1
        work = self._coalesce(method(self, *args, **named))
        keep(work, several=method.__name__.endswith("_coalesced"))
        return work

    return cast(MethodT, counted)


def _refuse(name: str, why: str) -> None:
    def method(self: Capabilities, *args: Any) -> Any:
        raise errors.UnsupportedError(f"the mcast backend does not support {name}: {why}")

    method.__name__ = name
    method.__doc__ = f"Refuse: {why}."
    setattr(Capabilities, name, method)


for _name, _why in {
    "merge": "make one group of all ranks with new_group",
    "new_window": "ranks do not write to each other's memory; use broadcast, or send and recv",
    "reconfigure": "the ranks of a group are fixed; destroy it and make another with new_group",
    "get_reconfigure_handle": "the ranks of a group are fixed; destroy it and make another with new_group",
}.items():
    _refuse(_name, _why)
