"""What stands between torch and the backend before torch 2.14: a process group in Python.

torch 2.14 takes a backend that is written in Python. Older ones let the creator of a backend return a whole
process group instead, which Python may write. It has one backend for all devices, and is that itself.
"""

from __future__ import annotations

import enum
from collections import deque
from functools import partial
from types import WrapperDescriptorType
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed.distributed_c10d as distributed_c10d
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroup, Store, Work
from torch.distributed.algorithms.join import Join

from .options import Options

# Before torch 2.14 the C++ class of backends has no constructor for Python.
TAKES_BACKENDS = not isinstance(Backend.__init__, WrapperDescriptorType)


class _ErrorType(enum.Enum):
    """What torch 2.7 and newer say of a backend's state."""

    SUCCESS = 0
    TIMEOUT = 1
    COMM_ERROR = 2
    REMOTE_ERROR = 3


ErrorType: Any = getattr(c10d, "ErrorType", _ErrorType)


class GroupInPython(ProcessGroup):
    """A process group with operations that are methods of a class in Python."""

    _store: Store

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._group_name = ""
        self._group_desc = ""
        self._splits = 0

    def _get_backend(self, _device: torch.device) -> Any:
        """Return the backend of a device: this."""
        return self

    def getBackendName(self) -> str:
        """Return the backend's name."""
        raise NotImplementedError

    def _get_backend_name(self) -> str:
        return self.getBackendName()

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    def _set_group_name(self, name: Any) -> None:
        """Take torch's name of the group, by which functional collectives find it."""
        super()._set_group_name(name)
        self._group_name = name
        self._set_group_uid(name)

    def _set_group_uid(self, uid: str) -> None:
        """Take the name; a backend does more."""

    def getGroupName(self) -> str:
        """Return torch's name of the group."""
        return self._group_name

    def _set_group_desc(self, desc: str) -> None:
        self._group_desc = desc

    def getGroupDesc(self) -> str:
        """Return what the group is for."""
        return self._group_desc

    group_desc = property(getGroupDesc)

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: numbers begin at 0 on all ranks."""

    def get_group_store(self) -> Store:
        """Return the store of the group."""
        return self._store

    def split_group(  # type: ignore[override]  # the newest torch, with one more argument, does not get here
        self,
        new_ranks: list[int],
        timeout: Any = None,
        opts: Any = None,
        group_name: Any = None,
        group_desc: Any = None,
    ) -> Any:
        """Make a group of some ranks of this one; None on the others."""
        opts = Options.of(opts)  # torch gives the parent's own
        if timeout is not None:
            opts._timeout = timeout
        self._splits += 1  # a name of torch may differ by rank, or be that of a group before
        if self.rank() not in new_ranks:
            return None
        part = self.split(PrefixStore(f"split/{self._splits}/{new_ranks}", self._store), new_ranks, opts)
        part._set_group_name(group_name)
        part._set_group_desc(group_desc or "")
        return part

    def comm_split_count(self) -> int:
        """Return how often the group was split, for the description of the next."""
        return self._splits

    def split(self, store: Store, ranks: list[int], opts: Any) -> Any:
        """Make a group of some ranks of this one, which is one of them."""
        raise NotImplementedError

    def _start_coalescing(self, _device: torch.device) -> None:
        self.start_coalescing()

    def _end_coalescing(self, _device: torch.device) -> Any:
        return self.end_coalescing()

    def start_coalescing(self) -> None:
        """Gather works until end_coalescing."""
        raise NotImplementedError

    def end_coalescing(self) -> Any:
        """Return the works since start_coalescing as one."""
        raise NotImplementedError


def install() -> None:
    """Have torch shut down and abort such groups, and keep their works: older torch does so for its own alone."""
    for name, method in ("_shutdown_backend", "shutdown"), ("_abort_backend", "abort"):
        if (of_torch := getattr(distributed_c10d, name, None)) is not None:
            setattr(distributed_c10d, name, partial(_end, of_torch, method))
    Join.notify_join_context = partial(_keep_of_join, Join.notify_join_context)  # type: ignore[method-assign]


def _keep_of_join(notify: Any, joinable: Any) -> Any:
    """Keep the work of a forward under DDP.join, which torch gives to C++ alone, until the next."""
    joinable._work_of_join = work = notify(joinable)
    return work


def _end(of_torch: Any, method: str, group: ProcessGroup) -> Any:
    return getattr(group, method)() if isinstance(group, GroupInPython) else of_torch(group)


# torch 2.7 and newer keep the Python half of a work as long as the C++ half.
_LOSES_WORKS = torch.__version__.startswith("2.6.")


_kept: set[Work] = set()
_waited: deque[Work] = deque(maxlen=64)
_WAITS = ("wait", "get_future")


def keep(work: Work, several: bool) -> None:
    """Keep the Python half of a work until it is waited for, if torch does not.

    torch's C++ code, such as functional collectives, may have the C++ half alone. Without the other half its wait
    would never end. A work of several results is waited for once for each: it stays for a while after the first.
    """
    if not _LOSES_WORKS:
        return
    _kept.add(work)

    def letting_go(method: Any) -> Any:
        def called(*args: Any) -> Any:
            _kept.discard(work)
            if several:
                _waited.append(work)
            for name in _WAITS:
                vars(work).pop(name, None)  # they refer to the work, which refers to them
            return method(*args)

        return called

    for name in _WAITS:
        setattr(work, name, letting_go(getattr(work, name)))


Base: Any = Backend if TAKES_BACKENDS else GroupInPython
