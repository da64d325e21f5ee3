"""How a rank ends, and what the others are told: at once, and with the right rank and cause."""

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

# Nobody is told because MCAST_TIMEOUT ran out. On an idle machine it is some milliseconds.
ENV = {"MCAST_TIMEOUT": "60s", "GLOO_SOCKET_IFNAME": "lo"}
BOUND_S = 10.0

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
        process.wait(timeout=300)
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
        assert one["took"] < BOUND_S, one
