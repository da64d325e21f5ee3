"""How the ranks of a group learn of each other."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store

from . import errors


def exchange(store: Store, rank: int, size: int, blob: bytes, timeout: timedelta) -> list[bytes]:
    """Give every rank the blobs of all, in rank order, through torch's store.

    The store may outlive groups and processes: torchrun keeps one over its restarts, after which there may
    be more ranks or fewer, and it says to nobody which start this is. What dead processes have left there
    must not be taken for an answer. So rank 0 calls meetings, which it numbers, and takes what is said at
    its own; the others say their blob at one after the other until one ends with that among those of all.

    Args:
        store: a store of this group alone.
        rank: rank in the group.
        size: ranks in the group.
        blob: what this rank says; no other process ever says the same.
        timeout: until all are there.

    Raises:
        WaitTimeoutError: at rank 0 with the ranks that have not come. The others wait for rank 0 to end the
            meeting, and say what they know of why it has not.
    """
    meeting = _Meeting(store, size, time.monotonic() + timeout.total_seconds())
    after = f"the rendezvous after {timeout.total_seconds():g} s"
    try:
        return meeting.call(blob) if rank == 0 else meeting.attend(rank, blob)
    except RuntimeError as e:
        if rank == 0:
            missing = meeting.missing()
            what = f"{len(missing)} of {size} ranks have not come to {after}: {missing[:16]}"
        else:
            what = f"rank 0 of {size} has not ended {after}: {meeting.obstacle()}"
        raise errors.WaitTimeoutError(what) from e


class _Meeting:
    """One meeting after the other. Its keys are its number and a rank, whose blob is there, or a word."""

    def __init__(self, store: Store, size: int, deadline: float) -> None:
        self._store = store
        self._size = size
        self._deadline = deadline
        self._number = 0
        self._before = 0  # meetings that had been called when this process came

    def call(self, blob: bytes) -> list[bytes]:
        """Be rank 0: begin a meeting, and end it when all have come."""
        self._number = self._store.add("mcast/meetings", 1)
        before = f"mcast/{self._number - 1}/ended"
        if self._number > 1 and not self._store.check([before]):
            self._set(before, b"by the next")  # its rank 0 is dead
        self._set(self._key(0), blob)
        for rank in range(1, self._size):
            self._wait(self._key(rank))
        blobs = self._blobs()
        self._set(self._key("ended"), _digest(blobs))
        return blobs

    def attend(self, rank: int, blob: bytes) -> list[bytes]:
        """Be another rank: come to meetings until one is this process's."""
        self._before = self._store.add("mcast/meetings", 0)
        self._number = max(1, self._before)
        while True:
            self._wait(self._key(0))  # not before: a meeting takes what is said when it begins
            # One that has ended is another start's, whose ranks may not all have read it yet.
            if not self._store.check([self._key("ended")]):
                self._set(self._key(rank), blob)
                self._wait(self._key("ended"))
                keys = [self._key(r) for r in range(self._size)]
                if self._store.check(keys):
                    blobs = self._blobs()
                    if bytes(self._store.get(self._key("ended"))) == _digest(blobs):
                        return blobs
            self._number += 1

    def missing(self) -> list[int]:
        """Return the ranks that have not come to this meeting."""
        return [r for r in range(self._size) if not self._store.check([self._key(r)])]

    def obstacle(self) -> str:
        """Return why rank 0 has not ended the meeting, as far as another rank can know."""
        missing = self.missing()
        if 0 in missing:
            return "it has not come"
        if self._number <= self._before:
            return "it waits for others, or has not come and the rendezvous is of a start before"
        if missing:
            return f"it waits for {len(missing)} ranks that have not come: {missing[:16]}"
        return "all ranks have come, it may have died since"

    def _key(self, what: int | str) -> str:
        return f"mcast/{self._number}/{what}"

    def _set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)  # type: ignore[arg-type]  # torch takes bytes, too

    def _wait(self, key: str) -> None:
        left = max(self._deadline - time.monotonic(), 0.001)
        self._store.wait([key], timedelta(seconds=left))

    def _blobs(self) -> list[bytes]:
        return [bytes(value) for value in self._store.multi_get([self._key(r) for r in range(self._size)])]


def _digest(blobs: Sequence[bytes]) -> bytes:
    each = b"".join(hashlib.sha256(blob).digest() for blob in blobs)
    return hashlib.sha256(each).hexdigest().encode()
