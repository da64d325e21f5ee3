"""A communicator of the library: join, post operations on buffers, counters, close.

Nothing here knows torch. backend.py gives it the addresses of tensors.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Protocol, TypeVar

from . import _lib, errors
from .counters import Stats

# How long close() waits for ranks that come later. They are waited for behind it, and at exit.
LINGER_S = 10.0

# A blocking call into C keeps Python from running signal handlers, so long
# waits are cut into slices: ^C is answered within one.
SLICE_MS = 250

_log = logging.getLogger(__name__)


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
        ring: the order of ranks in which what multicast does not carry goes from rank to rank: all, or with
            nodes those that the network joins with this one.
        nodes: the number of hosts whose ranks work together, so that what crosses a host's link does so
            once; 0: every rank stands alone.
        nodes_reason: why so.
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


class Pending(Protocol):
    """An operation in flight, as its lane sees it."""

    def poll(self) -> bool:
        """Say whether it is done, well or not. Does not block."""

    def settle(self) -> None:
        """Block until it is done, well or not. Does not raise its error."""

    def complete_future(self) -> None:
        """Give the outcome of an operation that is done to its future."""


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
        self._watched: queue.SimpleQueue[Pending | None] | None = None

    def post(self, start: Callable[[], int], track: Callable[[int], PendingT]) -> PendingT:
        """Start an operation and return track(handle), waiting for the oldest while the library is full."""
        with self._lock:
            for work in list(self._inflight):
                if not work.poll():
                    break
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

    def oldest(self) -> Pending | None:
        """Return the operation that was posted first, or None."""
        return next(iter(list(self._inflight)), None)

    def drop(self, work: Pending) -> None:
        """Forget a work that has settled, so that its tensors can go."""
        # No lock: post holds it while works settle, and to take one item out of a dict is atomic.
        self._inflight.pop(work, None)

    def watch(self, work: Pending) -> None:
        """Complete the work's future when it is done. One thread a lane does it, in posting order."""
        with self._watching:
            works = self._watched
            if works is None:
                works = self._watched = queue.SimpleQueue()
                threading.Thread(
                    target=_complete_futures, args=(works,), name="mcast-futures", daemon=True
                ).start()
            works.put(work)

    def clear(self) -> None:
        """Settle and forget all operations, once the group is closed and has ended them.

        Waits for nobody: a signal handler may call it whose thread another one waits for in post.
        """
        for work in list(self._inflight):
            work.poll()  # whose handle the library would keep, and with it the group's memory
        self._inflight.clear()
        with self._watching:
            if self._watched is not None:
                self._watched.put(None)
                self._watched = None


def _complete_futures(works: queue.SimpleQueue[Pending | None]) -> None:
    while (work := works.get()) is not None:
        try:
            work.settle()
            work.complete_future()
        except Exception:  # e.g. the program has set the future; those after it are still to come
            _log.exception("cannot complete the future of %s", work)
        del work  # not kept until the next one comes


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
        for group in list(_open_groups):
            group.let_go()
        self.rank, self.size = rank, size
        self._lanes: list[Lane] = []
        self.gather, self.reduce = Lane(self._lanes, "gather"), Lane(self._lanes, "reduce")
        self.both = Lane(self._lanes, "both")  # Allreduce, which takes a place in the orders of both
        endpoint, blob = lib.open(rank, size, options)
        try:
            blobs = exchange(blob)
        except BaseException:
            lib.close_endpoint(endpoint)
            raise
        self.handle: int = _interruptible(lambda: lib.join(endpoint, blobs, timeout_ms))
        self.lib = lib
        self._pid = os.getpid()
        self._ending = threading.RLock()  # a signal handler may end the group while its thread closes it
        self._closed = False
        self._leaving: int | None = None  # the library's work, while the group is being left
        # Ends what goes past the library, such as gloo's connections, so that no rank waits for this
        # one in it for ever. Called once the group is gone, this rank has waited long enough, or aborts.
        self.disconnect: Callable[[], None] = _nothing
        # Says whether a device that operations of this process are queued on has failed for good, so that
        # they never end and a group that is left is never gone.
        self.broken: Callable[[], bool] = _sound
        self.failed = False  # an operation ended in an error, which its waiter has got
        _open_groups.add(self)
        _watch_exceptions()

    def info(self) -> Info:
        """Return what the group runs on."""
        got = json.loads(self.lib.info(self.live()))
        values = {f.name: got[f.name] for f in fields(Info)}
        values["notes"] = tuple(got["notes"] or ())
        values["rails"] = tuple(got["rails"] or ())
        values["ring"] = tuple(got["ring"] or ())
        values["unheard"] = tuple((source, to) for source, to in got["unheard"] or ())
        values["peers"] = tuple(
            Peer(**{f.name: peer[f.name] for f in fields(Peer)}) for peer in got["peers"] or ()
        )
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
        """
        self.leave()
        self.wait_left(LINGER_S)
        if self._leaving is not None:
            self.disconnect()

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
                # After a failed operation peers are gone, and whoever waited knows.
                if self._leaving is not None and not self.failed:
                    self._gone()
                    raise
            self._gone()
            return True

    def abort(self, reason: str) -> None:
        """End the group on all ranks, whose operations fail with this rank's number and the reason.

        Does not wait for them. A close() under way in another thread ends.
        """
        if not self._usable():
            return
        self._closed = self.failed = True
        with suppress(errors.ClosedError):  # it is gone already
            self.lib.abort(self.handle, reason)
        self.disconnect()
        with self._ending:
            self._gone()

    def let_go(self) -> None:
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

    def _gone(self) -> None:
        """Let go of what the library may have written to until now."""
        self.disconnect()  # the group may have failed, and a rank may wait for this one in gloo
        if self._leaving is not None:
            self.lib.forget(self._leaving)
            self._leaving = None
        for lane in self._lanes:
            lane.clear()
        _open_groups.discard(self)

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


_open_groups: set[Group] = set()


def abort_all(reason: str) -> None:
    """Abort all groups of this process."""
    for group in list(_open_groups):
        try:
            group.abort(reason)
        except errors.McastError as e:
            print(f"torch_mcast: aborting a group: {e}", file=sys.stderr)


_watching = False
_MOST_SAID = 300  # characters of an exception


def _watch_exceptions() -> None:
    """Have an exception that ends the program tell the other ranks at once, not at exit."""
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        try:
            if not (sys.flags.interactive or hasattr(sys, "ps1")):  # where it ends a line, not the program
                what = " ".join(f"{kind.__name__}: {value}".split())
                abort_all(f"its script ended with {what[:_MOST_SAID]}")
        finally:
            before(kind, value, trace)

    sys.excepthook = hook


@atexit.register
def _close_all() -> None:
    """Leave groups that the program did not destroy, so that peers do not report a dead rank.

    All are left before any is waited for: ranks may come to them in any order. No thread is
    started, which Python 3.12.0 and 3.12.1 refuse at exit.
    """
    deadline = time.monotonic() + LINGER_S
    for group in list(_open_groups):
        group.leave()
    for group in list(_open_groups):
        _wait_left(group, max(0.0, deadline - time.monotonic()))
    for group in list(_open_groups):
        group.disconnect()
    for group in list(_open_groups):
        while not _wait_left(group, LINGER_S):
            pass


def _wait_left(group: Group, seconds: float) -> bool:
    """Wait at most this long; say whether there is nothing more to wait for."""
    try:
        if group.broken():
            group.abort("its CUDA device has failed")
        return group.wait_left(seconds)
    except errors.McastError as e:
        print(f"torch_mcast: closing a group at exit: {e}", file=sys.stderr)
        return True


def _nothing() -> None:
    """Do nothing."""


def _sound() -> bool:
    """Say that no device has failed: none is used."""
    return False
