"""NCCL's own binaries load the plugin.

NCCL 2.20 and 2.21 look a network plugin up inside ncclGetUniqueId, where no GPU and no driver is
needed; later ones do so with a device in hand. NCCL's log names only the error with the
newest ABI it knows, so the test also reads where the dynamic loader has found each symbol.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from torch_mcast import _lib

from .limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
ABIS = sorted(int(path.stem.removeprefix("abi_v")) for path in (ROOT / "conformance").glob("abi_v*.c"))
assert ABIS, "no conformance/abi_vN.c"
VERSIONS = {"2.20.5": 22005, "2.21.5": 22105}
OLD = [5, 6, 7, 8]
NEW = [*range(6, 13)]
LOOKS_FOR = {
    "2.20.5": {"net": OLD, "collnet": OLD, "tuner": [1], "profiler": None},
    "2.21.5": {"net": OLD, "collnet": OLD, "tuner": [2], "profiler": None},
    "2.32.3": {"net": NEW, "collnet": NEW, "tuner": [*range(2, 7)], "profiler": [*range(1, 8)]},
}
MEETS_ON = {
    "2.20.5": {"net": 8, "collnet": 8, "tuner": 1, "profiler": 0},
    "2.21.5": {"net": 8, "collnet": 8, "tuner": 2, "profiler": 0},
    "2.32.3": {"net": 12, "collnet": 12, "tuner": 6, "profiler": 5},
}
ABI = 8  # the newest of both

# Runs in a process of its own: loads argv[1] and prints what ncclGetUniqueId says.
CLIENT = """
import ctypes, json, sys
nccl = ctypes.CDLL(sys.argv[1])
version, unique = ctypes.c_int(), ctypes.create_string_buffer(128)
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
result = nccl.ncclGetUniqueId(unique)
maps = open("/proc/self/maps").read()
print(json.dumps({"version": version.value, "result": result, "id": any(unique.raw), "maps": maps}))
"""


@dataclass
class Seen:
    """What one NCCL did: its version and result, its log, and the tables that the loader bound."""

    version: int
    result: int
    id: bool
    maps: str
    log: str
    bound: list[tuple[str, str]]  # library, symbol


def binary(version: str) -> Path:
    library = ROOT / ".tools" / "nccl" / version / "libnccl.so.2"
    if version not in VERSIONS and not library.is_file():
        pytest.skip(f"{library} is missing: scripts/nccl newest fetches it")
    assert library.is_file(), f"{library} is missing: run `make nccl`"
    return library


def nccl(version: str, plugin: str, folder: Path, scratch: Path) -> Seen:
    library = binary(version)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "LD_"))}
    environment |= {
        "LD_LIBRARY_PATH": str(folder),
        "LD_DEBUG": "bindings",
        "LD_DEBUG_OUTPUT": str(scratch / "loader"),
        "NCCL_NET_PLUGIN": plugin,
        "NCCL_NET": plugin,
        "NCCL_COLLNET_ENABLE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(scratch / "nccl.log"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(library)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loader = "".join(f.read_text() for f in scratch.glob("loader.*"))
    bound = re.findall(r"binding file (\S+) .*symbol `(nccl\w+Plugin_v\d+)'", loader)
    return Seen(**json.loads(done.stdout), log=(scratch / "nccl.log").read_text(), bound=bound)


def complaints(log: str) -> list[str]:
    """Return the lines by which NCCL tells that it has not taken a plugin, or by an older ABI alone."""
    bad = re.compile(r"WARN|Failed to find|internal implementation|Loaded (net|coll) plugin .*\(v\d+\)")
    return [line for line in log.splitlines() if bad.search(line)]


@pytest.mark.more
@pytest.mark.parametrize("version", VERSIONS)
def test_nccl_takes_the_plugin(version: str, tmp_path: Path) -> None:
    path = _lib.find()
    seen = nccl(version, "mcast", path.parent, tmp_path)
    assert (seen.version, seen.result, seen.id) == (VERSIONS[version], 0, True)
    assert "Plugin name set by env to libnccl-net-mcast.so" in seen.log
    assert complaints(seen.log) == []
    assert str(path) in seen.maps
    assert sorted(seen.bound) == [
        (str(path), f"ncclCollNetPlugin_v{ABI}"),
        (str(path), f"ncclNetPlugin_v{ABI}"),
    ]


@pytest.mark.more
@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_plugin_is_seen(version: str, tmp_path: Path) -> None:
    seen = nccl(version, "absent", tmp_path, tmp_path)
    assert seen.bound == []
    assert "libnccl-net-absent.so" in seen.log
    assert "Plugin name set by env to libnccl-net-mcast.so" not in seen.log


@pytest.mark.more
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plugin_without_tables_is_seen(version: str, tmp_path: Path) -> None:
    library = tmp_path / "libnccl-net-bare.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "-o", library, "/dev/null"], check=True)
    seen = nccl(version, "bare", tmp_path, tmp_path)
    assert seen.bound == []
    assert any("Failed to find ncclNetPlugin_v8 symbol" in line for line in complaints(seen.log))


@pytest.mark.more
@pytest.mark.parametrize("version", LOOKS_FOR)
def test_check_says_what_nccl_looks_for(version: str) -> None:
    command = [str(ROOT / "bin" / "mcast"), "nccl", "check", "--json", f"--nccl={binary(version)}"]
    settings = {"LD_LIBRARY_PATH": str(_lib.find().parent), "NCCL_NET_PLUGIN": "mcast", "HOME": "/nonexistent"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    report = json.loads(done.stdout)
    assert report["nccl"]["version"] == version
    assert report["nccl"]["looks_for"] == LOOKS_FOR[version]
    assert report["meet"] == MEETS_ON[version]


@pytest.mark.more
def test_what_rccl_would_look_for_is_the_same_file() -> None:
    # RCCL makes librccl-net-NAME.so of NCCL_NET_PLUGIN=NAME (src/plugin/plugin_open.cc). A copy would be loaded twice.
    assert (ROOT / "lib" / "librccl-net-mcast.so").samefile(ROOT / "lib" / "libnccl-net-mcast.so")


@pytest.mark.parametrize("kind", ["Net", "CollNet"])
@pytest.mark.parametrize("abi", ABIS)
def test_every_table_is_there_and_bears_one_name(kind: str, abi: int) -> None:
    # NCCL joins net and CollNet devices by name.
    dll = ctypes.CDLL(str(_lib.find()))
    assert ctypes.c_char_p.in_dll(dll, f"nccl{kind}Plugin_v{abi}").value == b"mcast"
