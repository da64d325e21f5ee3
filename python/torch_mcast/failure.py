"""The exception that ends a program, or a group of it."""

from __future__ import annotations

import sys

_MOST_SAID = 300  # characters of an exception


def words(failure: BaseException) -> str:
    """Return what an exception says, in one line that is not too long."""
    return " ".join(f"{type(failure).__name__}: {failure}".split())[:_MOST_SAID]


def handled() -> BaseException | None:
    """Return the exception that this thread handles or ends by, unless it stands for a good end."""
    failure = sys.exc_info()[1]
    if isinstance(failure, GeneratorExit) or (isinstance(failure, SystemExit) and not failure.code):
        return None
    return failure
