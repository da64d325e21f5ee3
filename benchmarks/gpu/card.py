"""A GPU: its clock, what PCIe carries of plain copies, and compute that runs beside collectives."""

from __future__ import annotations

import time
from typing import Any

import torch

_COPY_BYTES = 64 << 20
_COPIES = 8
_MOST_PRODUCTS = 10_000  # products of matrices in one measurement


def mark() -> Any:
    """Return an event that has a time; waiting for it leaves the core to others."""
    return torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]


def between(begin: Any, end: Any) -> float:
    """Return the seconds from one event to another."""
    return float(begin.elapsed_time(end)) / 1e3


class Clock:
    """Times work between start() and stop(): on a GPU, work of the current stream; on a CPU, the host's."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        if self._cuda:  # blocking: a wait that spins would count as the collective's CPU time
            self._begin, self._end = mark(), mark()

    def start(self) -> None:
        """Begin."""
        if self._cuda:
            self._begin.record()
        self._at = time.perf_counter()

    def stop(self) -> float:
        """Wait for the end; return seconds."""
        if not self._cuda:
            return time.perf_counter() - self._at
        self._end.record()
        self._end.synchronize()
        return between(self._begin, self._end)


def pcie(device: torch.device, nbytes: int = _COPY_BYTES) -> dict[str, float]:
    """Return bytes a second of plain copies of pinned memory: each way alone, and both ways at once."""
    host = [torch.ones(nbytes, dtype=torch.uint8).pin_memory() for _ in range(2)]
    there = [torch.ones(nbytes, dtype=torch.uint8, device=device) for _ in range(2)]
    streams: Any = [torch.cuda.Stream(device) for _ in range(2)]  # type: ignore[no-untyped-call]

    def seconds(ways: tuple[int, ...]) -> list[float]:
        marks = [(mark(), mark()) for _ in range(2)]
        torch.cuda.synchronize(device)
        for turn in range(_COPIES + 2):
            for way in ways:
                with torch.cuda.stream(streams[way]):
                    if turn == 1:  # the first copy warms up
                        marks[way][0].record()
                    to, of = (host, there) if way == 0 else (there, host)
                    to[way].copy_(of[way], non_blocking=True)
                    if turn == _COPIES:  # the last keeps this way busy while the other one ends
                        marks[way][1].record()
        torch.cuda.synchronize(device)
        return [between(*marks[way]) for way in ways]

    whole = nbytes * _COPIES
    (out,), (into,), (out_both, into_both) = seconds((0,)), seconds((1,)), seconds((0, 1))
    return {
        "out_bytes_per_s": whole / out,
        "in_bytes_per_s": whole / into,
        "both_out_bytes_per_s": whole / out_both,
        "both_in_bytes_per_s": whole / into_both,
    }


class Products:
    """Products of two square matrices on a stream of their own."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._a, self._b = (torch.ones(width, width, dtype=torch.bfloat16, device=device) for _ in range(2))
        self._out = torch.empty_like(self._a)
        self._marks = mark(), mark()
        self.time(2)  # warms up
        self._each_s = self.time(8) / 8

    def as_long_as(self, seconds: float) -> int:
        """Return how many products take about so long alone."""
        return max(1, min(_MOST_PRODUCTS, round(seconds / self._each_s)))

    def start(self, count: int) -> None:
        """Queue products."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._marks[0].record()
            for _ in range(count):
                torch.mm(self._a, self._b, out=self._out)
            self._marks[1].record()

    def wait(self) -> float:
        """Wait for them; return seconds."""
        self._marks[1].synchronize()
        return between(*self._marks)

    def time(self, count: int) -> float:
        """Return how long products take."""
        self.start(count)
        return self.wait()
