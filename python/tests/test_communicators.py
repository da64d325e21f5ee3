"""NCCL's communicators as mcast_communicators lists them, and what the tuner decides for two of the same ranks.

Every case is a fresh process (host.host).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import node

from .host import host
from .test_plugin import TABLES

# collnet(): ranks of this process, connected and confirmed as NCCL does it, and their tuners of v4.
COLLNET = """
import json

class Tuner:
    def __init__(self):
        members = (ctypes.c_void_p * 4).in_dll(load(), "ncclTunerPlugin_v4")
        self.init, self.costs, self.destroy = (FUNCTION(members[n]) for n in (1, 2, 3))

    def make(self, ranks, nodes):
        context = pointer()
        assert self.init(ctypes.c_size_t(ranks), ctypes.c_size_t(nodes), logger, ctypes.byref(context)) == 0
        return context

def communicators():
    buf, length = ctypes.create_string_buffer(65536), ctypes.c_size_t()
    assert load().mcast_communicators(buf, 65536, ctypes.byref(length), None, 0) == 0
    assert len(buf.value) + 1 == length.value
    return json.loads(buf.value)

def collnet(ranks=2, made=None, **settings):
    # Connect so many ranks; made: the table and the tuner of older ones.
    c, tuner = made or (coll(), Tuner())
    settings = settings or {"MCAST_TUNER_ALLGATHER": "4096", "MCAST_TUNER_REDUCE_SCATTER": "0"}
    if made is None:
        assert c.begin(MCAST_FABRIC="shm", MCAST_IFACE="lo", **settings) == 0
    listeners = [c.listening(0) for _ in range(ranks)]
    assert [result for result, _, _ in listeners] == [0] * ranks
    handles = (pointer * ranks)(*(address(handle) for _, handle, _ in listeners))
    comms, contexts = [pointer() for _ in range(ranks)], [None] * ranks

    def rank(n):
        assert c.connect(handles, ranks, n, listeners[n][2], ctypes.byref(comms[n])) == 0
        supported = ctypes.c_int()
        assert c.reduceSupport(7, 0, ctypes.byref(supported)) == 0 and supported.value
        contexts[n] = tuner.make(ranks, ranks)

    threads = [threading.Thread(target=rank, args=(n,)) for n in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(contexts), logged
    return c, tuner, comms, contexts

def ending(c, comms):
    closing = [threading.Thread(target=c.closeColl, args=(comm,)) for comm in comms]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
"""


def test_communicators_are_listed_with_what_the_tuner_decided() -> None:
    host(
        TABLES
        + COLLNET
        + """
assert communicators() == []
c, tuner, comms, contexts = collnet()
first, second = communicators()
assert first["id"] < second["id"]
for one in (first, second):
    assert (one["ranks"], one["nodes"], one["collnet"], one["why"]) == (2, 2, True, "")
    assert (one["allgather_from"], one["allgather_windows"], one["reduce_scatter_windows"]) == (4096, 0, 0)
    assert one["reduce_scatter_from"] == 0
alone = tuner.make(4, 1)
split = tuner.make(2, 2)  # nothing is left to claim
listed = communicators()
assert listed[:2] == [first, second]
assert [(x["collnet"], x["allgather_from"], x["nodes"]) for x in listed[2:]] == [(False, 0, 1), (False, 0, 2)]
assert "one node" in listed[2]["why"] and "CollNet" in listed[3]["why"], listed
assert tuner.destroy(alone) == 0
assert communicators() == [first, second, listed[3]]
length = ctypes.c_size_t()
assert load().mcast_communicators(None, 0, ctypes.byref(length), None, 0) == 1
assert length.value > 100

bytes_per_rank = 64
class Part(ctypes.Structure):
    _fields_ = [("mhandle", pointer), ("address", pointer), ("size", ctypes.c_uint32)]
send = [ctypes.create_string_buffer(bytes([65 + n]) * bytes_per_rank, bytes_per_rank) for n in range(2)]
whole = [ctypes.create_string_buffer(2 * bytes_per_rank) for _ in range(2)]
requests = [pointer(), pointer()]
size_t = ctypes.c_size_t
for n in range(2):
    part = Part(None, address(whole[n]), 2 * bytes_per_rank)
    assert c.iallgather(comms[n], send[n], 1, ctypes.byref(part), size_t(bytes_per_rank), size_t(0),
                        size_t(2 * bytes_per_rank), None, ctypes.byref(requests[n])) == 0
    assert requests[n]
for n in range(2):
    done = ctypes.c_int()
    while not done.value:
        assert c.test(requests[n], ctypes.byref(done), None) == 0
    assert whole[n].raw == b"A" * bytes_per_rank + b"B" * bytes_per_rank
windows = [(x["allgather_windows"], x["reduce_scatter_windows"]) for x in communicators()]
assert windows == [(1, 0), (1, 0), (0, 0)]

ending(c, comms)
assert [(x["collnet"], "closed" in x["why"]) for x in communicators()[:2]] == [(False, True)] * 2
child = os.fork()
if child == 0:
    err = ctypes.create_string_buffer(256)
    refused = load().mcast_communicators(None, 0, None, err, 256) == 2 and b"fork" in err.value
    os._exit(0 if refused and tuner.destroy(split) == 0 else 1)
assert os.waitpid(child, 0)[1] == 0
for context in [split, *contexts]:
    assert tuner.destroy(context) == 0
assert communicators() == []
"""
    )


# takes(): whether the tuner has CollNet take an operation of 64 MiB (func 2: Allgather, 3: Reduce-Scatter).
PAIRS = """
def takes(tuner, context, func=2):
    table = (ctypes.c_float * (7 * 3))(*[50.0] * 21)
    channels = ctypes.c_int()
    assert tuner.costs(context, func, size_t(64 << 20), 1, table, 7, 3, 0, ctypes.byref(channels)) == 0
    return table[2 * 3 + 2] == 0

size_t = ctypes.c_size_t
auto = {"MCAST_TUNER_ALLGATHER": "auto", "MCAST_TUNER_REDUCE_SCATTER": "auto", "MCAST_SWITCH": SWITCH}
c, tuner, comms, contexts = collnet(3, **auto)
assert [takes(tuner, x, func) for x in contexts for func in (2, 3)] == [False] * 6, "alone it loses"
assert [(x["paired"], x["allgather_from"]) for x in communicators()] == [(False, 0)] * 3
"""


def with_a_switch(script: str) -> None:
    with node.node() as address:
        host(f"SWITCH = {address!r}\n" + TABLES + COLLNET + PAIRS + script)


def test_a_switch_counts_once_two_communicators_have_collnet() -> None:
    with_a_switch("""
_, _, beside, second = collnet(3, (c, tuner))
assert [takes(tuner, x, func) for x in contexts + second for func in (2, 3)] == [True] * 12
for one in communicators():
    assert (one["paired"], one["allgather_from"], one["reduce_scatter_from"]) == (True, 8 << 20, 8 << 20), one
    assert (one["allgather_alone_from"], one["allgather_alone_to"]) == (0, 0), one
ending(c, comms + beside)
for context in contexts + second:
    assert tuner.destroy(context) == 0
assert communicators() == []
""")


def test_ranks_that_do_not_agree_since_when_there_are_two_go_on_as_before() -> None:
    with_a_switch("""
assert not takes(tuner, contexts[1])  # an operation that the others have not begun yet
_, _, beside, second = collnet(3, (c, tuner))
assert [takes(tuner, x, func) for x in contexts + second for func in (2, 3)] == [False] * 12
assert not any(one["paired"] for one in communicators())
ending(c, comms + beside)
for context in contexts + second:
    assert tuner.destroy(context) == 0
""")
