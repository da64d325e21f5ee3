"""A rank in a network namespace of its own."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

CLONE_NEWNET = 0x40000000  # <linux/sched.h>
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def enter(namespace: str) -> None:
    """Move this thread, the only one of a process that was just forked, into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    fd = os.open(Path("/run/netns", namespace), os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"network namespace {namespace}")
    os.close(fd)
