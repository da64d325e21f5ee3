from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world import World


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
