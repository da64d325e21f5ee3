"""Random FSDP2 programs give the same bits with enable() as without; `make random` runs many more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .random_programs.control import Ranks, hunt
from .random_programs.faults import FAULTS

PROGRAMS = 25
FOUND = [name for name, fault in FAULTS.items() if fault.within]
QUICK = ("unfinished in hooks", "adds what is not there")


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    ranks = Ranks(2, "shm")
    yield ranks
    ranks.close()


def test_programs_give_the_same_bits_with_enable(pair: Ranks) -> None:
    tally = hunt(pair, PROGRAMS, start=0)
    assert tally.programs == PROGRAMS + 1  # and the simplest
    assert not tally.failures, tally.failures
    assert tally.observations > 5 * PROGRAMS, "programs that do nothing would find nothing"


def test_programs_that_are_run_without_enable_twice_do_not_differ(pair: Ranks) -> None:
    tally = hunt(pair, PROGRAMS, start=1, fault="not enabled")
    assert not tally.failures, tally.failures


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=() if f in QUICK else pytest.mark.more) for f in FOUND]
)
def test_a_planted_fault_is_found(pair: Ranks, fault: str) -> None:
    planted = FAULTS[fault]
    assert hunt(pair, planted.within, 0, planted.compilers, fault, shrinking_s=0).failures


def test_a_program_that_is_slow_is_told_of_with_stacks(capfd: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(2, "shm", slow_s=0)  # so each is slow
    try:
        assert not hunt(ranks, 1, start=0).failures
    finally:
        ranks.close()
    told = capfd.readouterr().err
    assert '{"ranks": 2' in told
    assert "stacks of rank 0" in told
    assert "stacks of rank 1" in told
    assert "_serve" in told


def test_a_program_that_ends_torch_is_no_difference(pair: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what plain FSDP2 over gloo does as well is torch's: a process that we end is a difference."""
    monkeypatch.setattr(pair, "_ends_torch", lambda _: True)
    assert not hunt(pair, 1, start=3, fault="ends its process").failures
    monkeypatch.undo()
    assert hunt(pair, 1, start=3, fault="ends its process", shrinking_s=0).failures
