"""When collectives were in flight, and how long the training waited for them.

Clocks are the host's. On a GPU streams wait: the host goes on at once. So next to nothing is exposed
here, even while the GPU stands waiting, and compute is the time that the host needed to queue it.
When collectives were in flight is determined as on a CPU, by when their results were there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from torch.distributed import Work

Kind = Literal["allgather", "reduce_scatter"]
Span = tuple[float, float]


@dataclass(frozen=True)
class Event:
    """One collective; times are seconds of time.perf_counter().

    Attributes:
        kind: "allgather" or "reduce_scatter".
        start: when it was posted.
        end: when it was done.
        nbytes: bytes of this rank's shard.
        module: the module that it belongs to; "" is the root.
    """

    kind: Kind
    start: float
    end: float
    nbytes: int
    module: str = ""


@dataclass(frozen=True)
class Wait:
    """A stretch during which the training did nothing but wait for a collective."""

    kind: Kind
    start: float
    end: float
    module: str = ""


@dataclass(frozen=True)
class Summary:
    """What a stretch of time was spent on, in seconds.

    Attributes:
        span: its length.
        exposed_allgather: waiting for Allgathers.
        exposed_reduce_scatter: waiting for Reduce-Scatters.
        compute: the rest.
        allgather_in_flight: with at least one Allgather in flight.
        reduce_scatter_in_flight: with at least one Reduce-Scatter in flight.
        both_in_flight: with both.
        all_three: with both, and the training not waiting.
    """

    span: float
    exposed_allgather: float
    exposed_reduce_scatter: float
    compute: float
    allgather_in_flight: float
    reduce_scatter_in_flight: float
    both_in_flight: float
    all_three: float


class Timeline:
    """Records events between start() and stop(); costs nothing outside of that.

    Attributes:
        events: collectives of the last recording that were waited for.
        waits: when the training waited.
        began: when it was started, in seconds of time.perf_counter().
        ended: when it was stopped.
    """

    def __init__(self) -> None:
        self.recording = False
        self.events: list[Event] = []
        self.waits: list[Wait] = []
        self.began = self.ended = 0.0

    def start(self) -> None:
        """Drop what was recorded and record from now on."""
        self.events, self.waits = [], []
        self.began = self.ended = time.perf_counter()
        self.recording = True

    def stop(self) -> Summary:
        """Stop recording and sum up the time since start(), over collectives that were waited for."""
        self.recording = False
        self.ended = time.perf_counter()
        return summarize(self.events, self.waits, self.began, self.ended)

    def track(
        self, kind: Kind, work: Work, start: float, nbytes: int, module: str = "", on_gpu: bool = False
    ) -> Callable[[], None]:
        """Record a collective in flight since `start`; return what to call when a wait for it has returned.

        It ends when its future says so, or where the backend has none (gloo's
        Reduce-Scatter), when the wait has returned; on a GPU a wait that
        returns says nothing.
        """
        if not self.recording:
            return lambda: None
        once = threading.Lock()
        events = self.events

        def done() -> None:
            if once.acquire(blocking=False):
                events.append(Event(kind, start, time.perf_counter(), nbytes, module))

        with contextlib.suppress(RuntimeError):
            work.get_future().add_done_callback(lambda _: done())
            if on_gpu:
                return lambda: None
        return done

    def waited(self, kind: Kind, start: float, module: str = "") -> None:
        """Record that the training waited since `start`."""
        if self.recording:
            self.waits.append(Wait(kind, start, time.perf_counter(), module))


def summarize(events: Iterable[Event], waits: Iterable[Wait], start: float, end: float) -> Summary:
    """Sum up what lies between start and end (seconds of time.perf_counter())."""
    events, waits = list(events), list(waits)

    def clip(spans: Iterable[Span]) -> list[Span]:
        return union((max(a, start), min(b, end)) for a, b in spans)

    gathers = clip((e.start, e.end) for e in events if e.kind == "allgather")
    reduces = clip((e.start, e.end) for e in events if e.kind == "reduce_scatter")
    wait_gather = clip((w.start, w.end) for w in waits if w.kind == "allgather")
    wait_reduce = clip((w.start, w.end) for w in waits if w.kind == "reduce_scatter")
    both = intersection(gathers, reduces)
    waiting = union([*wait_gather, *wait_reduce])
    return Summary(
        span=end - start,
        exposed_allgather=length(wait_gather),
        exposed_reduce_scatter=length(wait_reduce),
        compute=end - start - length(waiting),
        allgather_in_flight=length(gathers),
        reduce_scatter_in_flight=length(reduces),
        both_in_flight=length(both),
        all_three=length(both) - length(intersection(both, waiting)),
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """Return the same points as disjoint spans in order; empty and reversed spans vanish."""
    merged: list[Span] = []
    for a, b in sorted(s for s in spans if s[1] > s[0]):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], b))
        else:
            merged.append((a, b))
    return merged


def intersection(left: list[Span], right: list[Span]) -> list[Span]:
    """Return the points in both of two lists of disjoint spans in order."""
    found: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if a < b:
            found.append((a, b))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(spans: Iterable[Span]) -> float:
    """Return the length of disjoint spans together."""
    return sum(b - a for a, b in spans)
