from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from torch_mcast.timeline import Event, Wait, intersection, length, summarize, union

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def points(of: list[tuple[float, float]]) -> set[int]:
    return {x for a, b in of for x in range(int(a), int(b))}


@given(spans)
def test_union_keeps_the_points(given_spans: list[tuple[float, float]]) -> None:
    merged = union(given_spans)
    assert points(merged) == points(given_spans)
    assert length(merged) == len(points(given_spans))
    assert all(a[1] < b[0] for a, b in pairwise(merged))


@given(spans, spans)
def test_intersection_is_that_of_the_points(
    left: list[tuple[float, float]], right: list[tuple[float, float]]
) -> None:
    assert points(intersection(union(left), union(right))) == points(left) & points(right)


def test_summary_of_a_step() -> None:
    events = [
        Event("allgather", 0, 4, 1),
        Event("allgather", 3, 6, 1),
        Event("reduce_scatter", 5, 12, 1),
    ]
    waits = [Wait("allgather", 0, 1), Wait("allgather", 5.5, 6), Wait("reduce_scatter", 9, 12)]
    got = summarize(events, waits, 0, 10)
    assert got.allgather_in_flight == 6
    assert got.reduce_scatter_in_flight == 5
    assert got.both_in_flight == 1
    assert got.all_three == 0.5
    assert got.exposed_allgather == 1.5
    assert got.exposed_reduce_scatter == 1
    assert got.compute == 10 - 2.5
