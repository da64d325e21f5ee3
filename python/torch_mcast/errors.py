"""Exceptions: one for each error code of mcast.h, and those of loading the library."""

from __future__ import annotations


class McastError(RuntimeError):
    """Any error that torch_mcast reports; the message says what was wrong and which values are allowed.

    Attributes:
        rank: the number in the group of the rank that it is about, or None where it is about none.
    """

    rank: int | None = None


# BEGIN errors: written by "go generate ./internal/api" from internal/api/errors.go


class ArgumentError(McastError, ValueError):
    """A wrong argument, setting or option; the message names it and the allowed values.

    Nothing was begun, and the group goes on.
    """


class UnavailableError(McastError):
    """The machine lacks something that the group needs; the message says what.

    There is no group: provide it, or set what the message names.
    """


class WaitTimeoutError(McastError, TimeoutError):
    """The time given to a wait or to a join ran out (a join has MCAST_JOIN_TIMEOUT at most).

    The operation goes on: wait again. After a join there is no group.
    """


class RankError(McastError):
    """A rank died, stopped, was cut off, left or aborted; its number comes with the error.

    The group has ended on all ranks: read the log of that rank first.
    """


class MismatchError(McastError):
    """Ranks disagree about an operation or a setting.

    The group has ended on all ranks: the script calls different things on them, or settings
    differ.
    """


class ClosedError(McastError):
    """The group, endpoint or work is unknown or closed.

    It was used after this rank had closed or destroyed it.
    """


class BusyError(McastError):
    """Too many operations, 1024, are waiting already.

    The group goes on: wait for one of them. torch_mcast does so by itself.
    """


class InternalError(McastError):
    """Something else failed: the operating system, or the library has a defect.

    The message says what failed; if the machine is not at fault, report it.
    """


class LibraryError(McastError, OSError):
    """The shared library was not found, or does not fit this package.

    Run `make build`, or set MCAST_LIBRARY.
    """


class ForkError(McastError):
    """The library was used in a child of fork() after its parent had loaded it.

    Start the child by spawn, or fork before the first group is made.
    """


class UnsupportedError(McastError, NotImplementedError):
    """The backend does not have this part of torch.distributed.

    Use another group for it, such as one of gloo (docs/reference/torch.md).
    """


OK = 0
E_ARGUMENT = 1
E_UNAVAILABLE = 2
E_TIMEOUT = 3
E_RANK = 4
E_MISMATCH = 5
E_CLOSED = 6
E_BUSY = 7
E_INTERNAL = 8

BY_CODE: dict[int, type[McastError]] = {
    E_ARGUMENT: ArgumentError,
    E_UNAVAILABLE: UnavailableError,
    E_TIMEOUT: WaitTimeoutError,
    E_RANK: RankError,
    E_MISMATCH: MismatchError,
    E_CLOSED: ClosedError,
    E_BUSY: BusyError,
    E_INTERNAL: InternalError,
}
# END errors


def from_code(code: int, message: str, rank: int | None = None) -> McastError:
    """Return the exception for an MCAST_E_* code of mcast.h that is about a rank."""
    kind = BY_CODE.get(code)
    if kind is None:
        return InternalError(f"unknown error code {code}: {message}")
    error = kind(message or (kind.__doc__ or "").partition("\n")[0])
    error.rank = rank
    return error
