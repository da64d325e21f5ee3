"""A training as a child process: started, followed by its output, ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TextIO

_LIMIT_S = 600  # a run that takes longer is stuck
_GRACE_S = 40  # torchrun gives its workers 30 s to end

Show = Callable[[int, str], None]  # steps done, what to say


class Choice(NamedTuple):
    """What a run trains over."""

    name: str  # of its file
    label: str
    backend: str
    fabric: str = ""
    switch: bool = False
    schedule: str = "overlap"  # of train.py


class RunFailed(Exception):
    """A training run ended badly; the message says which rank and why."""


def environment() -> dict[str, str]:
    """Return this process's environment with no settings of ours but where the library is."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_") or k == "MCAST_LIBRARY"}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def follow(command: list[str], env: dict[str, str], log: TextIO, out: Path, show: Show) -> int:
    """Run a command, show the lines that it writes to out, return its exit code; 124: it took too long."""
    out.unlink(missing_ok=True)
    started = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while (code := started.poll()) is None:
            _show_progress(out, show)
            if time.monotonic() > deadline:
                return 124
            time.sleep(0.25)
        _show_progress(out, show)
        return code
    finally:
        _end(started)


def tail(text: str, lines: int = 20) -> str:
    """Return the last lines of a log, indented."""
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines()[-lines:])


def late(label: str, log: str) -> str:
    """Say that a run took too long."""
    return f"The run {label} was not done after {_LIMIT_S} s.\n{tail(log)}"


def _show_progress(out: Path, show: Show) -> None:
    if not out.exists():
        return
    lines = [line for line in out.read_text().splitlines() if '"record": "step"' in line]
    found = re.search(r'"loss": ([0-9.]+)', lines[-1]) if lines else None
    if found:
        show(len(lines), f"loss {float(found[1]):.4f}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher, which ends its ranks, and wait for it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
