"""When each rank came to the last collectives, from traces of torch's Flight Recorder."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple


class Arrival(NamedTuple):
    """When the ranks of a group came to a collective, by their own clocks.

    Attributes:
        group: torch's name of the process group.
        number: of the collective in the group.
        operation: as torch names it, e.g. "mcast:all_gather".
        first, last: global ranks that posted it first and last.
        apart_ms: how much later the last was.
        missing: global ranks without an entry for it.
        unfinished: global ranks on which it is not done.
    """

    group: str
    number: int
    operation: str
    first: int
    last: int
    apart_ms: float
    missing: list[int]
    unfinished: list[int]


def arrivals(traces: Mapping[int, dict[str, Any]]) -> list[Arrival]:
    """Return the collectives in traces of the Flight Recorder by global rank, oldest first."""
    posted: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    members: dict[str, set[int]] = {}
    for rank, trace in traces.items():
        for name, config in trace.get("pg_config", {}).items():
            members.setdefault(name, set()).update(ast.literal_eval(config["ranks"]))
        for entry in trace["entries"]:
            if not entry["is_p2p"]:
                key = entry["process_group"][0], entry["collective_seq_id"]
                posted.setdefault(key, {})[rank] = entry
    found = []
    for (group, number), entries in sorted(posted.items(), key=lambda item: _first(item[1])):
        when = {rank: entry["time_created_ns"] for rank, entry in entries.items()}
        first, last = min(when, key=when.__getitem__), max(when, key=when.__getitem__)
        found.append(
            Arrival(
                group,
                number,
                entries[first]["profiling_name"],
                first,
                last,
                (when[last] - when[first]) / 1e6,
                sorted(members.get(group, set()) - entries.keys()),
                sorted(rank for rank, entry in entries.items() if entry["state"] != "completed"),
            )
        )
    return found


def _first(entries: dict[int, dict[str, Any]]) -> int:
    first: int = min(entry["time_created_ns"] for entry in entries.values())
    return first
