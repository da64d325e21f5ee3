"""torch's Flight Recorder: which operations this rank has posted, which are done, and how long they took.

torch records what passes its process groups, with sizes, types and stacks. It
cannot see when a backend in Python completes an operation: that is added here
as a trace is written. `torchfrtrace` reads the traces of all ranks together.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from . import errors
from .options import NAME
from .structs import Account

_log = logging.getLogger(__name__)

# torch 2.15 and newer record any backend; 2.14 has the recorder, without a name for the backend.
RECORDS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


class Course(NamedTuple):
    """When an operation began and ended, in nanoseconds since the epoch, and the causes of its waits.

    It begins when those before it have ended. For an operation on a GPU's tensors only the end is
    known, as the moment at which the program has learned of the end.
    """

    began: int | None
    ended: int
    account: Account | None

    @classmethod
    def of(cls, posted: int, account: Account | None) -> Course:
        """Return the course of an operation that has just ended, from the library's account."""
        now = time.time_ns()
        if account is None:
            return cls(None, now, None)
        posted = min(posted, now - sum(account))  # it was noted after the library had begun
        return cls(posted + account.queued, posted + sum(account), account)

    def beside(self, other: Course | None) -> Course:
        """Return the course of two as one: a call of torch may be several operations."""
        if other is None:
            return self
        began = [c.began for c in (self, other) if c.began is not None]
        last = max(self, other, key=lambda c: c.ended)
        return Course(min(began, default=None), last.ended, last.account)

    def write(self, entry: dict[str, Any]) -> None:
        """Write it into an entry of torch's."""
        entry["time_discovered_started_ns"] = self.began
        entry["time_discovered_completed_ns"] = self.ended
        if self.began is not None:
            entry["duration_ms"] = (self.ended - self.began) / 1e6
        if self.account is not None:
            entry["waited_ms"] = {what: ns / 1e6 for what, ns in self.account._asdict().items()}


class Operation(Protocol):
    """An operation of the library."""

    def poll(self) -> bool:
        """Say whether the operation is done, without blocking."""

    def is_success(self) -> bool:
        """Say whether the operation is done and well, without blocking."""


class Recorder:
    """The operations of one group that are not known to be done, by the number that torch records."""

    def __init__(self) -> None:
        self.group = ""
        self._newest = 0
        self._posted: dict[Operation, tuple[int, int]] = {}
        self._courses: dict[int, Course] = {}
        self._failed: set[int] = set()
        self._late = False
        self._exchanges = 0
        self._exchanged: weakref.WeakKeyDictionary[Operation, int] = weakref.WeakKeyDictionary()
        # Of the one above: a program may post while torch's debug server looks. Plain dictionaries need none.
        self._lock = threading.Lock()
        self._kept = _buffer_size()
        self.on = self._kept > 0

    def open(self, group: str) -> None:
        """Take torch's name of the process group, by which its entries are known."""
        self.group = group
        _recorders[group] = self

    def posted(self, work: Operation, number: int) -> None:
        """Note an operation of the library."""
        self._newest = number
        self._posted[work] = number, time.time_ns()

    def exchanged(self, work: Operation) -> None:
        """Note a send or receive."""
        with self._lock:
            self._exchanges += 1
            self._exchanged[work] = self._exchanges

    def completed(self, work: Operation, account: Account | None) -> None:
        """Note that an operation is done and well."""
        number, posted = self._posted.pop(work, (0, 0))
        if number == 0 or not self.on:
            return
        self._courses[number] = Course.of(posted, account).beside(self._courses.get(number))
        if len(self._courses) > self._kept:  # as long as torch keeps its entries
            del self._courses[next(iter(self._courses))]

    def failed(self, work: Operation) -> bool:
        """Note that an operation has failed; return whether it is the first, and so to be reported."""
        first = not self._failed
        number, _ = self._posted.pop(work, (0, 0))  # a signal may have this noted twice
        self._failed.add(number)
        return first

    def late(self, what: str) -> None:
        """Write the trace of this process if this is the first wait of the group that runs out of time."""
        first, self._late = not self._late, True
        if first:
            self.report(what)

    def report(self, what: str) -> None:
        """Write the trace because of what has happened, if torch's settings allow it.

        A thread writes it, since there may be many lines to name, and the program that waits for the
        operation is told at once. The end of the program waits for the thread, but for one that starts
        later than that: at exit the trace is written here.
        """
        if not _wanted():
            return
        if threading.main_thread().is_alive():
            threading.Thread(target=_write_because, args=(what,), name="mcast-trace").start()
        else:
            _write_because(what)

    def close(self) -> None:
        """Leave the entries of a group that never failed as torch recorded them."""
        if not self._failed and _recorders.get(self.group) is self:
            del _recorders[self.group]

    def complete(self, trace: dict[str, Any]) -> None:
        """Write into the entries of this group which operations are done, and their courses."""
        unfinished = {number for work, (number, _) in list(self._posted.items()) if not work.poll()}
        with self._lock:
            exchanged = list(self._exchanged.items())
        unfinished |= self._failed - {0}  # which stands for sends and receives
        exchanging = {n for work, n in exchanged if not work.is_success()}
        later, later_exchange = self._newest + 1, self._exchanges + 1
        for entry in reversed(trace["entries"]):
            if entry["process_group"][0] != self.group:
                continue
            if entry["is_p2p"]:
                number, done = entry["p2p_seq_id"], entry["p2p_seq_id"] not in exchanging
                if number >= later_exchange:  # of a group of this name before
                    break
                later_exchange = number
            else:
                number = entry["collective_seq_id"]
                if number >= later:  # of a group of this name before, or of another backend
                    break
                later, done = number, number not in unfinished
                course = self._courses.get(number) if done else None
                if course is not None:
                    course.write(entry)
            entry["retired"] = done
            if done:
                entry["state"] = "completed"
            status = trace.get("pg_status", {}).get(str(entry["pg_id"]))
            if status is not None and not entry["is_p2p"]:
                status["last_completed_collective"] = min([*unfinished, self._newest + 1]) - 1


_recorders: dict[str, Recorder] = {}
# One dead rank fails many groups. Reentrant: to write is to ask works whether they are done, and a
# failure that is found so may be written, too.
_writing = threading.RLock()


def trace(stacks: bool | None = None) -> dict[str, Any]:
    """Return the entries of mcast groups in torch's Flight Recorder, with the details known here.

    Args:
        stacks: whether entries have the stacks that posted them; None: as TORCH_INCLUDE_STACK_TRACE says.
    """
    if not RECORDS:
        raise errors.UnsupportedError("this torch records its own backends alone; torch 2.15 records ours")
    with _writing:
        found: dict[str, Any] = pickle.loads(_dump(stacks))
        for recorder in list(_recorders.values()):
            recorder.complete(found)
    return found


class _NotLoaded:
    """Stands for torch._inductor where the program has not loaded it, and so has no compiled code.

    torch asks it for the lines of compiled code, and would load it for the question. That takes seconds, in
    which a program that has failed would not end.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "codecache":
            raise AttributeError(name)  # the question
        return getattr(importlib.import_module("torch._inductor"), name)  # of another thread


def _dump(stacks: bool | None) -> bytes:
    """Return torch's trace, pickled."""
    if "torch._inductor" not in sys.modules:
        torch.__dict__.setdefault("_inductor", _NotLoaded())
    try:
        return c10d._dump_fr_trace(True, stacks, False, NAME)
    finally:
        if isinstance(torch.__dict__.get("_inductor"), _NotLoaded):
            del torch.__dict__["_inductor"]


def write() -> str:
    """Write the trace of this rank to its file; return its path.

    The file is where torch's own backends write theirs: the name in
    TORCH_FR_DUMP_TEMP_FILE and the rank after it.
    """
    with _writing:
        found = trace()
        path = Path(_prefix() + str(dist.get_rank() if dist.is_initialized() else 0))
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_bytes(pickle.dumps(found))
        half.rename(path)
    return str(path)


def _buffer_size() -> int:
    """Return how many entries torch keeps."""
    if not RECORDS:
        return 0
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        if value := os.environ.get(name):
            return int(value)
    return 2000


def _write_because(what: str) -> None:
    try:
        path = write()
    except Exception as e:  # what has happened matters more than its trace
        _log.debug("no trace of the Flight Recorder: %s", e)
    else:
        _log.warning("%s; the operations of this rank are in %s, for torchfrtrace", what, path)


def _prefix() -> str:
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        if prefix := os.environ.get(name):
            return prefix
    return str(Path.home() / ".cache/torch/comm_lib_trace_rank_")


def _wanted() -> bool:
    for name in ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"):
        if value := os.environ.get(name):
            return value.lower() not in ("0", "n", "no", "f", "false")
    return True
