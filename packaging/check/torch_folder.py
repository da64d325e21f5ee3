"""A folder with one version of torch for the Python that runs this, without CUDA's libraries: they take gigabytes.

    python torch_folder.py 2.11.0 build/compat/torch-2.11.0

Whatever else torch needs, the Python's own packages serve. Libraries of CUDA that these lack are stood in for by
empty ones: without a GPU nothing calls them. Takes readelf, nm and a C compiler. A finished folder stays.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# It compiles, and goes with one version of torch.
TRITON = re.compile(r"^Requires-Dist: triton ?\(?==([\d.]+)", re.M)
# The one library of CUDA that torch asks without a GPU, whether there is one, as two ways to require it name it.
RUNTIME = re.compile(r"^Requires-Dist: (?:nvidia-cuda-runtime(-cu\d+)|cuda-toolkit)\b.*?==(\d+\.\d+)", re.M)


def install(folder: Path, *wanted: str) -> None:
    """Put packages into the folder, without what they need."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", "--no-deps"]
    subprocess.run([*pip, "--upgrade", "--target", folder, *wanted], check=True)


def imports(folder: Path) -> bool:
    """Say whether torch can be imported from the folder."""
    command = [sys.executable, "-c", "import torch.distributed"]
    env = {**os.environ, "PYTHONPATH": str(folder), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return subprocess.run(command, env=env, stderr=subprocess.DEVNULL).returncode == 0


def said(*command: str | Path) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def stand_in(libraries: Path) -> None:
    """Make a library for each that a library of torch needs and that is not there, with the symbols they want."""
    own = [*libraries.glob("*.so*")]
    there = {path.name for path in own} | {path.name for path in libraries.parents[1].glob("nvidia/**/*.so*")}
    symbols: dict[str, dict[str, set[str]]] = {}  # of library and version
    plain: set[str] = set()  # of no version: any library may have them
    needed = set()
    for path in own:
        needed |= set(re.findall(r"\(NEEDED\).*\[(lib(?:cu|nv|nccl)[^]]*)\]", said("readelf", "--dynamic", path)))
        versions: dict[str, str] = {}
        file = ""
        for line in said("readelf", "--version-info", "--wide", path).splitlines():
            if found := re.search(r"Version: 1  File: (\S+)", line):
                file = found[1]
            elif found := re.search(r"Name: (\S+)  Flags", line):
                versions[found[1]] = file
        for line in said("nm", "--dynamic", "--undefined-only", "--with-symbol-versions", path).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if version and versions.get(version, "").startswith(("libcu", "libnv", "libnccl")):
                symbols.setdefault(versions[version], {}).setdefault(version, set()).add(name)
            elif re.match(r"cu|nccl|nv", name):
                plain.add(name)
    for library in needed - there - {"libcuda.so.1"}:  # the driver's, which torch opens when it is asked for
        with tempfile.TemporaryDirectory() as scratch:
            code, script = Path(scratch, "code.c"), Path(scratch, "script")
            versioned = symbols.get(library, {})
            code.write_text("".join(f"int {s}(void) {{ return 1; }}\n" for s in plain.union(*versioned.values())))
            nodes = [f"{version} {{ global: {'; '.join(s)}; }};\n" for version, s in versioned.items()]
            script.write_text("".join(nodes) or "{ global: *; };\n")
            linker = [f"-Wl,--version-script={script}", f"-Wl,-soname,{library}"]
            command = ["cc", "-w", "-fno-builtin", "-shared", *linker, "-o", libraries / library, code]
            subprocess.run(command, check=True)


def main() -> None:
    """Make the folder, or leave it if it is whole."""
    version, folder = sys.argv[1], Path(sys.argv[2]).absolute()
    if folder.exists():
        return
    half = folder.with_name(folder.name + ".part")
    shutil.rmtree(half, ignore_errors=True)
    install(half, f"torch=={version}")
    needs = next(half.glob("torch-*.dist-info/METADATA")).read_text()
    if found := TRITON.search(needs):
        install(half, f"triton=={found[1]}")
    if not imports(half):
        required = RUNTIME.findall(needs)
        install(half, *(f"nvidia-cuda-runtime{suffix}~={version}.0" for suffix, version in required))
        stand_in(half / "torch/lib")
        if not imports(half):
            raise SystemExit(f"torch {version} cannot be imported from {half}")
    half.rename(folder)


if __name__ == "__main__":
    main()
