"""The binding of mcast.h: plain functions over integer handles.

The library holds a Go runtime, which does not survive a fork. It is therefore
loaded at the first call and not at import, and a child of fork() that inherits
it gets a ForkError instead of a hang. Children that never call us (DataLoader
workers) are not affected.
"""

from __future__ import annotations

import ctypes as c
import os
import threading
from pathlib import Path
from typing import Any

from . import errors
from .structs import Account, StatsStruct, StreamStruct

NAME = "libnccl-net-mcast.so"

SUM, PROD, MAX, MIN, AVG, PREMUL_SUM, BAND, BOR, BXOR = range(9)
# BEGIN types: internal/api writes them
I8 = 0
U8 = 1
I16 = 100
U16 = 101
I32 = 2
U32 = 3
I64 = 4
U64 = 5
E4M3 = 10
E5M2 = 11
F16 = 6
BF16 = 9
F32 = 7
F64 = 8
# END types

_ERROR_BYTES = 1024
_BLOB_BYTES = 2048  # MCAST_BLOB_MAX


_ABI = 2  # MCAST_ABI of mcast.h
_REMEDY = "build both from one commit (make build), or set MCAST_LIBRARY to the library that belongs to it"
_ERR = [c.c_char_p, c.c_size_t]
_WORK = [c.POINTER(c.c_int64), *_ERR]
_AT = c.POINTER(StreamStruct)
_SIGNATURES: dict[str, list[Any]] = {
    "mcast_open": [
        c.c_int, c.c_int, c.c_char_p, c.c_char_p, c.c_size_t,
        c.POINTER(c.c_size_t), c.POINTER(c.c_int64), *_ERR,
    ],
    "mcast_join": [c.c_int64, c.c_char_p, c.POINTER(c.c_size_t), c.c_int64, c.POINTER(c.c_int64), *_ERR],
    "mcast_close_endpoint": [c.c_int64, *_ERR],
    "mcast_allgather": [c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, *_WORK],
    "mcast_reserve": [c.c_int64, c.c_size_t, c.POINTER(c.c_int64), *_ERR],
    "mcast_place": [c.c_int64, c.c_int64, c.POINTER(c.c_void_p), *_ERR],
    "mcast_release": [c.c_int64],
    "mcast_register": [c.c_int64, c.c_void_p, c.c_size_t, c.POINTER(c.c_int64), *_ERR],
    "mcast_deregister": [c.c_int64, *_ERR],
    "mcast_broadcast": [c.c_int64, c.c_void_p, c.c_size_t, c.c_int, *_WORK],
    "mcast_reduce_scatter": [
        c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_double, *_WORK,
    ],
    "mcast_reduce": [
        c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_double, c.c_int, *_WORK,
    ],
    "mcast_allreduce": [
        c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_double, *_WORK,
    ],
    "mcast_barrier": [c.c_int64, *_WORK],
    "mcast_send": [c.c_int64, c.c_void_p, c.c_size_t, c.c_int, c.c_uint64, *_WORK],
    "mcast_recv": [c.c_int64, c.c_void_p, c.c_size_t, c.c_int, c.c_uint64, *_WORK],
    "mcast_source": [c.c_int64, c.POINTER(c.c_int), c.POINTER(c.c_size_t), *_ERR],
    "mcast_all_to_all": [c.c_int64, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, *_WORK],
    "mcast_gather": [c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, *_WORK],
    "mcast_scatter": [c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, *_WORK],
    "mcast_device_allgather": [c.c_int64, _AT, c.c_uint64, c.c_uint64, c.c_size_t, *_WORK],
    "mcast_device_broadcast": [c.c_int64, _AT, c.c_uint64, c.c_size_t, c.c_int, *_WORK],
    "mcast_device_reduce_scatter": [
        c.c_int64, _AT, c.c_uint64, c.c_uint64, c.c_size_t, c.c_int, c.c_int, c.c_double, *_WORK,
    ],
    "mcast_device_reduce": [
        c.c_int64, _AT, c.c_uint64, c.c_uint64, c.c_size_t, c.c_int, c.c_int, c.c_double, c.c_int, *_WORK,
    ],
    "mcast_device_allreduce": [
        c.c_int64, _AT, c.c_uint64, c.c_uint64, c.c_size_t, c.c_int, c.c_int, c.c_double, *_WORK,
    ],
    "mcast_device_follow": [c.c_int64, c.c_uint64, *_ERR],
    "mcast_test": [c.c_int64, c.POINTER(c.c_int), *_ERR],
    "mcast_wait": [c.c_int64, c.c_int64, *_ERR],
    "mcast_account": [c.c_int64, c.POINTER(c.c_uint64), *_ERR],
    "mcast_forget": [c.c_int64],
    "mcast_info": [c.c_int64, c.c_char_p, c.c_size_t, c.POINTER(c.c_size_t), *_ERR],
    "mcast_communicators": [c.c_char_p, c.c_size_t, c.POINTER(c.c_size_t), *_ERR],
    "mcast_trace": [c.c_char_p, *_ERR],
    "mcast_stats": [c.c_int64, c.POINTER(StatsStruct), *_ERR],
    "mcast_close": [c.c_int64, *_ERR],
    "mcast_leave": [c.c_int64, *_WORK],
    "mcast_leave_at_exit": _ERR,
    "mcast_abort": [c.c_int64, c.c_char_p, *_ERR],
    "mcast_error_rank": [],
}  # fmt: skip


class _Scratch(threading.local):
    """Out-parameters of one thread, made once and not per call."""

    def __init__(self) -> None:
        self.err = c.create_string_buffer(_ERROR_BYTES)
        self.handle = c.c_int64()
        self.handle_ref = c.byref(self.handle)
        self.flag = c.c_int()
        self.flag_ref = c.byref(self.flag)


_scratch = _Scratch()
_lock = threading.Lock()
_library: Library | None = None
_forked_from = 0  # the parent that had loaded the library before it forked this process


def _after_fork_in_child() -> None:
    global _forked_from, _lock
    _lock = threading.Lock()
    if _library is not None and not _forked_from:
        _forked_from = os.getppid()


os.register_at_fork(after_in_child=_after_fork_in_child)


def find() -> Path:
    """Return where the library is: MCAST_LIBRARY, else the wheel's lib/, else the repository's lib/."""
    named = os.environ.get("MCAST_LIBRARY")
    if named:
        path = Path(named)
        if not path.is_file():
            raise errors.LibraryError(f"MCAST_LIBRARY={named}: no such file")
        return path
    package = Path(__file__).resolve().parent
    places = [package / "lib" / NAME, package.parents[1] / "lib" / NAME]
    for path in places:
        if path.is_file():
            return path
    raise errors.LibraryError(
        f"{NAME} was not found in {' or '.join(str(p.parent) for p in places)}: "
        "run `make build` in the repository, or set MCAST_LIBRARY to its path"
    )


def library() -> Library:
    """Return the loaded library, loading it at the first call."""
    global _library
    loaded = _library
    if loaded is not None and not _forked_from:
        return loaded
    if _forked_from:
        raise errors.ForkError(
            f"process {_forked_from} had loaded {NAME} before it forked this one ({os.getpid()}), and "
            "the library does not survive a fork: fork before the first group is made, or start the "
            'process with multiprocessing.get_context("spawn")'
        )
    with _lock:
        if _library is None:
            _library = Library(find())
        return _library


def mapped() -> list[Path]:
    """Return the copies of the library that this process has loaded, as torch_mcast or as NCCL's plugin."""
    with open("/proc/self/maps") as lines:
        files = {fields[5] for line in lines if len(fields := line.rstrip("\n").split(maxsplit=5)) == 6}
    return sorted(path for path in map(Path, files) if path.name == NAME)


def usable() -> bool:
    """Say whether handles of this process may be used: the library is loaded and no fork came after."""
    return _library is not None and not _forked_from


class Library:
    """The functions of mcast.h. Errors are raised (see errors.py); pointers are plain addresses.

    ctypes releases the GIL during every call.
    """

    def __init__(self, path: Path) -> None:
        """Load the library at path and check that it has every function."""
        self.path = path
        try:
            self._dll = c.CDLL(str(path))
        except OSError as e:
            raise errors.LibraryError(f"cannot load {path}: {e}") from e
        try:
            for name, argtypes in _SIGNATURES.items():
                function = getattr(self._dll, name)
                function.argtypes = argtypes
                function.restype = c.c_int
            self._dll.mcast_version.argtypes = []
            self._dll.mcast_version.restype = c.c_char_p
            self._dll.mcast_abi.argtypes = []
            abi = self._dll.mcast_abi()
        except AttributeError as e:
            raise errors.LibraryError(f"{path} is not the library that torch_mcast needs ({e}): {_REMEDY}") from e
        if abi != _ABI:
            raise errors.LibraryError(f"{path} has MCAST_ABI {abi}, torch_mcast needs {_ABI}: {_REMEDY}")

    def _check(self, code: int) -> None:
        if code != errors.OK:
            rank: int = self._dll.mcast_error_rank()
            text = _scratch.err.value.decode(errors="replace")
            raise errors.from_code(code, text, rank if rank >= 0 else None)

    def version(self) -> str:
        """Return the library's version, e.g. "0.1.0 (7a71fd99, go1.26, linux/amd64, avx512)"."""
        text: bytes = self._dll.mcast_version()
        return text.decode()

    def open(self, rank: int, size: int, options: str) -> tuple[int, bytes]:
        """Start a rank; return its endpoint and the blob that the others need."""
        blob = c.create_string_buffer(_BLOB_BYTES)
        length, endpoint = c.c_size_t(), c.c_int64()
        self._check(
            self._dll.mcast_open(
                rank, size, options.encode(), blob, _BLOB_BYTES, c.byref(length), c.byref(endpoint),
                _scratch.err, _ERROR_BYTES,
            )
        )  # fmt: skip
        return endpoint.value, blob.raw[: length.value]

    def join(self, endpoint: int, blobs: list[bytes], timeout_ms: int) -> int:
        """Connect all ranks; return the group. Blocks."""
        lengths = (c.c_size_t * len(blobs))(*(len(b) for b in blobs))
        group = c.c_int64()
        self._check(
            self._dll.mcast_join(
                endpoint, b"".join(blobs), lengths, timeout_ms, c.byref(group), _scratch.err, _ERROR_BYTES
            )
        )
        return group.value

    def close_endpoint(self, endpoint: int) -> None:
        """Give up a rank that will not join."""
        self._check(self._dll.mcast_close_endpoint(endpoint, _scratch.err, _ERROR_BYTES))

    def allgather(self, group: int, send: int, recv: int, nbytes: int, at: StreamStruct | None = None) -> int:
        """Start an Allgather of nbytes a rank, at: on a GPU; return the work."""
        return self._start("allgather", at, group, send, recv, nbytes)

    def _start(self, name: str, at: StreamStruct | None, group: int, *args: Any) -> int:
        s = _scratch
        if at is None:
            start = getattr(self._dll, f"mcast_{name}")
            self._check(start(group, *args, s.handle_ref, s.err, _ERROR_BYTES))
        else:
            start = getattr(self._dll, f"mcast_device_{name}")
            self._check(start(group, c.byref(at), *args, s.handle_ref, s.err, _ERROR_BYTES))
        return s.handle.value

    def reserve(self, group: int, nbytes: int) -> int:
        """Reserve a place for the result of an Allgather of nbytes a rank; return it, 0: there is none."""
        s = _scratch
        self._check(self._dll.mcast_reserve(group, nbytes, s.handle_ref, s.err, _ERROR_BYTES))
        return s.handle.value

    def register(self, group: int, address: int, nbytes: int) -> int:
        """Register memory with the group's RDMA device, if it has one; return the registration's handle."""
        s = _scratch
        self._check(self._dll.mcast_register(group, address, nbytes, s.handle_ref, s.err, _ERROR_BYTES))
        return s.handle.value

    def deregister(self, registration: int) -> None:
        """Take memory from the device that register has given it."""
        self._check(self._dll.mcast_deregister(registration, _scratch.err, _ERROR_BYTES))

    def place(self, output: int, timeout_ms: int) -> int | None:
        """Wait until a reserved place is free; return its address, None: it is gone, use other memory.

        Raises WaitTimeoutError, which says whom it waits for, when timeout_ms (<0: for ever) ran out.
        """
        at = c.c_void_p()
        code = self._dll.mcast_place(output, timeout_ms, c.byref(at), _scratch.err, _ERROR_BYTES)
        if code == errors.E_TIMEOUT:
            raise errors.WaitTimeoutError(_scratch.err.value.decode(errors="replace"))
        self._check(code)
        return at.value

    def release(self, output: int) -> None:
        """Give a place back; nothing in this process uses its memory any more."""
        self._dll.mcast_release(output)

    def broadcast(self, group: int, buf: int, nbytes: int, root: int, at: StreamStruct | None = None) -> int:
        """Start a Broadcast, at: on a GPU; return the work."""
        return self._start("broadcast", at, group, buf, nbytes, root)

    def reduce_scatter(
        self,
        group: int,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        op: int,
        factor: float,
        at: StreamStruct | None = None,
    ) -> int:
        """Start a Reduce-Scatter of count elements a rank, at: on a GPU; return the work."""
        return self._start("reduce_scatter", at, group, send, recv, count, dtype, op, factor)

    def reduce(
        self,
        group: int,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        op: int,
        factor: float,
        root: int,
        at: StreamStruct | None = None,
    ) -> int:
        """Start a Reduce of count elements to root, at: on a GPU; return the work."""
        return self._start("reduce", at, group, send, recv, count, dtype, op, factor, root)

    def allreduce(
        self,
        group: int,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        op: int,
        factor: float,
        at: StreamStruct | None = None,
    ) -> int:
        """Start an Allreduce of count elements, at: on a GPU; return the work."""
        return self._start("allreduce", at, group, send, recv, count, dtype, op, factor)

    def follow(self, work: int, stream: int) -> None:
        """Have what a CUDA stream is given from now on wait for the results of a work on a GPU.

        Raises the error of a work that has failed by now.
        """
        self._check(self._dll.mcast_device_follow(work, stream, _scratch.err, _ERROR_BYTES))

    def barrier(self, group: int) -> int:
        """Start a barrier; return the work."""
        s = _scratch
        self._check(self._dll.mcast_barrier(group, s.handle_ref, s.err, _ERROR_BYTES))
        return s.handle.value

    def send(self, group: int, buf: int, nbytes: int, to: int, tag: int) -> int:
        """Start a send to a rank; return the work."""
        return self._start("send", None, group, buf, nbytes, to, tag)

    def recv(self, group: int, buf: int, nbytes: int, source: int, tag: int) -> int:
        """Start a receive of nbytes at most from a rank, -1: from any; return the work."""
        return self._start("recv", None, group, buf, nbytes, source, tag)

    def source(self, work: int) -> tuple[int, int]:
        """Return which rank has sent the message of a receive that is done, and how many bytes."""
        rank, nbytes = c.c_int(), c.c_size_t()
        self._check(self._dll.mcast_source(work, c.byref(rank), c.byref(nbytes), _scratch.err, _ERROR_BYTES))
        return rank.value, nbytes.value

    def all_to_all(self, group: int, send: int, recv: int, sent: list[int], received: list[int]) -> int:
        """Start an all-to-all of so many bytes to each rank, and from each; return the work."""
        sizes = c.c_size_t * len(sent)
        return self._start("all_to_all", None, group, send, recv, sizes(*sent), sizes(*received))

    def gather(self, group: int, send: int, recv: int, nbytes: int, root: int) -> int:
        """Start a gather of nbytes a rank; return the work."""
        return self._start("gather", None, group, send, recv, nbytes, root)

    def scatter(self, group: int, send: int, recv: int, nbytes: int, root: int) -> int:
        """Start a scatter of nbytes a rank; return the work."""
        return self._start("scatter", None, group, send, recv, nbytes, root)

    def test(self, work: int) -> bool:
        """Say whether a work is done, well or not."""
        s = _scratch
        self._check(self._dll.mcast_test(work, s.flag_ref, s.err, _ERROR_BYTES))
        return s.flag.value != 0

    def wait(self, work: int, timeout_ms: int) -> bool:
        """Wait for a work; return False when timeout_ms (<0: for ever) ran out before it was done.

        The outcome stays until forget(), so that one that an exception of a signal handler lost can
        be had again.
        """
        code = self._dll.mcast_wait(work, timeout_ms, _scratch.err, _ERROR_BYTES)
        if code == errors.E_TIMEOUT:
            return False
        self._check(code)
        return True

    def account(self, work: int) -> Account | None:
        """Return how long a work that is done waited for what; None: of this work it is not kept."""
        ns = (c.c_uint64 * len(Account._fields))()
        if self._dll.mcast_account(work, ns, _scratch.err, _ERROR_BYTES) != errors.OK:
            return None
        return Account(*ns)

    def forget(self, work: int) -> None:
        """Drop a work handle; an operation in flight goes on."""
        self._dll.mcast_forget(work)

    def info(self, group: int) -> str:
        """Return the JSON object about a group."""
        return self._text(self._dll.mcast_info, group)

    def communicators(self) -> str:
        """Return the JSON array about NCCL's communicators that use this library."""
        return self._text(self._dll.mcast_communicators)

    def _text(self, function: Any, *args: int) -> str:
        cap, length = 1024, c.c_size_t()
        while True:
            text = c.create_string_buffer(cap)
            code = function(*args, text, cap, c.byref(length), _scratch.err, _ERROR_BYTES)
            if code == errors.E_ARGUMENT and length.value > cap:
                cap = length.value
                continue
            self._check(code)
            return text.value.decode()

    def trace(self, path: str) -> None:
        """Write what the groups of this process have done last to a file."""
        self._check(self._dll.mcast_trace(os.fsencode(path), _scratch.err, _ERROR_BYTES))

    def stats(self, group: int) -> StatsStruct:
        """Return the counters of a group."""
        stats = StatsStruct()
        stats.size = c.sizeof(stats)
        self._check(self._dll.mcast_stats(group, c.byref(stats), _scratch.err, _ERROR_BYTES))
        return stats

    def close(self, group: int) -> None:
        """Leave a group. Blocks until all ranks do."""
        self._check(self._dll.mcast_close(group, _scratch.err, _ERROR_BYTES))

    def leave(self, group: int) -> int:
        """Begin to leave a group; return a work that is done when all ranks have left."""
        s = _scratch
        self._check(self._dll.mcast_leave(group, s.handle_ref, s.err, _ERROR_BYTES))
        return s.handle.value

    def leave_at_exit(self) -> None:
        """Have open groups be left as the process ends, as its exit status says."""
        self._check(self._dll.mcast_leave_at_exit(_scratch.err, _ERROR_BYTES))

    def abort(self, group: int, reason: str) -> None:
        """End a group on all ranks, which get the reason. Does not wait for them."""
        self._check(self._dll.mcast_abort(group, reason.encode(), _scratch.err, _ERROR_BYTES))
