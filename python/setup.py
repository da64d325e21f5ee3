"""Puts the library, its header and the program into the wheel, which builds them with Go.

The sources are those of the checkout that this folder is part of or, in an sdist, of its folder go/. CC,
GOFLAGS and the like count as for any build by Go: so scripts/release asks for an older libc than this one's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

from distutils.command.build_scripts import build_scripts  # isort: skip  (setuptools brings it)

HERE = Path(__file__).resolve().parent
IN_SDIST = HERE / "go"
SOURCES = IN_SDIST if IN_SDIST.is_dir() else HERE.parent
WANTED = ["go.mod", "go.sum", "LICENSE", "cmd/mcast", "internal", "ncclnet", "pkg"]
LIBRARY = "libnccl-net-mcast.so"
LABORATORY = ":!internal/lab"  # to git: leaves the laboratory out
COMMIT = "COMMIT"  # in an sdist: the commit that it was made of


def commit() -> str:
    """Return the commit of the sources, as git describe --always --dirty; empty: nobody knows."""
    if SOURCES == IN_SDIST:
        told = SOURCES / COMMIT
        return told.read_text().strip() if told.is_file() else ""
    if not (SOURCES / ".git").exists() or shutil.which("git") is None:
        return ""
    describe = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(describe, cwd=SOURCES, capture_output=True, text=True, check=False).stdout.strip()


def go_build(target: Path, package: str, *flags: str, link: str = "") -> None:
    """Build a package of the Go module, with a flag for its linker; an error names the missing tools."""
    want = next(line for line in (SOURCES / "go.mod").read_text().splitlines() if line.startswith("go "))
    hint = (
        f"torch-mcast is built from source here: {want} or newer, a C compiler and access to the Go modules"
    )
    if shutil.which("go") is None:
        raise SystemExit(f"error: there is no `go` on PATH: {hint}; or install a wheel, which needs neither")
    # Neither build IDs nor symbols: both depend on the folder that it is built in.
    stamp = f"-X=github.com/torch-mcast/torch-mcast/internal/version.commit={commit()}"
    linker = f"-s -w -buildid= {stamp}" + (f" '{link}'" if link else "")
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", linker, *flags]
    environment = os.environ | {"CGO_ENABLED": "1"}
    done = subprocess.run([*command, "-o", target, package], cwd=SOURCES, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"error: `go build {package}` failed: {hint}")


class Library(build_py):
    """build_py that adds the shared library and its header to the package."""

    def run(self) -> None:
        """Build them, unless this is an editable install."""
        super().run()
        if self.editable_mode:  # such an install finds the checkout's library
            return
        folder = Path(self.build_lib).resolve() / "torch_mcast" / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        shown = f"-extldflags=-Wl,--version-script={SOURCES / 'ncclnet' / 'exports.map'}"
        go_build(folder / LIBRARY, "./ncclnet", "-buildmode=c-shared", link=shown)
        (folder / LIBRARY).with_suffix(".h").unlink()  # of cgo; people include mcast.h
        shutil.copy(SOURCES / "ncclnet" / "mcast.h", folder)


class Program(build_scripts):
    """build_scripts for a program that is no text."""

    editable_mode = False  # setuptools sets it

    def run(self) -> None:
        """Build mcast, unless this is an editable install."""
        folder = Path(self.build_dir).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not self.editable_mode:  # there it is the checkout's bin/mcast
            go_build(folder / "mcast", "./cmd/mcast")


class Wheel(bdist_wheel):
    """A wheel for one platform and every Python: the library is reached through ctypes."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


class Platform(Distribution):
    """A distribution that is installed where platform-dependent files go."""

    def has_ext_modules(self) -> bool:
        """Say so, though there are none of Python's."""
        return True


class Sources(sdist):
    """An sdist that has the Go sources in it, but neither tests nor what mcast-lab alone needs."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Add what git knows of the module as go/."""
        super().make_release_tree(base_dir, files)
        ask = ["git", "ls-files", "-z", *WANTED, LABORATORY]
        listed = subprocess.run(ask, cwd=HERE.parent, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if name.endswith("_test.go") or "testdata" in Path(name).parts:
                continue
            target = Path(base_dir) / "go" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE.parent / name, target)
        (Path(base_dir) / "go" / COMMIT).write_text(f"{commit()}\n")


setup(
    distclass=Platform,
    scripts=["torch_mcast/VERSION"],  # Program makes mcast instead; without a script it is not asked to
    cmdclass={"build_py": Library, "build_scripts": Program, "bdist_wheel": Wheel, "sdist": Sources},
)
