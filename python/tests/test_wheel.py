"""What `pip install` of the sdist or of a wheel brings, without the network; Go only links it anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import torch

import torch_mcast

from .limits import LIMIT_S

pytestmark = pytest.mark.more

PYTHON_FOLDER = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Run a command and return its output; a failure shows all output."""
    named = {k: v for k, v in os.environ.items() if k not in ("MCAST_LIBRARY", "PYTHONPATH")} | environment
    done = subprocess.run(
        command, cwd=folder, env=named, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def checked_out() -> str:
    """Return the checked out commit, without regard to later changes; empty where git has none."""
    if not (PYTHON_FOLDER.parent / ".git").exists():
        return ""
    return run("git", "describe", "--always", folder=PYTHON_FOLDER).strip()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    make = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", make, folder, folder=PYTHON_FOLDER)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that pip makes of the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources, folder=folder)
    (made,) = folder.iterdir()
    return made


def test_wheel_holds_library_header_and_program(wheel: Path) -> None:
    version = torch_mcast.__version__
    with zipfile.ZipFile(wheel) as packed:
        modes = {i.filename: i.external_attr >> 16 for i in packed.infolist()}
        metadata = Parser().parsestr(packed.read(f"torch_mcast-{version}.dist-info/METADATA").decode())
        tag = packed.read(f"torch_mcast-{version}.dist-info/WHEEL").decode()
    sources = {f"torch_mcast/{p.name}" for p in Path(torch_mcast.__file__).parent.glob("*.py")}
    program = f"torch_mcast-{version}.data/scripts/mcast"
    assert {n for n in modes if ".dist-info/" not in n} == sources | {
        "torch_mcast/VERSION",
        "torch_mcast/py.typed",
        "torch_mcast/lib/libnccl-net-mcast.so",
        "torch_mcast/lib/mcast.h",
        program,
    }
    assert modes[program] & 0o111
    assert f"torch_mcast-{version}.dist-info/licenses/LICENSE" in modes
    assert metadata["Name"] == "torch-mcast"
    assert metadata["Version"] == version
    assert "torch>=2.6" in (metadata.get_all("Requires-Dist") or [])
    assert "Tag: py3-none-linux_" in tag  # every Python, this platform
    assert "Root-Is-Purelib: false" in tag


def test_installed_wheel_is_enough(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh", folder=tmp_path)
    python = tmp_path / "fresh/bin/python"
    place = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip()
    )
    run(*PIP, "--python", python, "install", "--no-index", "--no-deps", wheel, folder=tmp_path)
    # torch comes from this environment, by a path that is searched after the fresh one's own.
    (place / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    script = """
        import torch, torch.distributed as dist
        import torch_mcast
        dist.init_process_group("mcast", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        out = torch.empty(4)
        dist.all_gather_into_tensor(out, torch.arange(4.0))
        assert out.tolist() == [0, 1, 2, 3]
        print(torch_mcast._lib.find())
        """
    said = run(python, "-c", "\n".join(line.strip() for line in script.splitlines()), folder=tmp_path)
    assert said.strip() == str(place / "torch_mcast/lib/libnccl-net-mcast.so")
    said = run("mcast", "--version", folder=tmp_path, PATH=str(python.parent))
    assert said.startswith(f"mcast {torch_mcast.__version__} ({checked_out()}")
    said = run("mcast", "version", "--json", folder=tmp_path, PATH=str(python.parent))
    assert json.loads(said)["commit"].removesuffix("-dirty") == checked_out()
    # The library's version is not asked for its commit; it has it.
    assert checked_out().encode() in (place / "torch_mcast/lib/libnccl-net-mcast.so").read_bytes()


def test_sdist_has_what_users_get(sources: Path) -> None:
    assert (sources / "go/cmd/mcast/main.go").is_file()
    assert (sources / "go/COMMIT").read_text().strip().removesuffix("-dirty") == checked_out()
    assert not (sources / "go/internal/lab").exists()


def test_sdist_says_that_go_is_missing(sources: Path, tmp_path: Path) -> None:
    make = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    done = subprocess.run(
        [sys.executable, "-c", make],
        cwd=sources,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode != 0
    assert "there is no `go` on PATH" in done.stderr
