"""The structures of mcast.h."""

from __future__ import annotations

import ctypes as c
from dataclasses import fields
from typing import NamedTuple

from .counters import Stats


class Account(NamedTuple):
    """How long an operation waited for what, in nanoseconds; the sum is the time from posting to its end.

    Attributes:
        queued: for older operations of its lane.
        peers: for a sign that other ranks have come to it.
        turn: for its turn to send.
        transfer: for bytes on their way.
        finish: for the word of others at its end.
    """

    queued: int
    peers: int
    turn: int
    transfer: int
    finish: int


class StatsStruct(c.Structure):
    """struct mcast_stats."""

    _fields_ = [("size", c.c_uint64), *((f.name, c.c_uint64) for f in fields(Stats))]


class StreamStruct(c.Structure):
    """struct mcast_stream: where and when an operation on a GPU's tensors takes place."""

    _fields_ = [
        ("size", c.c_uint64),
        ("stream", c.c_uint64),
        ("timeout_ms", c.c_int64),
        ("device", c.c_int64),
    ]


def stream_at(device: int, stream: int, timeout_ms: int) -> StreamStruct:
    """Return the place behind what a stream has queued.

    Args:
        device: the device's number in this process.
        stream: a CUstream; 0: the default stream.
        timeout_ms: how long the operation may take once its input is there; then the group ends.
    """
    return StreamStruct(c.sizeof(StreamStruct), stream, timeout_ms, device)
