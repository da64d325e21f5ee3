"""Programs of several ranks, each a process, run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .limits import LIMIT_S


def run_ranks(
    command: Sequence[str | Path], env: Mapping[str, str], ranks: int
) -> tuple[list[int], list[str]]:
    """Run a command as each rank, which RANK names; return exit codes and what each wrote to stderr."""
    processes = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=LIMIT_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], said
