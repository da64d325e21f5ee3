"""torch's Flight Recorder: which operations this rank has posted, and which of them are done.

torch records what passes its process groups, with sizes, types and stacks. It
cannot see when a backend in Python completes an operation: that is added here
as a trace is written. `torchfrtrace` reads the traces of all ranks together.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from . import errors
from .options import NAME
from .work import DelegatedWork, McastWork

_log = logging.getLogger(__name__)


class Recorder:
    """The operations of one group that are not known to be done, by the number that torch records."""

    def __init__(self) -> None:
        self._group = ""
        self._newest = 0
        self._posted: dict[McastWork, int] = {}
        self._failed: set[int] = set()
        self._late = False
        self._delegated: weakref.WeakKeyDictionary[DelegatedWork, int] = weakref.WeakKeyDictionary()

    def open(self, group: str) -> None:
        """Take torch's name of the process group, by which its entries are known."""
        self._group = group
        _recorders[group] = self

    def posted(self, work: McastWork, number: int) -> None:
        """Note an operation of the library."""
        self._newest = number
        self._posted[work] = number

    def delegated(self, work: DelegatedWork, number: int) -> None:
        """Note an operation of gloo."""
        self._newest = number
        self._delegated[work] = number

    def completed(self, work: McastWork) -> None:
        """Note that an operation is done and well."""
        self._posted.pop(work, None)

    def failed(self, work: McastWork, what: str) -> None:
        """Note that an operation has failed, and write the trace of this process if it is the first."""
        first = not self._failed
        self._failed.add(self._posted.pop(work))
        if first:
            self._report(what)

    def late(self, what: str) -> None:
        """Write the trace of this process if this is the first wait of the group that runs out of time."""
        first, self._late = not self._late, True
        if first:
            self._report(what)

    def _report(self, what: str) -> None:
        """Write the trace because of what has happened, if torch's settings allow it.

        A thread writes it, since torch takes seconds to name the lines of the program, and whoever
        waits for the operation is told at once. The end of the program waits for the thread, but for
        one that starts later than that: at exit the trace is written here.
        """
        if not _wanted():
            return
        if threading.main_thread().is_alive():
            threading.Thread(target=_write_because, args=(what,), name="mcast-trace").start()
        else:
            _write_because(what)

    def close(self) -> None:
        """Leave the entries of a group that never failed as torch recorded them."""
        if not self._failed and _recorders.get(self._group) is self:
            del _recorders[self._group]

    def complete(self, entries: list[dict[str, Any]]) -> None:
        """Write into the entries of this group which operations are done."""
        unfinished = {number for work, number in list(self._posted.items()) if not work.poll()}
        unfinished |= self._failed
        unfinished.update(n for work, n in list(self._delegated.items()) if not work.is_success())
        later = self._newest + 1
        for entry in reversed(entries):
            if entry["process_group"][0] != self._group or entry["is_p2p"]:
                continue
            number = entry["collective_seq_id"]
            if number >= later:  # of a group of this name before, or of another backend
                break
            later = number
            entry["retired"] = number not in unfinished
            if entry["retired"]:
                entry["state"] = "completed"


_recorders: dict[str, Recorder] = {}
# One dead rank fails many groups. Reentrant: to write is to ask works whether they are done, and a
# failure that is found so may be written, too.
_writing = threading.RLock()


def write() -> str:
    """Write what torch's Flight Recorder holds of mcast groups to this rank's file; return its path.

    The file is where torch's own backends write theirs: the name in
    TORCH_FR_DUMP_TEMP_FILE and the rank after it.
    """
    if not hasattr(c10d, "FlightRecorderHook"):
        raise errors.UnsupportedError("this torch records its own backends alone; torch 2.15 records ours")
    with _writing:
        trace: dict[str, Any] = pickle.loads(c10d._dump_fr_trace(True, None, False, NAME))
        for recorder in list(_recorders.values()):
            recorder.complete(trace["entries"])
        path = Path(_prefix() + str(dist.get_rank() if dist.is_initialized() else 0))
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_bytes(pickle.dumps(trace))
        half.rename(path)
    return str(path)


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
