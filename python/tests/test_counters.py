from __future__ import annotations

from dataclasses import fields, replace

import torch_mcast
from torch_mcast import Stats, errors, structs

NOTHING = Stats(*(0 for _ in fields(Stats)))


def test_print_shows_what_is_not_zero_with_units() -> None:
    stats = replace(
        NOTHING,
        gather_ops=1204, gather_bytes=4_030_000_000, gather_busy_ns=12_345_678_901, gather_peers_ns=999,
        overlap_ns=1_500_000, chunks_repaired=1, chunks_dropped=2, reduce_sent_bytes=999, reduce_bytes=1000,
    )  # fmt: skip
    assert str(stats).splitlines() == [
        "Allgather, Broadcast and Barrier",
        "  gather_ops              1,204 operations",
        "  gather_bytes            4.03 GB",
        "  gather_busy_ns          12.3 s",
        "  gather_peers_ns         999 ns",
        "Reduce-Scatter and Reduce",
        "  reduce_bytes            1 kB",
        "  reduce_sent_bytes       999 bytes",
        "Both at once",
        "  overlap_ns              1.5 ms",
        "Losses and repairs",
        "  chunks_repaired         1 chunk",
        "  chunks_dropped          2 chunks",
    ]
    assert "gather_ops=1204, gather_bytes=4030000000" in repr(stats)


def test_print_of_large_amounts() -> None:
    text = str(replace(NOTHING, gather_bytes=1234 * 10**12, gather_busy_ns=86_400 * 10**9, gather_ops=10**7))
    assert "  gather_bytes            1,234 TB\n" in text
    assert text.endswith("  gather_busy_ns          86,400 s")
    assert "  gather_ops              10,000,000 operations\n" in text


def test_print_of_what_rounds_up_to_the_next_scale() -> None:
    text = str(replace(NOTHING, gather_bytes=999_600, gather_busy_ns=999_600, reduce_bytes=999_400))
    assert text.splitlines()[1:3] == ["  gather_bytes            1 MB", "  gather_busy_ns          1 ms"]
    assert text.endswith("  reduce_bytes            999 kB")
    assert str(replace(NOTHING, gather_bytes=999_600 * 10**9)).endswith("  gather_bytes            1,000 TB")


def test_print_of_nothing() -> None:
    assert str(NOTHING) == "all counters are 0"


def test_difference_of_two_readings() -> None:
    earlier = replace(NOTHING, gather_ops=3, warnings=1)
    assert replace(NOTHING, gather_ops=5, warnings=1) - earlier == replace(NOTHING, gather_ops=2)


def test_every_counter_has_a_unit_and_a_place() -> None:
    named = [name for units in Stats.units.values() for name in units]
    assert sorted(named) == sorted(f.name for f in fields(Stats))
    assert [field[0] for field in structs.StatsStruct._fields_] == ["size", *(f.name for f in fields(Stats))]


def test_every_exception_can_be_caught_from_the_package() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.McastError)]
    assert len(kinds) > len(errors.BY_CODE)
    for kind in kinds:
        assert getattr(torch_mcast, kind.__name__) is kind
        assert kind.__name__ in torch_mcast.__all__


def test_an_error_without_a_message_says_what_its_kind_is() -> None:
    assert str(errors.from_code(errors.E_BUSY, "")) == "Too many operations, 1024, are waiting already."
