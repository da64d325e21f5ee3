"""Describe this machine in one row: GPU, driver, CUDA, NCCL, torch, cores, RDMA devices, multicast."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "fsdp"))
from machine import machine
from rows import driver

GROUP = "239.255.77.77"


def multicast_on(interface: str) -> str:
    """Return "passes", or what stands in the way of multicast from this host to itself on an interface."""
    try:
        index = struct.pack("@4s4si", socket.inet_aton(GROUP), b"\0" * 4, socket.if_nametoindex(interface))
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind((GROUP, 0))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, index)
            receiver.settimeout(2)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, index)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sender.sendto(b"mcast", (GROUP, receiver.getsockname()[1]))
            receiver.recv(16)
    except OSError as e:
        return str(e)
    return "passes"


def namespaces() -> str:
    """Return "can be made", or why a network namespace cannot."""
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return "can be made" if made.returncode == 0 else made.stderr.strip()


def gpus() -> list[str]:
    """Return a line for each GPU, of nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return []
    fields = "name,memory.total,pcie.link.gen.current,pcie.link.width.current,driver_version"
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()


def nccl() -> str:
    """Return the version of the NCCL that torch has, or ""."""
    import torch

    if not torch.distributed.is_nccl_available():
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def facts() -> dict[str, Any]:
    """Return the row."""
    import torch

    infiniband = Path("/sys/class/infiniband")
    return {
        "record": "machine",
        **machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "nccl": nccl(),
        "gpus": gpus(),
        "usable": torch.cuda.is_available(),
        "driver": driver(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "cores": len(os.sched_getaffinity(0)),
        "rdma": sorted(d.name for d in infiniband.iterdir()) if infiniband.is_dir() else [],
        "multicast on lo": multicast_on("lo"),
        "namespaces": namespaces(),
        "root": os.geteuid() == 0,
    }


def main() -> None:
    """Print the row and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    row = json.dumps(facts())
    with parser.parse_args().out.open("a") as file:
        file.write(row + "\n")
    print(row)


if __name__ == "__main__":
    main()
