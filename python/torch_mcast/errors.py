"""Exceptions: one for each error code of mcast.h, and those of loading the library."""

from __future__ import annotations

import re


class McastError(RuntimeError):
    """Anything that torch_mcast reports; the message says what was wrong and what is allowed."""


class LibraryError(McastError, OSError):
    """The shared library was not found, or is not one that this package understands."""


class ForkError(McastError):
    """The library was used in a child of fork() whose parent had loaded it already."""


class ArgumentError(McastError, ValueError):
    """A wrong argument or option."""


class UnsupportedError(McastError, NotImplementedError):
    """Something of torch.distributed that the backend does not do."""


class UnavailableError(McastError):
    """The machine lacks something that the fabric needs."""


class WaitTimeoutError(McastError, TimeoutError):
    """The time given to a wait ran out; the operation itself goes on."""


class RankError(McastError):
    """A rank died, stopped or was cut off.

    Attributes:
        rank: its number in the group, or None where the message names none.
    """

    def __init__(self, message: str) -> None:
        """Take the number of the rank from the library's message."""
        super().__init__(message)
        found = re.search(r"\brank (\d+)", message)
        self.rank: int | None = int(found.group(1)) if found else None


class MismatchError(McastError):
    """Ranks disagree about an operation or a setting."""


class ClosedError(McastError):
    """The group, endpoint or work is closed."""


class BusyError(McastError):
    """As many operations as the library holds are in flight already."""


class InternalError(McastError):
    """A defect of the library."""


_BY_CODE: dict[int, type[McastError]] = {
    1: ArgumentError,
    2: UnavailableError,
    3: WaitTimeoutError,
    4: RankError,
    5: MismatchError,
    6: ClosedError,
    7: BusyError,
    8: InternalError,
}


def from_code(code: int, message: str) -> McastError:
    """Return the exception for an MCAST_E_* code of mcast.h."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return InternalError(f"unknown error code {code}: {message}")
    return kind(message or kind.__doc__ or "")
