"""Where and when a row was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Return when, with which commit and on which machine this is measured, as `mcast bench` says it."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")]
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
        "cpu": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
    }
