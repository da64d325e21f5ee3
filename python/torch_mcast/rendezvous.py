"""How the ranks of a group learn of each other."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store

from . import errors, replace

_WARN_S = 5.0  # a rank that waits for longer says so
_log = logging.getLogger(__name__)


def exchange(store: Store, rank: int, size: int, blob: bytes, timeout: timedelta) -> list[bytes]:
    """Give every rank the blobs of all, in rank order, through torch's store.

    The store may outlive groups and processes: torchrun keeps one over its restarts, after which there may
    be more ranks or fewer, and no process learns from it which start this is. Entries of dead processes must
    not be taken for answers. So rank 0 calls meetings, which it numbers, and takes the blobs of its own
    meeting. Each other rank brings its blob to one meeting after another, until one ends with this blob
    among those of all. A blob lies under its digest, where no other blob can be; at a meeting a rank gives
    the digest. So a process that comes just as the meeting of another start ends changes nothing for those
    who were there.

    Entries of a meeting are JSON with a version. Older builds gave the blobs themselves, and take the JSON
    for one: their library then tells that this rank speaks another version of the protocol.

    Args:
        store: a store of this group alone.
        rank: rank in the group.
        size: ranks in the group.
        blob: what this rank says; no other process ever says the same.
        timeout: until all are there.

    Raises:
        WaitTimeoutError: at rank 0 with the ranks that have not come. The others wait for rank 0 to end the
            meeting, and name the reason, as far as they know it.
        MismatchError: with the ranks of another build.
    """
    meeting = _Meeting(store, rank, size, time.monotonic() + timeout.total_seconds())
    after = f"the rendezvous after {timeout.total_seconds():g} s"
    try:
        return meeting.call(blob) if rank == 0 else meeting.join(rank, blob)
    except errors.MismatchError:
        raise
    except RuntimeError as e:
        raise errors.WaitTimeoutError(meeting.unfinished(after)) from e


class _Meeting:
    """One meeting after the other. A key is the number with a rank, for its digest, or with a word."""

    def __init__(self, store: Store, rank: int, size: int, deadline: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._deadline = deadline
        self._number = 0
        self._commit = ""  # of this build, for messages
        self._before = 0  # meetings that had been called when this process came
        self._warned = False

    def call(self, blob: bytes) -> list[bytes]:
        """Be rank 0: begin a meeting, and end it when all have come."""
        self._commit = _commit(blob)
        self._number = self._store.add("mcast/meetings", 1)
        before = f"mcast/{self._number - 1}/ended"
        if self._number > 1 and not self._store.check([before]):
            self._set(before, _entry([]))  # its rank 0 is dead
        self._set(self._key(0), _entry([self._keep(blob)]))
        for rank in range(1, self._size):
            self._wait(self._key(rank))
        said = self._get([self._key(rank) for rank in range(self._size)])
        heard = [_digests(each) for each in said]
        if None in heard:
            self._set(self._key("ended"), _ended_before(said))
            raise self._mismatch(0)
        digests = [digest for one in heard for digest in one or []]
        self._set(self._key("ended"), _entry(digests))
        return self._blobs(digests)

    def join(self, rank: int, blob: bytes) -> list[bytes]:
        """Be another rank: come to meetings until one is this process's."""
        self._commit = _commit(blob)
        own = self._keep(blob)
        self._before = self._store.add("mcast/meetings", 0)
        self._number = max(1, self._before)
        while True:
            self._wait(self._key(0))  # not before: a meeting takes entries from its beginning on
            # A meeting that has ended is another start's; some of its ranks may still have to read it.
            if not self._store.check([self._key("ended")]):
                self._set(self._key(rank), _entry([own]))
                self._read(rank, 0)  # a rank 0 of a build before might never end it
                digests = self._read(rank, "ended")
                if len(digests) == self._size and digests[rank] == own:
                    return self._blobs(digests)
            self._number += 1

    def missing(self) -> list[int]:
        """Return the ranks that have not come to this meeting."""
        return [r for r in range(self._size) if not self._store.check([self._key(r)])]

    def unfinished(self, rendezvous: str) -> str:
        """Say who or what keeps this rank waiting in the rendezvous."""
        if self._rank == 0:
            missing = self.missing()
            what = f"{len(missing)} of {self._size} ranks have not come to {rendezvous}: {missing[:16]}"
        else:
            what = f"rank 0 of {self._size} has not ended {rendezvous}: {self.why_unfinished()}"
        if replace.of_replaced.get():
            what += f"; {replace.VARIABLE}={os.environ[replace.VARIABLE]} must be the same on all ranks"
        return what

    def why_unfinished(self) -> str:
        """Return why rank 0 has not ended the meeting, as far as another rank can know."""
        missing = self.missing()
        if 0 in missing:
            return "it has not come"
        if missing:
            why = f"it waits for {len(missing)} ranks that have not come: {missing[:16]}"
        else:
            why = "all ranks have come, it may have died since"
        if self._number <= self._before:
            why += "; or it has not come and the rendezvous is of a start before"
        return why

    def _read(self, rank: int, what: int | str) -> list[str]:
        """Return the digests at a key of the meeting, once it is there, as a rank."""
        self._wait(self._key(what))
        (said,) = self._get([self._key(what)])
        digests = _digests(said)
        if digests is None:
            raise self._mismatch(rank)
        return digests

    def _mismatch(self, rank: int) -> errors.MismatchError:
        """Return that some ranks say what another does not understand: if none does, the next rank 0."""
        there = [r for r in range(self._size) if self._store.check([self._key(r)])]
        said = self._get([self._key(r) for r in there])
        others = [r for r, each in zip(there, said, strict=True) if _digests(each) is None] or [0]
        return errors.MismatchError(
            f"{len(others)} of {self._size} ranks have another build of torch_mcast than rank {rank}"
            f"{self._commit}: {others[:16]}; install the same for all ranks"
        )

    def _key(self, what: int | str) -> str:
        return f"mcast/{self._number}/{what}"

    def _set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)  # type: ignore[arg-type]  # torch takes bytes, too

    def _wait(self, key: str) -> None:
        left = max(self._deadline - time.monotonic(), 0.001)
        if not self._warned and left > _WARN_S:
            with contextlib.suppress(RuntimeError):
                self._store.wait([key], timedelta(seconds=_WARN_S))
                return
            self._warned = True
            _log.warning("%s", self.unfinished(f"the rendezvous within {_WARN_S:g} s"))
            left -= _WARN_S
        self._store.wait([key], timedelta(seconds=left))

    def _get(self, keys: Sequence[str]) -> list[bytes]:
        return [bytes(value) for value in self._store.multi_get(list(keys))]

    def _keep(self, blob: bytes) -> str:
        """Have the store keep a blob, and return its digest."""
        digest = hashlib.sha256(blob).hexdigest()
        self._set(_blob_key(digest), blob)
        return digest

    def _blobs(self, digests: Sequence[str]) -> list[bytes]:
        return self._get([_blob_key(digest) for digest in digests])


_SAID = re.compile(rb'\{"rendezvous":2,"blobs":"((?:[0-9a-f]{64})*)"\}')


def _commit(blob: bytes) -> str:
    """Return the commit that a blob tells, as messages have it behind the rank."""
    try:
        commit = json.loads(blob).get("c", "")
    except (ValueError, AttributeError):  # tests meet with blobs that are none
        commit = ""
    return f" ({commit})" if commit else ""


def _entry(digests: Sequence[str]) -> bytes:
    """Return the entry for blobs with these digests."""
    return f'{{"rendezvous":2,"blobs":"{"".join(digests)}"}}'.encode()


def _digests(said: bytes) -> list[str] | None:
    """Return the digests that are said, or None of what another build says."""
    found = _SAID.fullmatch(said)
    return re.findall(".{64}", found[1].decode()) if found else None


def _ended_before(said: Sequence[bytes]) -> bytes:
    """Return what ended a meeting in builds that said blobs, which then look into all that was said."""
    each = b"".join(hashlib.sha256(blob).digest() for blob in said)
    return hashlib.sha256(each).hexdigest().encode()


def _blob_key(digest: str) -> str:
    return f"mcast/blob/{digest}"
