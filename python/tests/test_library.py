"""What of libnccl-net-mcast.so a host sees, and what loading it costs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from torch_mcast import _lib, errors

from .host import host


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


def test_a_library_of_another_abi_is_refused_in_words(tmp_path: Path) -> None:
    text = (_lib.find().parent / "mcast.h").read_text()
    assert re.findall(r"#define MCAST_ABI (\d+)", text) == [str(_lib._ABI)]
    gcc = shutil.which("gcc")
    assert gcc, "gcc is missing (Debian: apt-get install gcc)"
    functions = "".join(f"int {name}(void) {{ return 0; }}\n" for name in header_functions() - {"mcast_abi"})
    for abi, said in (
        ("", "not the library"),
        ("int mcast_abi(void) { return 1; }", "has MCAST_ABI 1, torch_mcast needs 2"),
    ):
        source, other = tmp_path / "other.c", tmp_path / f"other{len(abi)}.so"
        source.write_text(functions + abi)
        subprocess.run([gcc, "-shared", "-fPIC", "-o", other, source], check=True)
        with pytest.raises(errors.LibraryError, match=f"{said}.*make build"):
            _lib.Library(other)


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


def test_loading_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    # Go's packages allocate some 120 kB in 900 pieces before the first call: no table is made beforehand.
    monkeypatch.setenv("GODEBUG", "inittrace=1")
    said = host("load()").stderr
    traced = re.findall(r"^init \S+ @.* ms clock, (\d+) bytes, (\d+) allocs$", said, re.MULTILINE)
    assert len(traced) > 10, "Go tells of every package that has anything to do"
    assert sum(int(held) for held, _ in traced) < 400_000, traced
    assert sum(int(pieces) for _, pieces in traced) < 3000, traced


def test_two_copies_of_the_library_live_in_one_process(tmp_path: Path) -> None:
    # As with any other Go library beside ours: neither binds to the other's runtime.
    copy = shutil.copy(_lib.find(), tmp_path / "copy.so")
    host(f"""
        one, other = load(), ctypes.CDLL({str(copy)!r}, mode=ctypes.RTLD_GLOBAL)
        other.mcast_version.restype = ctypes.c_char_p
        assert one.mcast_version() == other.mcast_version()
        assert one.mcast_forget(ctypes.c_int64(1)) == other.mcast_forget(ctypes.c_int64(1)) == 6
    """)
