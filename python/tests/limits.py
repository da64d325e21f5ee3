"""How long tests wait: one limit for all of them, and no test's truth depends on it.

It is there so that a hang ends. A machine that is alive has done by then what a test waits for, however
busy it is. Less is waited for only where nothing else is to happen than that time passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

LIMIT_S = 600.0
LIMIT_MS = round(LIMIT_S * 1000)
LIMIT = timedelta(seconds=LIMIT_S)


def until(so: Callable[[], object], what: str) -> None:
    """Wait until something is so; raise AssertionError, which says what, if it is not within the limit."""
    end = time.monotonic() + LIMIT_S
    while not so():
        assert time.monotonic() < end, f"not so after {LIMIT_S:g} s: {what}"
        time.sleep(0.01)
