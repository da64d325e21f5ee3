from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_mcast import doctor, errors

from .limits import LIMIT_S
from .ports import held


def test_the_program_is_found() -> None:
    assert doctor.program().name == "mcast"


def test_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "lib" / "libnccl-net-mcast.so"
    library.parent.mkdir()
    library.touch()
    monkeypatch.setenv("MCAST_LIBRARY", str(library))
    monkeypatch.setenv("PATH", "")
    remedy = "or put the folder of pip's scripts on PATH"
    with pytest.raises(errors.LibraryError, match=rf"mcast was not found .*{remedy}$"):
        doctor.program()
    beside = library.parent / "mcast"
    beside.touch(0o755)
    assert doctor.program() == beside


def test_a_library_without_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libx.so").touch()
    beside = tmp_path / "mcast"
    beside.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MCAST_LIBRARY", "libx.so")
    assert doctor.program() == beside.resolve()


def test_ranks_of_two_hosts() -> None:
    """As torchrun starts three ranks on two hosts, which are both this one."""
    with held() as port:
        ranks = [start(rank, port - 1) for rank in (0, 1, 2)]  # torchrun's; the next one is the doctor's
        said = [process.communicate(timeout=LIMIT_S)[0] for process in ranks]
    assert said[1:] == ["", ""], "rank 0 speaks for all"
    report = json.loads(said[0])
    assert [host["host"] for host in report["hosts"]] == ["host0", "host1"]
    assert len(report["matrix"]["pairs"]) == 2
    assert all(pair["tcp"] for pair in report["matrix"]["pairs"])
    assert [process.returncode for process in ranks] == [2, 0, 0], "both have one address"


def start(rank: int, port: int) -> subprocess.Popen[str]:
    host = rank // 2
    command = ["-m", "torch_mcast.doctor", "--json", "--no-nccl", "--listen=0s", f"--name=host{host}"]
    env = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": "4",
        "LOCAL_RANK": str(rank % 2),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "MCAST_IFACE": "lo",
    }
    return subprocess.Popen([sys.executable, *command], env=env, stdout=subprocess.PIPE, text=True)
