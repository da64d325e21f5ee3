"""How a program ends, and what becomes of the groups that it has not left.

A program that fails waits for nobody, and the other ranks are told why. One that ends well stays until no
rank needs it. The exit status tells the two apart. Python does not know it at exit, the library does
(mcast_leave_at_exit).
"""

from __future__ import annotations

import atexit
import sys
from types import TracebackType

from . import errors
from .failure import words
from .futures import wait_for_callbacks
from .group import Group, open_groups

_CALLBACKS_S = 1.0  # for callbacks: one that goes on for longer does not keep a program that has failed
_LOOK_S = 10.0  # between looks at a device that may fail

_watching = False


def abort_all(reason: str) -> None:
    """Abort all groups of this process."""
    for group in list(open_groups):
        try:
            group.abort(reason)
        except errors.McastError as e:
            print(f"torch_mcast: aborting a group: {e}", file=sys.stderr)


def watch_exceptions() -> None:
    """Have an exception that ends the program tell the other ranks at once, not at exit."""
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        try:
            if not (sys.flags.interactive or hasattr(sys, "ps1")):  # where it ends a line, not the program
                abort_all(f"its script ended with {words(value)}")
        finally:
            before(kind, value, trace)

    sys.excepthook = hook


@atexit.register
def end_operations() -> None:
    """End operations in flight, as their memory goes with the interpreter.

    Groups with such operations are left here, all before any is waited for: ranks may come to them in any
    order. No thread is started, which Python 3.12.0 and 3.12.1 refuse at exit.
    """
    busy = [group for group in list(open_groups) if group.busy()]
    for group in busy:
        group.leave()
    for group in busy:
        while not _wait_left(group, _LOOK_S):
            pass
    wait_for_callbacks(_CALLBACKS_S)


def _wait_left(group: Group, seconds: float) -> bool:
    """Wait at most this long; say whether there is nothing more to wait for."""
    try:
        if group.broken():
            group.abort("its CUDA device has failed")
        return group.wait_left(seconds)
    except errors.McastError as e:
        print(f"torch_mcast: closing a group at exit: {e}", file=sys.stderr)
        return True
