"""NCCL's profiler, called as NCCL calls it: what NCCL did is in the trace of the process, where asked for.

Every case is a fresh process (host.host).
"""

from __future__ import annotations

import pytest

from .host import host
from .test_plugin import TABLES

pytestmark = pytest.mark.more

# Profiler(version): the functions of its table. Event is a descriptor of v5, which v4's is but for its type.
PROFILER = """
import json, tempfile, time

u8, i32, u32, u64, text = ctypes.c_uint8, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
pointer, size_t, FUNCTION = ctypes.c_void_p, ctypes.c_size_t, ctypes.CFUNCTYPE(ctypes.c_int)
COLL, PROXY_OP, PROXY_STEP, NET, TURN, UPDATE = 1 << 1, 1 << 3, 1 << 4, 1 << 7, 19, 21
MESSAGE_ID = 0x6d63 << 16 | 1

class Coll(ctypes.Structure):
    _fields_ = [("sequence", u64), ("function", text), ("send", pointer), ("recv", pointer),
                ("count", size_t), ("root", i32), ("type", text), ("channels", u8), ("warps", u8),
                ("algorithm", text), ("protocol", text)]

class Proxy(ctypes.Structure):
    _fields_ = [("pid", i32), ("channel", u8), ("peer", i32), ("steps", i32), ("chunk", i32), ("sends", i32)]

class Net(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int64), ("data", pointer)]

class What(ctypes.Union):
    _fields_ = [("coll", Coll), ("proxy", Proxy), ("net", Net)]

class Event(ctypes.Structure):
    _fields_ = [("type", u64), ("parent", pointer), ("rank", ctypes.c_int), ("what", What)]

class Message(ctypes.Structure):  # struct mcast_net_event
    _fields_ = [("connection", u32), ("sequence", u32), ("tag", i32), ("sending", u8), ("over", u8),
                ("lanes", u8), ("outcome", u8), ("bytes", u64), ("posted", u64), ("begun", u64),
                ("moved", u64), ("done", u64), ("peer", ctypes.c_char * 128)]

class Profiler:
    def __init__(self, version, rank=1, ranks=4, mask=None, logger=None):
        members = (pointer * 6).in_dll(load(), f"ncclProfiler_v{version}")
        names = ("init", "startEvent", "stopEvent", "recordEventState", "finalize")
        for n, name in enumerate(names, 1):
            setattr(self, name, FUNCTION(members[n]))
        self.noise = 0xabcdef00 if version == 4 else 0  # behind a type of one byte stands anything
        self.context, self.asked = pointer(), mask or ctypes.c_int(-1)
        number, asked, context = u64(0x5eed), ctypes.byref(self.asked), ctypes.byref(self.context)
        first = (context, number, asked, None) if version == 5 else (context, asked, None, number)
        assert self.init(*first, 2, ranks, rank, logger) == 0

    def start(self, kind, parent=None, **what):
        event, handle = Event(kind | self.noise, parent, 1), pointer()
        for member, value in what.items():
            setattr(event.what, member, value)
        assert self.startEvent(self.context, ctypes.byref(handle), ctypes.byref(event)) == 0
        return handle.value

    def stop(self, handle):
        assert self.stopEvent(pointer(handle)) == 0

    def record(self, handle, message):
        data = pointer(ctypes.addressof(message))
        assert self.recordEventState(pointer(handle), UPDATE, ctypes.byref(data)) == 0

    def turn(self, handle):
        assert self.recordEventState(pointer(handle), TURN, None) == 0

def spans():
    with tempfile.NamedTemporaryFile() as file:
        assert load().mcast_trace(file.name.encode(), None, 0) == 0
        with open(file.name) as text:
            document = json.load(text)
    base = document["baseTimeNanoseconds"]
    rows = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    def span(e):
        begin, long = round(e["ts"] * 1000) + base, round(e["dur"] * 1000)
        return e["name"], rows[e["tid"]], begin, long, e.get("args", {})

    return [span(e) for e in document["traceEvents"] if e["ph"] == "X"]
"""


@pytest.mark.parametrize("version", [4, 5])
def test_what_nccl_did_is_in_the_trace(version: int) -> None:
    host(
        PROFILER
        + f"""
os.environ.update(NCCL_PROFILER_PLUGIN="mcast", MCAST_IFACE="lo")
p = Profiler({version})
assert p.asked.value == COLL | 1 << 2 | PROXY_OP | NET
posted = time.time_ns()
coll = p.start(COLL, coll=Coll(sequence=9, function=b"AllGather", count=4096, type=b"ncclFloat32", channels=2,
                               algorithm=b"RING", protocol=b"SIMPLE"))
p.stop(coll)  # the kernel is launched
op = p.start(PROXY_OP, coll, proxy=Proxy(pid=os.getpid(), peer=2, steps=3, sends=1))
other = p.start(PROXY_OP, coll, proxy=Proxy(pid=os.getpid(), peer=2, steps=3))
foreign = p.start(PROXY_OP, coll, proxy=Proxy(pid=os.getpid() + 1))  # another process's
assert foreign and p.start(1 << 0), "NCCL 2.27 needs handles"
p.turn(foreign), p.stop(foreign)
ROW = "NCCL, rank 1 of 4 of communicator 0x5eed"
p.stop(p.start(COLL, coll=Coll(function=b"Broadcast")))  # one without a proxy is over for all that is known
assert [s[:2] for s in spans()] == [("1 queued", ROW + ": queued"), ("NCCL Broadcast", ROW)], spans()
before = time.time_ns()
p.turn(other)
p.turn(op)
step = p.start(PROXY_STEP, op)
m = Message(connection=3, sequence=7, tag=1, sending=1, over=1, lanes=4, bytes=16384, peer=b"10.0.0.2:4000")
net = p.start(NET, step, net=Net(MESSAGE_ID, ctypes.addressof(m)))
assert p.start(NET, step, net=Net(1 << 16 | 1, ctypes.addressof(m))) is None, "NCCL's own InfiniBand"
assert p.start(NET, op, net=Net(MESSAGE_ID, ctypes.addressof(m))) is None, "not below a step"
now = time.monotonic_ns()
m.outcome, m.posted, m.begun, m.moved, m.done = 1, now, now + 1000, now + 3000, now + 3500
p.record(net, m)
for handle in (net, step, op):
    p.stop(handle)
assert [s[4]["outcome"] for s in spans() if s[0] == "NCCL AllGather"] == ["in flight"], "a proxy runs still"
p.stop(other)
after = time.time_ns()
(coll,) = [s for s in spans() if s[0] == "NCCL AllGather"]
assert coll[1] == ROW
assert before <= coll[2] + 1000 and coll[2] + coll[3] <= after + 1000, (before, coll, after)
assert 0 < coll[4].pop("queued_us") < (after - posted) / 1e3
assert coll[4] == dict(number=1, count=4096, type="ncclFloat32", channels=2, proxies=2, outcome="done",
                       algorithm="RING", protocol="SIMPLE", sequence=9, root=0), coll
(send,) = [s for s in spans() if s[0] == "send"]
assert send[1] == "NCCL messages to 10.0.0.2:4000, connection 3" and send[3] == 3500, send
assert before <= send[2] <= after
assert send[4] == dict(bytes=16384, sequence=7, tag=1, over="tcp", lanes=4, outcome="done",
                       operation="NCCL AllGather, number 1"), send
parts = [(s[0], s[3]) for s in spans() if s[1] == send[1]][1:]
assert parts == [("waiting", 1000), ("moving", 2000), ("ending", 500)]

# Of what is longer ago than what is remembered nothing is told, whatever stops then.
for i in range(600):
    latest = p.start(COLL, coll=Coll(function=b"Broadcast"))
    p.stop(latest)
p.stop(other), p.stop(op), p.stop(None), p.record(net, m)
names = [s[0] for s in spans() if s[0].startswith("NCCL")]
assert names == ["NCCL Broadcast"] * 512
assert all(s[4]["outcome"] == "launched" and s[4]["proxies"] == 0 for s in spans() if s[0].startswith("NCCL"))
assert p.finalize(p.context) == 0
"""
    )


@pytest.mark.parametrize(
    ("asked", "where"),
    [("", "auto"), ("example", "auto"), ("mcast", "off")],
    ids=["unasked", "another", "off"],
)
def test_nothing_is_asked_for_where_nobody_wants_it(asked: str, where: str) -> None:
    host(
        PROFILER
        + f"""
os.environ.update(NCCL_PROFILER_PLUGIN={asked!r}, MCAST_TRACE={where!r}, MCAST_IFACE="lo")
p = Profiler(5)
assert p.asked.value == 0 and not p.context
assert p.start(COLL, coll=Coll(function=b"AllGather")) is None
assert spans() == []
"""
    )


def test_a_secret_that_is_in_no_store_of_nccl_is_not_needed() -> None:
    host(
        PROFILER
        + """
os.environ.update(NCCL_PROFILER_PLUGIN="mcast", MCAST_SECRET="store", MCAST_IFACE="lo")
p = Profiler(5)
p.stop(p.start(COLL, coll=Coll(function=b"Broadcast")))
assert [s[0] for s in spans()] == ["NCCL Broadcast"], spans()
"""
    )


@pytest.mark.parametrize("version", [4, 5])
def test_the_mask_of_all_communicators_stays_while_others_are_made(version: int) -> None:
    # NCCL passes one mask for all communicators: while it is 0, operations that begin are missing in every
    # trace, and 2.27 crashes at their messages.
    host(
        PROFILER
        + f"""
os.environ.update(NCCL_PROFILER_PLUGIN="mcast", MCAST_IFACE="lo")
ASKED = COLL | 1 << 2 | PROXY_OP | NET
mask, seen, made = ctypes.c_int(-1), set(), threading.Event()
first = Profiler({version}, mask=mask)

def poll():
    while not made.is_set():
        seen.add(mask.value)

poller = threading.Thread(target=poll)
poller.start()
for _ in range(200):
    other = Profiler({version}, mask=mask)
    assert other.context and mask.value == ASKED
    other.finalize(other.context)
made.set()
poller.join()
assert seen <= {{ASKED}}, seen

# One that fails: what it logs comes from the midst of it.
during = []
LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, u64, text, ctypes.c_int, text, text)
log = LOGGER(lambda *line: during.append(mask.value))
os.environ["MCAST_NET_LANES"] = "none"
failed = Profiler({version}, mask=mask, logger=log)
assert not failed.context and during == [ASKED] and mask.value == ASKED, (during, mask)
assert failed.start(COLL, coll=Coll(function=b"AllGather")) is None
op = failed.start(PROXY_OP, proxy=Proxy(pid=os.getpid()))
assert op, "NCCL 2.27 needs it"
failed.turn(op), failed.stop(op)
assert spans() == []
assert failed.finalize(failed.context) == 0
assert first.start(COLL, coll=Coll(function=b"AllGather"))
assert [s[0] for s in spans()] == ["1 queued"]
"""
    )


def test_net_v10_tells_our_own_profiler_alone() -> None:
    # NCCL 2.27 crashes in its callback unless the profiler asks for such events, as only ours is known to.
    host(
        PROFILER
        + TABLES
        + """
told = []
TELL = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_int, pointer, ctypes.c_int64, pointer)

@TELL
def tell(event, kind, parent, number, data):
    if kind == 0:
        pointer.from_address(event).value = parent
    told.append((kind, parent, number))
    return 0

def message(n):
    told.clear()
    result, handle, listener = n.listening(0)
    assert result == 0
    send, recv, requests, done = pointer(), pointer(), (pointer * 2)(), i32()
    while not (send and recv):
        assert send or n.connect(0, None, handle, ctypes.byref(send), None) == 0
        assert recv or n.accept(listener, ctypes.byref(recv), None) == 0
    give, take = ctypes.create_string_buffer(b"bytes", 5), ctypes.create_string_buffer(5)
    at, sizes, tags, none = (pointer * 1)(address(take)), (size_t * 1)(5), (i32 * 1)(3), (pointer * 1)()
    assert n.irecv(recv, 1, at, sizes, tags, none, (pointer * 1)(0x20), ctypes.byref(requests)) == 0
    assert n.isend(send, give, size_t(5), 3, None, pointer(0x10), ctypes.byref(requests, 8)) == 0
    for request in requests:
        done.value = 0
        while not done.value:
            assert n.test(pointer(request), ctypes.byref(done), None) == 0
    assert take.raw == b"bytes"
    for close, comm in ((n.closeSend, send), (n.closeRecv, recv), (n.closeListen, listener)):
        assert close(comm) == 0
    return [(kind, parent) for kind, parent, number in told if number == MESSAGE_ID]

os.environ.update(MCAST_IFACE="lo")
n = Table("ncclNetPlugin_v10", NET)
assert n.init(logger, tell) == 0
assert message(n) == []
p = Profiler(4)  # that is loaded, and has not been asked for
assert message(n) == []
os.environ["NCCL_PROFILER_PLUGIN"] = "mcast"
p = Profiler(4)
assert sorted(message(n), key=str) == [(0, 0x10), (0, 0x20), (3, None), (3, None)], told
"""
    )
