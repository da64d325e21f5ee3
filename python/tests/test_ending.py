"""How a rank ends, and what the others are told: by the end itself, and with the right rank and cause."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from . import ending
from .host import host
from .limits import LIMIT_S

# MCAST_TIMEOUT is longer than the limit of a test (conftest.py), so nobody is told because it has run out.
ENV = {"GLOO_SOCKET_IFNAME": "lo"}

LEFT = (
    r"rank 2 has left \(its script ended or destroyed the group\)"
    r" while an? .* was in flight on rank [013]$"
)
ENDED = r"rank 2 is lost: its connection closed without a farewell: its process ended \(seen by rank [013]\)$"
CAUSES = {
    "raise": r"rank 2 aborted: its script ended with IndexError: list index out of range$",
    "exit": r"rank 2 aborted: its program ended with exit status 1$",
    "finally": r"rank 2 aborted: its script left the group because of IndexError: list index out of range$",
    "destroy-exit": LEFT,
    "good-exit": LEFT,
    "_exit": ENDED,
    "kill": ENDED,
    "kill-parent": ENDED,
    "abort": r"rank 2 aborted: its program called abort\(\)$",
    "destroy": LEFT,
}
FABRICS = itertools.cycle(("shm", "udp"))
OPERATIONS = itertools.cycle(("all_gather", "reduce_scatter", "all_reduce"))


def test_the_others_are_told() -> None:
    assert CAUSES.keys() == ending.ENDINGS.keys()
    cases = [f"{next(FABRICS)}/{name}/{next(OPERATIONS)}" for name in ending.ENDINGS]
    process = subprocess.Popen(
        [sys.executable, str(Path(ending.__file__)), *cases],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ENV,
        start_new_session=True,
    )
    try:
        process.wait(timeout=len(cases) * LIMIT_S)
    finally:
        # The child of a rank that was killed lives on, and holds the pipes for as long.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    out, err = process.communicate()
    played = [json.loads(line) for line in out.splitlines()]
    assert [one["case"] for one in played] == cases, err
    for one in played:
        for report in one["reports"]:
            assert (report["kind"], report["rank"]) == ("RankError", ending.VICTIM), one
            assert re.search(CAUSES[one["case"].split("/")[1]], report["text"]), one


def test_destroyed_groups_are_left() -> None:
    host("""
        import torch.distributed as dist
        from torch_mcast.backend import alive
        dist.init_process_group("mcast", store=dist.HashStore(), rank=0, world_size=1)
        part = dist.new_group([0])
        assert len(alive()) == 2
        dist.destroy_process_group(part)
        assert len(alive()) == 1
        dist.destroy_process_group()
        assert not alive()
    """)
