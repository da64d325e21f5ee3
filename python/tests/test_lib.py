from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torch_mcast import _lib, errors, structs

from .limits import LIMIT_S


def python(script: str) -> str:
    """Run a script in a fresh interpreter; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_missing_library_names_the_places_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MCAST_LIBRARY", raising=False)
    monkeypatch.setattr(_lib, "__file__", str(tmp_path / "a" / "torch_mcast" / "_lib.py"))
    with pytest.raises(errors.LibraryError, match=r"not found in .*make build"):
        _lib.find()


def test_a_wrong_path_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCAST_LIBRARY", "/nowhere/lib.so")
    with pytest.raises(errors.LibraryError, match=r"MCAST_LIBRARY=/nowhere/lib\.so: no such file"):
        _lib.find()


def test_another_library_is_refused(tmp_path: Path) -> None:
    import ctypes.util

    libm = ctypes.util.find_library("m")
    assert libm is not None
    with pytest.raises(errors.LibraryError, match="not the library that torch_mcast needs"):
        _lib.Library(Path(libm))
    text = tmp_path / "text.so"
    text.write_text("not a library")
    with pytest.raises(errors.LibraryError, match="cannot load"):
        _lib.Library(text)


def test_error_codes_have_their_exceptions() -> None:
    error = errors.from_code(4, "rank 3 of 8 has not answered for 2s", 3)
    assert isinstance(error, errors.RankError)
    assert error.rank == 3
    assert isinstance(errors.from_code(3, "late"), TimeoutError)
    assert isinstance(errors.from_code(1, "bad"), ValueError)
    assert isinstance(errors.from_code(5, ""), errors.MismatchError)
    assert "99" in str(errors.from_code(99, "odd"))


def test_calls_with_unknown_handles_say_so() -> None:
    lib = _lib.library()
    with pytest.raises(errors.ClosedError):
        lib.test(1 << 40)
    with pytest.raises(errors.ClosedError):
        lib.barrier(1 << 40)
    with pytest.raises(errors.ArgumentError):
        lib.open(4, 2, "")
    with pytest.raises(errors.ArgumentError, match="MCAST_FABRIC"):
        lib.open(0, 1, "MCAST_FABRIC=carrier-pigeon")


def test_a_negative_limit_of_an_operation_on_a_gpu_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match=r"timeout_ms is -1; allowed are 0, which is no limit"):
        _lib.library().allgather(12345, 4096, 8192, 16, structs.stream_at(0, 0, -1))


def test_importing_loads_no_library_and_registers_the_backend() -> None:
    out = python("""
        import torch, torch_mcast, torch.distributed as dist
        from torch_mcast import _lib
        print(_lib._library, "mcast" in dist.Backend.backend_list)
    """)
    assert out.split() == ["None", "True"]


def test_torch_registers_the_backend_without_our_import() -> None:
    out = python("""
        import torch, torch.distributed as dist
        print("mcast" in dist.Backend.backend_list)
    """)
    assert out.split() == ["True"]


def test_a_forked_child_gets_an_error_and_bystanders_none() -> None:
    out = python("""
        import os, warnings
        warnings.simplefilter("ignore")
        import torch, torch.distributed as dist, torch_mcast
        from torch.utils.data import DataLoader
        dist.init_process_group("mcast", store=dist.HashStore(), rank=0, world_size=1)
        print(sum(int(x.sum()) for x in DataLoader(range(8), num_workers=2, batch_size=2)))
        pid = os.fork()
        if pid == 0:
            try:
                dist.barrier()
            except torch_mcast.ForkError as e:
                os._exit(7 if f"process {os.getppid()}" in str(e) and "spawn" in str(e) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        dist.barrier()
        dist.destroy_process_group()
        print("alive")
    """)
    assert out.split() == ["28", "7", "alive"]


def test_a_mistyped_variable_is_noted_once() -> None:
    out = python("""
        import os
        os.dup2(1, 2)
        os.environ["MCAST_FABRICC"] = "udp"
        import torch.distributed as dist, torch_mcast
        dist.init_process_group("mcast", store=dist.HashStore(), rank=0, world_size=1)
        dist.new_group([0], backend="mcast")
        dist.destroy_process_group()
    """)
    assert out.count("MCAST_FABRICC has no effect: did you mean MCAST_FABRIC?") == 1
