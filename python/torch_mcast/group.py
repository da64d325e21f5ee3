"""A communicator of the library: join, post operations on buffers, counters, close.

Nothing here knows torch. backend.py gives it the addresses of tensors.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from . import _lib, errors, failure
from .counters import Stats
from .futures import Futures, Pending

# How long close() waits for ranks that come later. They are waited for behind it, and at exit.
LINGER_S = 1.0

# A blocking call into C keeps Python from running signal handlers, so long
# waits are cut into slices: ^C is answered within one.
SLICE_MS = 250

_log = logging.getLogger(__name__)

open_groups: set[Group] = set()  # of this process, until they are gone


@dataclass(frozen=True)
class Peer:
    """Another rank and the path from it to this one, as they were found when the group was joined.

    Attributes:
        rank: which one.
        host: name of its host.
        rails: further interfaces that carry subgroups of multicast.
        address: where this rank reaches it.
        packet_bytes: largest packet heard from it by multicast, with IP's and UDP's headers; 0: none, or
            nothing crosses a network.
        lost: share of its multicast probes that did not arrive, 0 to 1: of 16 in groups of up to 8 ranks,
            of fewer in larger ones, so no more than a hint.
        round_trip_ns: TCP's shortest round trip; 0 for ranks that this one has no control connection with.
    """

    rank: int
    host: str
    address: str
    packet_bytes: int
    lost: float
    round_trip_ns: int


@dataclass(frozen=True)
class Info:
    """What a group runs on.

    Attributes:
        rank: this rank, 0 <= rank < size.
        size: ranks in the group.
        fabric: "shm", "udp" or "verbs".
        reason: why this fabric was chosen.
        interface: network interface of the udp fabric, or "".
        address: where other ranks reach this one.
        chunk_bytes: payload bytes of a full chunk.
        window_bytes: how far a root sends ahead of the slowest receiver; 0: no limit.
        simd: instructions that the sums use, e.g. "avx512".
        notes: what the fabric does without on this machine, one sentence each.
        allgather: how Allgathers and Broadcasts travel: by "multicast", by "unicast" from rank to rank, or
            through "shared memory".
        allgather_reason: why so.
        reduce_scatter: where the next Reduce-Scatter goes: through the "switch", or "direct" (each
            owner sums its own shard).
        reduce_scatter_reason: through which switch, or why directly.
        peers: the other ranks, and the paths from them to this one.
        unheard: the pairs of all ranks, from and to, between which multicast did not pass when the group
            was joined.
        topology: where this host is in the network, as MCAST_TOPOLOGY or Slurm says; may be "".
        ring: the order in which chunks that multicast does not carry go from rank to rank: all ranks, or
            with nodes the ones that the network joins with this one.
        nodes: the number of hosts on which ranks work together, so that data crosses a host's link only
            once; 0: every rank stands alone.
        nodes_reason: why so.
        replaces: the backend that the program named, where MCAST_REPLACE gave it this one; else "".
    """

    rank: int
    size: int
    fabric: str
    reason: str
    interface: str
    rails: tuple[str, ...]
    address: str
    chunk_bytes: int
    window_bytes: int
    simd: str
    notes: tuple[str, ...]
    allgather: str
    allgather_reason: str
    reduce_scatter: str
    reduce_scatter_reason: str
    peers: tuple[Peer, ...]
    unheard: tuple[tuple[int, int], ...]
    topology: str
    ring: tuple[int, ...]
    nodes: int
    nodes_reason: str
    replaces: str = ""


PendingT = TypeVar("PendingT", bound=Pending)


class Lane:
    """Operations in flight of one kind, in posting order.

    The lane keeps the works, and through them the tensors, until they settle
    or the group is closed, whether or not the caller kept the work.
    """

    def __init__(self, group: list[Lane] | None = None, name: str = "") -> None:
        """Make a lane beside the others of its group, which is then one of the list."""
        self.name = name
        self._group = [] if group is None else group
        self._group.append(self)
        self._lock = threading.RLock()  # as post waits, a signal handler may post
        self._watching = threading.RLock()
        self._inflight: dict[Pending, None] = {}  # a set in posting order
        self._futures: Futures | None = None

    def post(self, start: Callable[[], int], track: Callable[[int], PendingT]) -> PendingT:
        """Start an operation and return track(handle), waiting for the oldest while the library is full."""
        with self._lock:
            self._reap()
            while True:
                try:
                    handle = start()
                    break
                except errors.BusyError:
                    # An Allreduce takes room in the library's queues of both kinds.
                    lanes = (self, *self._group)
                    waiting = [oldest for lane in lanes if (oldest := lane.oldest()) is not None]
                    if not waiting:
                        raise
                    waiting[0].settle()
            posted = track(handle)
            self._inflight[posted] = None
            return posted

    def _reap(self) -> None:
        """Let go of works that are done, though nobody has waited for them."""
        for work in list(self._inflight):
            if not work.poll():
                break

    def oldest(self) -> Pending | None:
        """Return the operation that was posted first, or None."""
        return next(iter(list(self._inflight)), None)

    def busy(self) -> bool:
        """Say whether operations are in flight. Does not block."""
        return not all(work.poll() for work in list(self._inflight))

    def drop(self, work: Pending) -> None:
        """Forget a work that has settled, so that its tensors can go."""
        # No lock: post holds it while works settle, and to take one item out of a dict is atomic.
        self._inflight.pop(work, None)

    def watch(self, work: Pending) -> None:
        """Complete the work's future when it is done, after those of works that were watched before."""
        with self._watching:
            if self._futures is None:
                self._futures = Futures()
            self._futures.put(work)

    def clear(self) -> None:
        """Settle and forget all operations, once the group is closed and has ended them.

        Waits for nobody: a signal handler may call it while, in post, another thread waits for its thread.
        """
        for work in list(self._inflight):
            work.poll()  # else the library keeps its handle, and with it the group's memory
        self._inflight.clear()
        with self._watching:
            if self._futures is not None:
                self._futures.put(None)
                self._futures = None


class MessageLane(Lane):
    """Sends and receives, which end in any order, and collectives that are made of them."""

    _LOOKS = 4  # works that a post looks at: more than it adds

    def __init__(self, group: list[Lane] | None = None, name: str = "") -> None:
        super().__init__(group, name)
        self._turn: list[Pending] = []  # works to look at

    def _reap(self) -> None:
        """Look at some works, by turns: one that waits for long does not keep those behind it."""
        for _ in range(self._LOOKS):
            if not self._turn:
                self._turn = list(self._inflight)
            if not self._turn:
                return
            self._turn.pop().poll()

    def clear(self) -> None:
        """Settle and forget all operations."""
        self._turn = []
        super().clear()

    def watch(self, work: Pending) -> None:
        """Complete the work's future when it is done, by a thread of its own."""
        futures = Futures()
        futures.put(work)
        futures.put(None)


class Group:
    """One rank of a communicator. Safe for use by several threads."""

    def __init__(
        self,
        rank: int,
        size: int,
        options: str,
        exchange: Callable[[bytes], list[bytes]],
        timeout_ms: int,
    ) -> None:
        """Open, exchange blobs, join.

        Args:
            rank: this rank, 0 <= rank < size.
            size: ranks in the group.
            options: "NAME=value" lines that override MCAST_* variables.
            exchange: takes this rank's blob, returns all blobs in rank order.
            timeout_ms: how long the join may take, MCAST_JOIN_TIMEOUT at most, which <= 0 stands for.
        """
        lib = _lib.library()
        for group in list(open_groups):
            group.release_closed()
        self.rank, self.size = rank, size
        self._lanes: list[Lane] = []
        self.gather, self.reduce = Lane(self._lanes, "gather"), Lane(self._lanes, "reduce")
        self.both = Lane(self._lanes, "both")  # Allreduce, which takes a place in the orders of both
        self.messages = MessageLane(self._lanes, "messages")
        endpoint, blob = lib.open(rank, size, options)
        try:
            blobs = exchange(blob)
        except BaseException:
            lib.close_endpoint(endpoint)
            raise
        self.handle: int = _interruptible(lambda: lib.join(endpoint, blobs, timeout_ms))
        lib.leave_at_exit()
        self.lib = lib
        self._pid = os.getpid()
        self._ending = threading.RLock()  # a signal handler may end the group while its thread closes it
        self._closed = False
        self._leaving: int | None = None  # the library's work, while the group is being left
        # Says whether a device that operations of this process are queued on has failed for good, so that
        # they never end and a group that is left is never gone.
        self.broken: Callable[[], bool] = _no_failure
        self.failed = False  # an operation ended in an error, which its waiter has got
        self._handled = id(failure.handled())  # was so before, and is nothing that the group fails by
        open_groups.add(self)

    def info(self) -> Info:
        """Return what the group runs on."""
        got = json.loads(self.lib.info(self.live()))
        values = {f.name: got[f.name] for f in fields(Info) if f.name != "replaces"}
        values["notes"] = tuple(got["notes"] or ())
        values["rails"] = tuple(got["rails"] or ())
        values["ring"] = tuple(got["ring"] or ())
        values["unheard"] = tuple((source, to) for source, to in got["unheard"] or ())
        values["peers"] = tuple(Peer(**{f.name: peer[f.name] for f in fields(Peer)}) for peer in got["peers"] or ())
        return Info(**values)

    def stats(self) -> Stats:
        """Return the counters."""
        raw = self.lib.stats(self.live())
        return Stats(*(getattr(raw, f.name) for f in fields(Stats)))

    def close(self) -> None:
        """Leave the group, once no other rank needs this one any more.

        Ranks that come later than LINGER_S are waited for behind this call, and at exit. So a rank
        may be late, and ranks may close several groups in different orders. A second call goes on
        waiting if ^C ended the first, and does nothing otherwise.

        While the program handles an exception, in `except` or `finally`, nobody is waited for: the others
        are told of the exception, as by abort().
        """
        handled = failure.handled()
        if handled is not None and id(handled) != self._handled:
            self.abort(f"its script left the group because of {failure.words(handled)}")
            return
        self.leave()
        self.wait_left(LINGER_S)

    def leave(self) -> None:
        """Begin to leave the group, without waiting."""
        with self._ending:
            if not self._closed and self._usable():
                self._closed = True
                self._leaving = self.lib.leave(self.handle)

    def wait_left(self, seconds: float) -> bool:
        """Wait at most this long until a group that is being left is gone; say whether it is."""
        deadline = time.monotonic() + seconds
        with self._ending:
            leaving = self._leaving
            if leaving is None or not self._usable():
                return True
            try:
                # A signal handler that runs meanwhile may end the group, and forget the work.
                while self._leaving is not None and not self.lib.wait(leaving, SLICE_MS):
                    if time.monotonic() > deadline:
                        return False
            except errors.McastError:
                # After a failed operation peers are gone, and a caller that waited knows.
                if self._leaving is not None and not self.failed:
                    self._release_buffers()
                    raise
            self._release_buffers()
            return True

    def abort(self, reason: str) -> None:
        """End the group on all ranks; their operations fail with this rank's number and the reason.

        Does not wait for them. A close() under way in another thread ends.
        """
        if not self._usable():
            return
        self._closed = self.failed = True
        with suppress(errors.ClosedError):  # it is gone already
            self.lib.abort(self.handle, reason)
        with self._ending:
            self._release_buffers()

    def release_closed(self) -> None:
        """Let go of a group that was left behind its close(), if it is gone by now. Does not block."""
        if not self._ending.acquire(blocking=False):
            return  # somebody waits for it
        try:
            if self._leaving is not None and self._usable() and self.lib.test(self._leaving):
                self.wait_left(0)
        except errors.McastError as e:
            _log.warning("closing a group: %s", e)
        finally:
            self._ending.release()

    def _release_buffers(self) -> None:
        """Let go of what the library may have written to until now."""
        if self._leaving is not None:
            self.lib.forget(self._leaving)
            self._leaving = None
        for lane in self._lanes:
            lane.clear()
        open_groups.discard(self)

    def busy(self) -> bool:
        """Say whether operations are in flight. Does not block."""
        return self._usable() and any(lane.busy() for lane in self._lanes)

    def _usable(self) -> bool:
        return self._pid == os.getpid() and _lib.usable()

    def live(self) -> int:
        """Return the handle for a call of the library, or raise if there is none to use."""
        if self._closed:
            raise errors.ClosedError("the group is closed")
        _lib.library()  # raises in a forked child
        return self.handle


def _interruptible(call: Callable[[], Any]) -> Any:
    """Run a blocking call in a thread, so that the caller answers ^C meanwhile."""
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as e:
            failure.append(e)

    thread = threading.Thread(target=run, name="mcast-call", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SLICE_MS / 1000)
    if failure:
        raise failure[0]
    return outcome[0]


def _no_failure() -> bool:
    """Say that no device has failed: none is used."""
    return False
