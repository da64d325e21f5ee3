"""What loading libnccl-net-mcast.so does to a host: symbols, time, signals, forks.

Every case is a fresh process, since a library stays loaded. Those that need no torch go without it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torch_mcast import _lib

LIMIT_S = 120  # for one process; a hang is a failure
FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE"}

# dispositions(): {signal: (handler, flags)} of all that sigaction tells about, and the kernel's
# words on all 64. load(): the library, after a call that has waited for Go to be up.
PRELUDE = """
import ctypes, os, signal, subprocess, sys, threading, time

class Sigaction(ctypes.Structure):  # struct sigaction of glibc
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]

class Stack(ctypes.Structure):  # stack_t
    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

libc = ctypes.CDLL(None, use_errno=True)
SA_ONSTACK = 0x08000000

def dispositions():
    found = {}
    for number in range(1, 65):
        action = Sigaction()
        if libc.sigaction(number, None, ctypes.byref(action)) == 0:
            found[number] = (action.handler or 0, action.flags & 0xffffffff)
    assert len(found) == 62, found  # glibc keeps 32 and 33 to itself; status tells about them
    return found

def status(field):
    with open("/proc/thread-self/status") as lines:
        return int(next(line.split()[1] for line in lines if line.startswith(field)), 16)

def name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

def load():
    library = ctypes.CDLL(os.environ["MCAST_LIBRARY"])
    library.mcast_version.restype = ctypes.c_char_p
    assert library.mcast_version()
    return library

def altstack():
    stack = Stack()
    assert libc.sigaltstack(None, ctypes.byref(stack)) == 0
    return stack.address, stack.flags, stack.size
"""


def host(script: str, *, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run PRELUDE and the script in a fresh interpreter and check how it ends."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        env=os.environ | {"MCAST_LIBRARY": str(_lib.find())},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == status, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def header_functions() -> set[str]:
    text = (_lib.find().parent / "mcast.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"\b(mcast_\w+)\(", text))


def exports() -> set[str]:
    nm = shutil.which("nm")
    assert nm, "nm is missing (Debian: apt-get install binutils)"
    out = subprocess.run(
        [nm, "-D", "--defined-only", str(_lib.find())], capture_output=True, text=True, check=True
    )
    return {line.split()[-1] for line in out.stdout.splitlines()}


def test_only_the_api_is_visible() -> None:
    functions = header_functions()
    assert len(functions) >= 14
    assert functions >= set(_lib._SIGNATURES)
    plugin = re.compile(r"nccl((Net|CollNet|Tuner)Plugin|Profiler)_v\d+")
    assert {symbol for symbol in exports() if not plugin.fullmatch(symbol)} == functions


def test_the_room_for_a_blob_is_what_the_header_says() -> None:
    text = (_lib.find().parent / "mcast.h").read_text()
    assert re.findall(r"#define MCAST_BLOB_MAX (\d+)", text) == [str(_lib._BLOB_BYTES)]


def test_a_blob_with_too_little_room_says_what_is_needed() -> None:
    host("""
        library = load()

        def opened(room):
            blob, text = ctypes.create_string_buffer(room), ctypes.create_string_buffer(512)
            used, endpoint = ctypes.c_size_t(), ctypes.c_int64()
            out = ctypes.byref(used), ctypes.byref(endpoint)
            sizes = ctypes.c_size_t(room), ctypes.c_size_t(512)
            code = library.mcast_open(0, 1, b"MCAST_FABRIC=shm", blob, sizes[0], *out, text, sizes[1])
            return code, used.value, text.value.decode()

        code, needed, message = opened(16)
        said = f"blob holds 16 bytes; {needed} are needed, MCAST_BLOB_MAX (2048) are always enough"
        assert (code, said in message) == (1, True), message
        assert opened(2048)[0] == 0
    """)


def test_nothing_but_libc_is_needed() -> None:
    readelf = shutil.which("readelf")
    assert readelf, "readelf is missing (Debian: apt-get install binutils)"
    out = subprocess.run([readelf, "-d", str(_lib.find())], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED\).*\[(.*)\]", out.stdout))
    assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}


def test_loading_is_cheap() -> None:
    # Time on the CPU, Go's start and the first call included: other programs do not lengthen it.
    spent = [
        float(
            host("""
            before = time.process_time()
            load()
            print(time.process_time() - before)
            """).stdout
        )
        for _ in range(5)
    ]
    assert min(spent) < 0.020, spent


def test_two_copies_of_the_library_live_in_one_process(tmp_path: Path) -> None:
    # As with any other Go library beside ours: neither binds to the other's runtime.
    copy = shutil.copy(_lib.find(), tmp_path / "copy.so")
    host(f"""
        one, other = load(), ctypes.CDLL({str(copy)!r}, mode=ctypes.RTLD_GLOBAL)
        other.mcast_version.restype = ctypes.c_char_p
        assert one.mcast_version() == other.mcast_version()
        assert one.mcast_forget(ctypes.c_int64(1)) == other.mcast_forget(ctypes.c_int64(1)) == 6
    """)


def test_dispositions_of_a_python_host() -> None:
    # Those that change: faults in Go code become errors, all others go on to who had them; SIGURG,
    # which nobody had, is how Go preempts its own threads.
    changed = host("""
        before, stack = dispositions(), altstack()
        caught, ignored, blocked = (status(f) for f in ("SigCgt", "SigIgn", "SigBlk"))
        library = ctypes.CDLL(os.environ["MCAST_LIBRARY"])
        early = dispositions()
        assert altstack() == stack
        load()
        assert dispositions() == early, "the first call changed a disposition"
        print(*(name(s) for s in before if before[s] != early[s]))
        assert all(before[s] == (0, 0) and early[s][1] & SA_ONSTACK for s in before if before[s] != early[s])
        own = sum(1 << s - 1 for s in before if before[s] != early[s])
        glibc = 3 << 31  # 32 and 33, which glibc takes when the first thread starts
        assert status("SigCgt") | glibc == caught | own | glibc
        assert (status("SigIgn"), status("SigBlk")) == (ignored, blocked)
        assert ignored >> signal.SIGPIPE - 1 & 1
    """).stdout.split()
    assert set(changed) == FAULTS | {"SIGURG"}


def test_dispositions_of_a_host_that_has_set_them_all() -> None:
    changed = host("""
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if name(number) not in ("SIGPIPE", "32", "33"):
                signal.signal(number, lambda *_: None)
        before = dispositions()
        load()
        after = dispositions()
        print(*(name(s) for s in before if before[s] != after[s]))
    """).stdout.split()
    assert set(changed) == FAULTS


def test_dispositions_of_a_host_that_ignores_them_all() -> None:
    changed = host("""
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        before = dispositions()
        load()
        after = dispositions()
        print(*(name(s) for s in before if before[s] != after[s]))
    """).stdout.split()
    assert set(changed) == FAULTS


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT, signal.SIGALRM]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_host_is_called(number: signal.Signals, when: str) -> None:
    host(f"""
        got = []
        def install():
            signal.signal({int(number)}, lambda n, _: got.append(n))
        if {when == "before"}:
            install()
        load()
        if {when == "after"}:
            install()
        for turn in range(1, 21):
            os.kill(os.getpid(), {int(number)})
            deadline = time.monotonic() + 30
            while len(got) < turn and time.monotonic() < deadline:
                time.sleep(0.001)
            assert got == [{int(number)}] * turn
    """)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE]
)
def test_a_signal_without_a_handler_ends_the_host(number: signal.Signals) -> None:
    host(
        f"""
        load()
        os.kill(os.getpid(), {int(number)})
        time.sleep(60)
        """,
        status=-number,
    )


@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize("enabled", ["before", "after", "never"])
def test_faulthandler_reports_a_fault(enabled: str, thread: str) -> None:
    done = host(
        f"""
        import faulthandler
        if {enabled == "before"}:
            faulthandler.enable()
        load()
        if {enabled == "after"}:
            faulthandler.enable()
        def the_culprit():
            load()
            ctypes.string_at(8)
        if {thread == "main"}:
            the_culprit()
        culprit = threading.Thread(target=the_culprit)
        culprit.start()
        culprit.join()
        """,
        status=-signal.SIGSEGV,
    )
    assert ("Fatal Python error: Segmentation fault" in done.stderr) == (enabled != "never")
    assert ("in the_culprit" in done.stderr) == (enabled != "never")


def test_the_alternate_stack_of_a_thread_is_kept() -> None:
    # faulthandler's, by which it reports an overflow of the stack.
    host("""
        import faulthandler
        faulthandler.enable()
        before = altstack()
        assert before[0]
        load()
        assert altstack() == before
    """)


def test_a_broken_pipe_is_an_error_as_before() -> None:
    host("""
        load()
        read, write = os.pipe()
        os.close(read)
        try:
            os.write(write, b"x")
        except BrokenPipeError:
            print("broken")
        # An ignored signal is handed on by exec; a handled one would become the default.
        show = ["grep", "SigIgn", "/proc/self/status"]
        out = subprocess.run(show, restore_signals=False, capture_output=True, text=True, check=True).stdout
        assert int(out.split()[1], 16) >> signal.SIGPIPE - 1 & 1
        out = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        assert not int(out.split()[1], 16) >> signal.SIGPIPE - 1 & 1
    """)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_host_that_dies_of_a_broken_pipe_still_does(when: str) -> None:
    host(
        f"""
        if {when == "before"}:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        load()
        if {when == "after"}:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        read, write = os.pipe()
        os.close(read)
        os.write(write, b"x")
        """,
        status=-signal.SIGPIPE,
    )


# Two ranks, so that rank 0 can wait for an operation that rank 1 has not posted yet.
PAIR = """
import tempfile
import torch, torch.distributed as dist, torch_mcast
from datetime import timedelta

RANK = int(os.environ.get("PAIR_RANK", "0"))
if RANK == 0:
    os.environ["PAIR_STORE"] = tempfile.mktemp(prefix="mcast-test-")
    os.environ["MCAST_FABRIC"] = "shm"
    peer = subprocess.Popen(
        [sys.executable, "-c", os.environ["PAIR_SCRIPT"]],
        env=os.environ | {"PAIR_RANK": "1"}, stdin=subprocess.PIPE)
dist.init_process_group("mcast", store=dist.FileStore(os.environ["PAIR_STORE"], 2), rank=RANK,
                        world_size=2, timeout=timedelta(seconds=100))
"""


def pair(script: str, monkeypatch: pytest.MonkeyPatch) -> subprocess.CompletedProcess[str]:
    whole = PRELUDE + PAIR + textwrap.dedent(script)
    monkeypatch.setenv("PAIR_SCRIPT", whole)
    return host(PAIR + textwrap.dedent(script))


def test_keyboard_interrupt_before_during_and_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    out = pair(
        """
        if RANK == 1:
            sys.stdin.readline()  # until rank 0 has been interrupted
            dist.barrier()
            dist.destroy_process_group()
            sys.exit()

        def interrupted(call):
            timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                call()
                time.sleep(60)
            except KeyboardInterrupt:
                return True
            finally:
                timer.join()

        print("before", interrupted(lambda: time.sleep(60)))
        work = dist.barrier(async_op=True)
        print("during", interrupted(work.wait))
        assert not work.is_completed()
        peer.stdin.write(b"go\\n")
        peer.stdin.flush()
        work.wait()
        print("after", interrupted(lambda: time.sleep(60)))
        dist.destroy_process_group()
        print("peer", peer.wait(60))
        """,
        monkeypatch,
    ).stdout
    assert out.split() == ["before", "True", "during", "True", "after", "True", "peer", "0"]


def test_children_of_all_kinds_work_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    out = pair(
        """
        import math, multiprocessing, warnings
        from torch.utils.data import DataLoader
        warnings.simplefilter("ignore")

        rows = torch.arange(64)
        loader = DataLoader(rows, batch_size=8, num_workers=2, persistent_workers=True,
                            multiprocessing_context="fork")
        for epoch in range(3):
            ours = sum(int(batch.sum()) for batch in loader)
            total = torch.tensor([ours])
            dist.all_reduce(total)
            assert total.item() == 2 * 2016, total
        for kind in ("fork", "forkserver", "spawn"):
            with multiprocessing.get_context(kind).Pool(2) as pool:
                assert pool.map(math.factorial, range(6)) == [1, 1, 2, 6, 24, 120]
        assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
        assert os.waitstatus_to_exitcode(os.waitpid(
            os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], os.environ), 0)[1]) == 4
        total = torch.ones(4)
        dist.all_reduce(total)  # none of them has marked this process as a fork
        assert total.tolist() == [2.0] * 4
        dist.destroy_process_group()
        if RANK == 0:
            assert peer.wait(60) == 0
            print("done")
        """,
        monkeypatch,
    ).stdout
    assert out.split() == ["done"]


QUIET = {"mcast_forget", "mcast_release", "mcast_error_rank"}  # give no message


def test_a_forked_child_is_refused_by_every_function() -> None:
    # How many words come before the message; a double travels beside the words.
    words = {
        function: sum(kind is not ctypes.c_double for kind in signature) - len(_lib._ERR)
        for function, signature in _lib._SIGNATURES.items()
        if function not in QUIET
    }
    assert words.keys() | QUIET == header_functions() - {"mcast_version"}
    host(f"""
        library = load()
        def child(generation):
            for function, count in {words!r}.items():
                text = ctypes.create_string_buffer(512)
                before = [ctypes.c_void_p(0)] * count
                assert getattr(library, function)(*before, text, ctypes.c_size_t(len(text))) == 2, function
                message = text.value.decode()
                assert f"this process ({{os.getpid()}}) is a fork of the one that loaded" in message, message
                assert f"({{loader}})" in message, message
                assert getattr(library, function)(*before, None, ctypes.c_size_t(0)) == 2, function
            assert library.mcast_forget(ctypes.c_int64(1)) == 2
            assert b"fork" in library.mcast_version()
            if generation == 1:
                descend(2)

        def descend(generation):
            pid = os.fork()
            if pid == 0:
                child(generation)
                sys.exit(10 + generation)  # by way of exit(), with its destructors
            deadline = time.monotonic() + 60
            while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
                assert time.monotonic() < deadline, "the child hangs"
                time.sleep(0.01)
            assert os.waitstatus_to_exitcode(ended[1]) == 10 + generation, ended

        loader = os.getpid()
        descend(1)
        assert library.mcast_forget(ctypes.c_int64(1)) == 6  # the parent goes on
        assert b"fork" not in library.mcast_version()
    """)


def test_a_forked_child_holds_no_socket_of_its_parents_group() -> None:
    # Or the peers would not learn of the end of the parent before that of the child.
    host("""
        import socket
        from torch_mcast.group import Group

        def sockets():
            opened = {}
            for fd in map(int, os.listdir("/proc/self/fd")):
                try:
                    if (where := os.readlink(f"/proc/self/fd/{fd}")).startswith("socket:"):
                        opened[fd] = where
                except OSError:
                    pass  # the listing's own
            return opened

        def child(see):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if see() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

        Group(0, 1, "MCAST_FABRIC=udp", lambda blob: [blob], 30_000).close()  # opens what all groups share
        before = sockets()
        group = Group(0, 1, "MCAST_FABRIC=udp", lambda blob: [blob], 30_000)
        ours = sockets().items() - before.items()
        assert len(ours) >= 2, ours  # the listener, and those of multicast
        child(lambda: not sockets().items() & ours)
        assert sockets().items() >= ours  # the parent goes on
        group.close()

        # Who has got the descriptors since keeps them.
        keep = [socket.socket() for _ in range(64)]
        assert {fd for fd, _ in ours} <= {one.fileno() for one in keep}, (ours, keep)
        theirs = {fd: where for fd, where in sockets().items() if fd in {one.fileno() for one in keep}}
        child(lambda: sockets().items() >= theirs.items())
    """)


def test_a_forked_child_may_load_what_its_parent_has_not() -> None:
    host("""
        pid = os.fork()
        if pid == 0:
            assert load().mcast_forget(ctypes.c_int64(1)) == 6
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    """)
