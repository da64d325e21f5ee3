"""The library's NCCL tables, called as no NCCL and not the harness does: inits again, forks, other hosts.

Every case is a fresh process (host.host).
"""

from __future__ import annotations

import os

import pytest

from .host import host

# table(symbol, functions): the functions of a table of ABI v8 by name (ncclNetPlugin_v8,
# ncclCollNetPlugin_v8); its first member is the plugin's name. logged: its lines to NCCL's logger.
TABLES = """
import shutil, socket

logged = []
LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p,
                          ctypes.c_char_p)
logger = LOGGER(lambda level, subsystems, file, line, form, text: logged.append(text.decode()))
MEMORY = "regMr regMrDmaBuf deregMr"
COLL_DATA = "iallreduce iallgather ireducescatter iflush test closeColl closeListen"
DATA = "isend irecv iflush test closeSend closeRecv closeListen"
NET = f"init devices getProperties listen connect accept {MEMORY} {DATA}"
COLL = f"init devices getProperties listen connect reduceSupport {MEMORY} {COLL_DATA}"
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)
address = ctypes.addressof
pointer = ctypes.c_void_p

class Table:
    def __init__(self, symbol, functions):
        members = (ctypes.c_void_p * 32).in_dll(load(), symbol)
        for n, function in enumerate(functions.split(), 1):
            setattr(self, function, FUNCTION(members[n]))

    def begin(self, **settings):
        os.environ.update(settings)
        logged.clear()
        return self.init(logger)

    def count(self):
        n = ctypes.c_int(-1)
        assert self.devices(ctypes.byref(n)) == 0
        return n.value

    def name_of(self, dev):
        props = (ctypes.c_char_p * 32)()
        assert self.getProperties(dev, props) == 0
        return props[0].decode()

    def listening(self, dev):
        handle, comm = ctypes.create_string_buffer(128), pointer()
        return self.listen(dev, handle, ctypes.byref(comm)), handle, comm

def net():
    return Table("ncclNetPlugin_v8", NET)

def coll():
    return Table("ncclCollNetPlugin_v8", COLL)

def said(text):
    return any(text in line for line in logged), logged

def sockets():
    found = 0  # but for the process's netlink socket, which stays
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                with socket.socket(fileno=os.dup(fd)) as one:
                    found += one.family != socket.AF_NETLINK
        except FileNotFoundError:  # what listdir itself had open
            pass
    return found

def ip(arguments):
    subprocess.run([shutil.which("ip"), *arguments.split()], check=True)

def own_network():
    assert libc.unshare(0x40000000) == 0, ctypes.get_errno()  # CLONE_NEWNET, before any thread
    ip("link set lo up")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@needs_root
def test_devices_keep_their_numbers() -> None:
    host(
        TABLES
        + """
own_network()
ip("link add v0 type veth peer name v1")
for n in (0, 1):
    ip(f"addr add 10.9.{n}.1/24 dev v{n}")
    ip(f"link set v{n} up")

def eventually(**settings):  # a carrier takes a moment
    until(lambda: n.begin(**settings) == 0, f"{settings} do")

n = net()
assert n.begin(MCAST_IFACE="absent") == 2 and n.count() == 0
eventually(MCAST_IFACE="v0", MCAST_GPU_MEMORY="host")
assert n.count() == 1 and n.name_of(0) == "v0"
assert n.begin(MCAST_IFACE="v1") == 0
assert [n.name_of(d) for d in range(n.count())] == ["v0", "v1"]
assert all(said("device 1, v1, is new"))
assert n.listening(0)[0] == 0
ip("link set v0 down")  # and v1 has no carrier
assert n.begin(MCAST_IFACE="lo") == 0
assert [n.name_of(d) for d in range(n.count())] == ["v0", "v1", "lo"]
assert n.listening(0)[0] == 2
assert all(said("device 0, v0, was there once and cannot be used now: netdev: interface v0 is down"))
assert n.listening(2)[0] == 0
assert n.begin(MCAST_IFACE="absent") == 0 and n.count() == 3
assert all(said('3 devices of an earlier one: MCAST_IFACE="absent": netdev: there is no interface'))
assert n.begin(MCAST_NET_LANES="none", MCAST_IFACE="lo") == 4
ip("link set v0 up")
until(lambda: n.begin(MCAST_NET_LANES="1") == 0 and n.listening(0)[0] == 0, "v0 can be used again")
assert n.begin(MCAST_GPU_MEMORY="coherent") == 0
assert all(said("MCAST_GPU_MEMORY=coherent comes too late: it stays host"))
"""
    )


@needs_root
def test_collnet_uses_its_device_and_not_the_default_route() -> None:
    # Two hosts without a default route: what CollNet would take by itself is lo.
    host(
        TABLES
        + """
import socket
os.environ.pop("MCAST_IFACE", None)
mine, other = socket.socketpair()
child = os.fork()  # the library is not loaded yet
rank = 0 if child else 1
if rank == 1:
    mine, other = other, mine
own_network()
mine.sendall(b"1")
other_is_there = mine.recv(1)
if rank == 0:
    ip("link add v0 type veth peer name v1")
    ip(f"link set v1 netns {child}")
    mine.sendall(b"2")
else:
    mine.recv(1)
ip(f"addr add 10.9.0.{rank + 1}/24 dev v{rank}")
ip(f"link set v{rank} up")
mine.sendall(b"3")
mine.recv(1)
show = ["ip", "link", "show", f"v{rank}"]
until(lambda: b"UP,LOWER_UP" in subprocess.run(show, capture_output=True).stdout, "the other end is up")

c = coll()
assert c.begin() == 0 and c.name_of(0) == f"v{rank}"
result, handle, listener = c.listening(0)
assert result == 0
mine.sendall(handle.raw)
theirs = ctypes.create_string_buffer(mine.recv(128, socket.MSG_WAITALL), 128)
both = [handle, theirs] if rank == 0 else [theirs, handle]
handles, comm = (pointer * 2)(*map(address, both)), pointer()
result = c.connect(handles, 2, rank, listener, ctypes.byref(comm))
ok = result == 0 and any(f"fabric=udp" in line and f"interface=v{rank}" in line for line in logged)
if rank == 1:
    mine.sendall(b"4")
    mine.recv(1)
    os._exit(0 if ok else 1)
mine.recv(1)
mine.sendall(b"4")
assert os.waitpid(child, 0)[1] == 0
assert ok, (result, logged)
"""
    )


@pytest.mark.parametrize("fabric", ["auto", "shm", "udp"])
def test_collnet_on_one_host_stays_there(fabric: str) -> None:
    # Two ranks in one process, each with its thread, as NCCL has it with several GPUs a process.
    host(
        TABLES
        + f"""
os.environ.pop("MCAST_IFACE", None)
c = coll()
assert c.begin(MCAST_FABRIC={fabric!r}) == 0
results, handles, listeners_ = zip(*(c.listening(0) for rank in range(2)))
assert results == (0, 0)
every, comms, results = (pointer * 2)(*map(address, handles)), [pointer(), pointer()], [None, None]

def connect(rank):
    results[rank] = c.connect(every, 2, rank, listeners_[rank], ctypes.byref(comms[rank]))

threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert results == [0, 0], logged
assert all(said({"fabric=udp" if fabric == "udp" else "fabric=shm"!r}))
assert {fabric != "udp"} or all(said("interface=lo"))
"""
    )


def test_a_collnet_connect_that_fails_keeps_no_listener() -> None:
    host(
        TABLES
        + """
c = coll()
assert c.begin(MCAST_TIMEOUT="200ms", MCAST_IFACE="lo") == 0
before = sockets()

def attempt(garble, rank, ranks):
    result, handle, listener = c.listening(0)
    assert result == 0 and sockets() == before + 1, logged
    handle[12] = handle[12][0] ^ garble
    handles, comm = (pointer * 2)(address(handle), address(handle)), pointer()
    result = c.connect(handles, ranks, rank, listener, ctypes.byref(comm))
    assert sockets() == before, logged
    return result

assert attempt(1, 0, 2) == 4
assert attempt(0, 2, 2) == 4
assert attempt(0, 0, 2) == 6  # rank 1 does not come
assert all(said("rank 1 of 2 has not come"))
"""
    )


# A connection of this process with itself. 32 bytes travel in transfer().
LINK = """
n = net()
assert n.begin(MCAST_IFACE="lo", MCAST_NET_FABRIC="tcp") == 0
result, handle, listener = n.listening(0)
send, receive, device = pointer(), pointer(), pointer()
while not (send and receive):
    if not send:
        assert n.connect(0, handle, ctypes.byref(send), ctypes.byref(device)) == 0
    if not receive:
        assert n.accept(listener, ctypes.byref(receive), ctypes.byref(device)) == 0
out, into = ctypes.create_string_buffer(b"x" * 32, 32), ctypes.create_string_buffer(32)

def isend(comm=None, size=32):
    request = pointer()
    return n.isend(comm or send, out, size, 0, None, ctypes.byref(request)), request

def irecv(size=32):
    request, one = pointer(), ctypes.c_int(size)
    return n.irecv(receive, 1, (pointer * 1)(address(into)), ctypes.byref(one), ctypes.byref(ctypes.c_int(0)),
                   (pointer * 1)(), ctypes.byref(request)), request

def finished(request):
    done, size = ctypes.c_int(), ctypes.c_int()
    while not done.value:
        assert n.test(request, ctypes.byref(done), ctypes.byref(size)) == 0, logged
    return size.value

def transfer(received):
    sent = isend()
    assert sent[0] == received[0] == 0
    assert finished(sent[1]) == finished(received[1]) == 32
    assert into.raw == b"x" * 32
"""


def test_a_forked_child_leaves_the_connections_alone() -> None:
    host(
        TABLES
        + LINK
        + """
waiting = irecv()
child = os.fork()
if child == 0:
    done = ctypes.c_int()
    refused = [isend()[0], irecv()[0], n.test(waiting[1], ctypes.byref(done), None), n.closeSend(send),
               n.closeRecv(receive), n.closeListen(listener)]
    os._exit(0 if refused == [5] * 6 and all(said("close: this process is a fork")) else 1)
assert os.waitpid(child, 0)[1] == 0
transfer(waiting)
transfer(irecv())
assert n.closeSend(send) == n.closeRecv(receive) == n.closeListen(listener) == 0
"""
    )


def test_what_a_message_may_not_be_is_told() -> None:
    host(
        TABLES
        + LINK
        + """
assert isend(comm=receive)[0] == 4
assert not any(line.rstrip().endswith(":") for line in logged), logged
transfer(irecv())
v9 = Table("ncclNetPlugin_v9", NET)
request, size = pointer(), ctypes.c_size_t(1 << 31)
assert v9.isend(send, out, size, 0, None, ctypes.byref(request)) == 4
assert all(said("isend: 2147483648 bytes; at most 2147483647 are allowed"))
buffers = (pointer * 1)(address(into))
assert v9.irecv(receive, 1, buffers, ctypes.byref(size), None, None, ctypes.byref(request)) == 4
assert all(said("irecv: 2147483648 bytes; at most 2147483647 are allowed"))
transfer(irecv())
"""
    )


@pytest.mark.parametrize(
    ("setting", "closed", "want"),
    [
        ("host", False, "memory of type 2 is not allowed with MCAST_GPU_MEMORY=host"),
        ("dmabuf", False, "GPU memory without a DMA-BUF is not allowed with MCAST_GPU_MEMORY=dmabuf"),
        ("coherent", True, "MCAST_GPU_MEMORY=coherent is not so on this machine"),
        ("coherent", False, ""),
    ],
)
def test_gpu_memory_that_is_refused(setting: str, closed: bool, want: str) -> None:
    # Pages without access stand for a GPU's: the driver reserves its addresses so.
    host(
        TABLES
        + f"""
n = net()
assert n.begin(MCAST_IFACE="lo", MCAST_GPU_MEMORY={setting!r}) == 0
libc.mmap.restype = pointer
pages = libc.mmap(None, ctypes.c_size_t(8192), {0 if closed else 3}, 0x22, -1, ctypes.c_long(0))
region = pointer()
result = n.regMr(None, pointer(pages), ctypes.c_size_t(8192), 2, ctypes.byref(region))
if {want!r}:
    assert result == 4 and not region
    assert all(said({want!r}))
else:
    assert result == 0 and n.deregMr(None, region) == 0
"""
    )
