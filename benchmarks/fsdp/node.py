"""A switch for one run: `mcast switch` as a process of our own."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MCAST = Path(__file__).resolve().parents[2] / "bin" / "mcast"
LAB = MCAST.with_name("mcast-lab")
_LIMIT_S = 600  # to start and to end; it takes so long on no machine that is alive
_SAYS = "listening on "


class NodeFailed(Exception):
    """The switch did not start, or did not end well; the message has its output."""


def unbuilt() -> str | None:
    """Return in one line which program has not been built, or None: a testbed needs both."""
    for program in (MCAST, LAB):
        if not program.exists():
            return f"bin/{program.name} is not built: run `make build` first"
    return None


@contextmanager
def node() -> Iterator[str]:
    """Start a node on a free port of this host, give its address, end it by its process id."""
    if not MCAST.exists():
        raise NodeFailed(f"{MCAST.name} is not built: run `make build` first")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCAST_")}
    with tempfile.TemporaryFile() as log:
        started = subprocess.Popen(
            [MCAST, "switch", "--bind", "127.0.0.1:0"], env=environment, stdout=subprocess.PIPE, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            address = _address(started)
            if address:
                yield address
        finally:
            code = _end(started)
            log.seek(0)
            said = log.read().decode(errors="replace")
        if not address or code != 0:
            raise NodeFailed(f"The switch ended with exit code {code}. Its log:\n{said}")


def _address(process: subprocess.Popen[bytes]) -> str:
    """Return where the node listens, or "" if it does not say so."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        if not ready.select(_LIMIT_S):
            return ""
    line = process.stdout.readline().decode().strip()
    return line.removeprefix(_SAYS) if line.startswith(_SAYS) else ""


def _end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()
