"""Where and when a row was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def commit() -> str:
    """Return the commit of this checkout, as git describes it, or "unknown"."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        said = ""
    named = Path(__file__).resolve().parents[2] / "COMMIT"  # of a copy without git, such as the GPU kit
    return said or (named.read_text().strip() if named.exists() else "unknown")


def machine() -> dict[str, Any]:
    """Return when, with which commit and on which machine this is measured, as `mcast bench` says it."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit(),
        "cpu": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
    }


def shared_machine() -> dict[str, Any]:
    """Return machine() for one that others use as well: with the time, the cores for us and the load."""
    return machine() | {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }
