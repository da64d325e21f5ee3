"""A small draw of random collectives; `python -m tests.random_collectives` runs as many as are asked for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .random_collectives import FAULTS, Program, draw, keep, replay, search
from .world import World


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_small_draw(fabric: str, ranks: int) -> None:
    world = World(ranks, MCAST_FABRIC=fabric)
    try:
        assert search(world, 34 + ranks, 150) is None
    finally:
        world.close()


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_planted_fault_is_found(fault: str) -> None:
    world = World(2, MCAST_FABRIC="shm")
    try:
        assert search(world, 0, 100, fault) is not None
    finally:
        world.close()


def test_a_program_that_is_kept_is_run_again(tmp_path: Path) -> None:
    program = draw(random.Random(5))
    assert Program.from_json(program.to_json()) == program
    keep(tmp_path / "failed" / "one.json", program, 2)
    assert not replay(tmp_path / "failed" / "one.json", "shm")
