"""Common to all tests; keeps out the settings and signals of the process that started them."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before the tests are imported, which look at some of these, and before any process is started.
STEERS = {"MCAST_LIBRARY", "MCAST_TORCH_CUDA", "MCAST_TORCH_NCCL"}  # library, and programs to test with
for name in [name for name in os.environ if name.startswith("MCAST_") and name not in STEERS]:
    del os.environ[name]
# A process that the machine does not run for a while is late, not lost: only tests of that set less.
os.environ |= {"MCAST_TIMEOUT": "1h", "MCAST_JOIN_TIMEOUT": "1h"}
# Processes that tests start import the package that pytest does, and the tests' own modules.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)
# Python's servers of processes have Unix sockets in the temporary directory: 107 bytes of path.
if len(tempfile.gettempdir()) > 50:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
# A signal that is ignored is ignored in children, too. SIGINT and SIGHUP stay so: a run in the background
# outlives them. Tests that send them set them where they are sent to.
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from .world import World  # noqa: E402

hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
def _worlds() -> Iterator[list[World]]:
    worlds: list[World] = []
    yield worlds
    for world in worlds:
        world.close()


@pytest.fixture
def world(_worlds: list[World]) -> World:
    """Four ranks over shm by default, kept over tests unless one broke it."""
    if not _worlds or _worlds[-1].broken:
        # No interface is named to gloo: it is to use the address that the group has.
        _worlds.append(World(4, MCAST_FABRIC="shm", GLOO_SOCKET_IFNAME=""))
    return _worlds[-1]


@pytest.fixture(params=["shm", "udp"])
def fabric(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
