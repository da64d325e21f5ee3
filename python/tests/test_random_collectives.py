"""A small draw of random collectives; `python -m tests.random_collectives` runs as many as are asked for."""

from __future__ import annotations

import pytest

from .random_collectives import search
from .world import World


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_small_draw(fabric: str, ranks: int) -> None:
    world = World(ranks, MCAST_FABRIC=fabric)
    try:
        assert search(world, 34 + ranks, 150) is None
    finally:
        world.close()
