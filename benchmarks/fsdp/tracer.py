"""What happened in a training step: collectives, waits, and the bytes that passed an interface."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_mcast.timeline import Timeline

_PERIOD_S = 0.01
_COUNTERS = Path("/proc/thread-self/net/dev")  # of this thread's network namespace


@dataclass
class _Step:
    number: int
    start: float
    step_s: float
    record: dict[str, Any]


class Tracer:
    """Keeps the timeline of every step, and of the interface with the most traffic a sample each 10 ms."""

    def __init__(self, timeline: Timeline | None) -> None:
        """Trace what a timeline records; without one, nothing."""
        self.on = timeline is not None
        self._timeline = timeline
        self._steps: list[_Step] = []
        self._samples: list[tuple[float, dict[str, tuple[int, int]]]] = []
        self._ended = threading.Event()
        self._sampler: threading.Thread | None = None

    def start(self) -> None:
        """Begin a step."""
        if not self.on:
            return
        self._samples, self._ended = [], threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def stop(self, number: int, start: float, step_s: float) -> None:
        """End a step; call it before the timeline's stop."""
        if self._timeline is None or self._sampler is None:
            return
        self._ended.set()
        self._sampler.join()
        events = [
            {"kind": e.kind, "start_s": e.start - start, "end_s": e.end - start, "nbytes": e.nbytes}
            for e in self._timeline.events
        ]
        waits = [
            {"kind": w.kind, "start_s": w.start - start, "end_s": w.end - start} for w in self._timeline.waits
        ]
        record = {"events": events, "waits": waits, **self._traffic(start)}
        self._steps.append(_Step(number, start, step_s, record))

    def median(self) -> dict[str, Any]:
        """Return the record of the step of median time, the first two left out if there are more."""
        steps = sorted(self._steps[2:] or self._steps, key=lambda s: s.step_s)
        step = steps[len(steps) // 2]
        return {"step": step.number, "step_s": step.step_s, **step.record}

    def _sample(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            self._samples.append((time.perf_counter(), interfaces()))

    def _traffic(self, start: float) -> dict[str, Any]:
        """Return the bytes received and sent since the first sample, of the busiest interface."""
        if not self._samples:
            return {"interface": "", "samples": []}
        first, last = self._samples[0][1], self._samples[-1][1]
        name = max(first, key=lambda n: sum(last.get(n, (0, 0))) - sum(first[n]), default="")
        r0, s0 = first.get(name, (0, 0))
        samples = [
            {"at_s": at - start, "received": seen[name][0] - r0, "sent": seen[name][1] - s0}
            for at, seen in self._samples
            if name in seen
        ]
        return {"interface": name, "samples": samples}


def passed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Return the bytes between two readings of interfaces(), of the busiest interface."""
    both = [(after[name][0] - r, after[name][1] - s) for name, (r, s) in before.items() if name in after]
    received, sent = max(both, key=sum, default=(0, 0))
    return {"received": received, "sent": sent}


def interfaces() -> dict[str, tuple[int, int]]:
    """Return each interface's bytes received and sent so far."""
    found = {}
    for line in _COUNTERS.read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        fields = numbers.split()
        found[name.strip()] = (int(fields[0]), int(fields[8]))
    return found
