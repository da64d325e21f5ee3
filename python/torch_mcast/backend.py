"""The torch.distributed backend "mcast": one rank of a process group over the library."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, PrefixStore, Store

from . import device, ending, errors, secret
from .coalesced import Coalesced
from .counters import Stats
from .group import Group, Info
from .group_in_python import ErrorType
from .rendezvous import exchange
from .store_end import rank_0_first
from .work import forward_holders


class MulticastBackend(Coalesced):
    """One rank of a process group over the multicast library.

    Tensors must be dense, on the CPU or on a CUDA device (see device.py). Tensors that are not contiguous
    go through a staging copy, and so do inputs and outputs that overlap. All arguments of a call are checked
    before the call begins anything.
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

        def meet(blob: bytes) -> list[bytes]:
            return exchange(store, rank, size, blob, timeout)

        settings = secret.settings(self.options, store)
        self.group = Group(rank, size, settings, meet, int(timeout.total_seconds() * 1000))
        ending.watch_exceptions()
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
        with rank_0_first(self.group, self._store):
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

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Do nothing: the ranks are connected, whichever device the program binds the group to."""

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Do nothing: a group that this rank is not in is made without it."""

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


# torch holds backends in C++ alone and would lose their Python half.
_alive: list[MulticastBackend] = []


def alive() -> list[MulticastBackend]:
    """Return the backends of this process that have not been shut down."""
    return list(_alive)
