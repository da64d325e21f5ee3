"""Exceptions: one for each error code of mcast.h, and those of loading the library."""

from __future__ import annotations


class McastError(RuntimeError):
    """Anything that torch_mcast reports; the message says what was wrong and what is allowed.

    Attributes:
        rank: the number in the group of the rank that it is about, or None where it is about none.
    """

    rank: int | None = None


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
    """The time given to a wait ran out, and the operation itself goes on; or that given to a join."""


class RankError(McastError):
    """A rank died, stopped, was cut off, left the group or aborted: see its attribute rank."""


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


def from_code(code: int, message: str, rank: int | None = None) -> McastError:
    """Return the exception for an MCAST_E_* code of mcast.h that is about a rank."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return InternalError(f"unknown error code {code}: {message}")
    error = kind(message or kind.__doc__ or "")
    error.rank = rank
    return error
