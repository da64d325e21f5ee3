"""Fresh processes that load the library: it stays loaded, so every case has its own.

Scripts that need no torch go without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from torch_mcast import _lib

from .limits import LIMIT_S

# dispositions(): {signal: (handler, flags)} of all that sigaction tells about, and the kernel's
# words on all 64. load(): the library, after a call that has waited for Go to be up. SIGINT raises
# KeyboardInterrupt, even where a shell has started all this in the background, with SIGINT ignored.
PRELUDE = """
import ctypes, os, signal, subprocess, sys, threading, time
from tests.limits import LIMIT, LIMIT_MS, LIMIT_S, until

signal.signal(signal.SIGINT, signal.default_int_handler)

class Sigaction(ctypes.Structure):  # struct sigaction of glibc
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]

class Stack(ctypes.Structure):  # stack_t
    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

libc = ctypes.CDLL(None, use_errno=True)
SA_ONSTACK = 0x08000000

def dispositions():
    found = {}
    for number in range(1, 65):
        action = Sigaction()
        if libc.sigaction(number, None, ctypes.byref(action)) == 0:
            found[number] = (action.handler or 0, action.flags & 0xffffffff)
    assert len(found) == 62, found  # glibc keeps 32 and 33 to itself; status tells about them
    return found

def status(field):
    with open("/proc/thread-self/status") as lines:
        return int(next(line.split()[1] for line in lines if line.startswith(field)), 16)

def name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

def load():
    library = ctypes.CDLL(os.environ["MCAST_LIBRARY"])
    library.mcast_version.restype = ctypes.c_char_p
    assert library.mcast_version()
    return library

def altstack():
    stack = Stack()
    assert libc.sigaltstack(None, ctypes.byref(stack)) == 0
    return stack.address, stack.flags, stack.size
"""


def host(script: str, *, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run PRELUDE and the script in a fresh interpreter and check how it ends."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        env=os.environ | {"MCAST_LIBRARY": str(_lib.find())},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == status, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


# Two ranks, so that rank 0 can wait for an operation that rank 1 has not posted yet.
# Before the limit both say where they hang.
PAIR = """
import faulthandler, tempfile
faulthandler.dump_traceback_later(LIMIT_S - 60, exit=True)
import torch, torch.distributed as dist, torch_mcast

RANK = int(os.environ.get("PAIR_RANK", "0"))
if RANK == 0:
    os.environ["PAIR_STORE"] = tempfile.mktemp(prefix="mcast-test-")
    os.environ["MCAST_FABRIC"] = "shm"
    peer = subprocess.Popen(
        [sys.executable, "-c", os.environ["PAIR_SCRIPT"]],
        env=os.environ | {"PAIR_RANK": "1"}, stdin=subprocess.PIPE)
dist.init_process_group("mcast", store=dist.FileStore(os.environ["PAIR_STORE"], 2), rank=RANK,
                        world_size=2, timeout=LIMIT)
"""


def pair(script: str, monkeypatch: pytest.MonkeyPatch) -> subprocess.CompletedProcess[str]:
    whole = PRELUDE + PAIR + textwrap.dedent(script)
    monkeypatch.setenv("PAIR_SCRIPT", whole)
    return host(PAIR + textwrap.dedent(script))
