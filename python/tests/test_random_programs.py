"""Random FSDP2 programs give the same bits with enable() as without; `make random` runs many more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .random_programs.control import Ranks, hunt

PROGRAMS = 25
FOUND = ("gathers for a backward", "keeps what was not used", "unfinished in hooks", "gathers for itself")
FOUND_WITHIN = 300  # programs


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    ranks = Ranks(2, "shm")
    yield ranks
    ranks.close()


def test_programs_give_the_same_bits_with_enable(pair: Ranks) -> None:
    tally = hunt(pair, PROGRAMS, start=0)
    assert tally.programs == PROGRAMS
    assert not tally.failures, tally.failures
    assert tally.observations > 5 * PROGRAMS, "programs that do nothing would find nothing"


def test_programs_that_are_run_without_enable_twice_do_not_differ(pair: Ranks) -> None:
    tally = hunt(pair, PROGRAMS, start=1, fault="not enabled")
    assert not tally.failures, tally.failures


@pytest.mark.more
@pytest.mark.parametrize("fault", FOUND)
def test_a_planted_fault_is_found(pair: Ranks, fault: str) -> None:
    assert hunt(pair, FOUND_WITHIN, start=0, fault=fault, shrinking_s=0).failures
