"""Forks of a host that has loaded libnccl-net-mcast.so, and its other children."""

from __future__ import annotations

import ctypes

import pytest

from torch_mcast import _lib

from .host import host, pair
from .test_library import header_functions

QUIET = {"mcast_forget", "mcast_release", "mcast_error_rank"}  # give no message


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
            assert peer.wait(LIMIT_S) == 0
            print("done")
        """,
        monkeypatch,
    ).stdout
    assert out.split() == ["done"]


def test_a_forked_child_is_refused_by_every_function() -> None:
    # How many words come before the message; a double travels beside the words.
    words = {
        function: sum(kind is not ctypes.c_double for kind in signature) - len(_lib._ERR)
        for function, signature in _lib._SIGNATURES.items()
        if function not in QUIET
    }
    assert words.keys() | QUIET == header_functions() - {"mcast_version", "mcast_abi"}
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
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 10 + generation

        loader = os.getpid()
        descend(1)
        assert library.mcast_forget(ctypes.c_int64(1)) == 6  # the parent goes on
        assert b"fork" not in library.mcast_version()
    """)


def test_a_forked_child_holds_no_socket_of_its_parents_group() -> None:
    # Or the peers would learn of the parent's end only with the child's end.
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

        Group(0, 1, "MCAST_FABRIC=udp", lambda blob: [blob], LIMIT_MS).close()  # opens what all groups share
        before = sockets()
        group = Group(0, 1, "MCAST_FABRIC=udp", lambda blob: [blob], LIMIT_MS)
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
