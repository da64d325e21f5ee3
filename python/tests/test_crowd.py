"""What benchmarks/fsdp/crowd.py makes of its rows, and memory.py of a process."""

import argparse
import json
import subprocess
import sys
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import crowd
import memory

pytestmark = pytest.mark.more


def row(way: str, step_s: float, weights: str, mib: int) -> dict[str, Any]:
    """Return a row of 2 x 2 ranks; each held so many MiB more at most, half of them shared."""
    half = mib << 19
    ranks = [
        {
            "begin": {"own": 7, "shared": 0},
            "most": {"own": 7 + half, "shared": half},
            "end": {"own": 7, "shared": 0},
        }
    ] * 4
    times = {"steps_s": [step_s], "exposed_s": [step_s / 2], "link_bytes": [3_000_000]}
    learnt = {"losses": [1.0], "weights_sha256": weights}
    return {"way": way, "hosts": 2, "ranks_per_host": 2, "memory": ranks, **times, **learnt}


def test_the_table_has_medians() -> None:
    rows = [row("nodes", s, "a", 10) for s in (1, 5, 2)] + [row("flat", 4, "b", 30)]
    assert crowd.table(rows).splitlines()[2:] == [
        "| flat | 4000 | 2000 | 3 | 30 | 60 |",
        "| nodes | 2000 | 1000 | 3 | 10 | 20 |",
    ]


def test_a_row_says_when_with_which_commit_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_args: argparse.Namespace, _way: crowd.Way, command: list[str]) -> None:
        times = {"step_s": 1.0, "exposed_allgather_s": 0.0, "exposed_reduce_scatter_s": 0.0, "cpu_s": 1.0}
        step = {"record": "step", "link": {"tx": 1}, "loss": 1.0, **times}
        end = {"record": "end", "weights_sha256": "a", "counters": {}}
        out = Path(next(word.removeprefix("--out=") for word in command if word.startswith("--out=")))
        records = [step] * 3 + [{"record": "memory", "ranks": []}, end]
        out.write_text("".join(json.dumps(record) + "\n" for record in records))

    monkeypatch.setattr(crowd, "run", run)
    before = datetime.now(timezone.utc).date()
    measured = crowd.measure(argparse.Namespace(hosts=2, per_host=2, rate="1gbit", steps=3), crowd.WAYS[0], 0)
    assert before <= date.fromisoformat(measured["date"]) <= datetime.now(timezone.utc).date()
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    assert measured["commit"] == subprocess.run(git, capture_output=True, text=True).stdout.strip()
    assert measured["cpu"]
    assert measured["kernel"]
    assert measured["cpus"] >= 1


def test_ways_with_the_same_sums_learn_the_same() -> None:
    shared = "nodes, results once a host"
    crowd.agree([row("nodes", 1, "a", 1), row(shared, 1, "a", 1), row("flat", 1, "b", 1)])
    with pytest.raises(SystemExit, match="do not learn the same"):
        crowd.agree([row("nodes", 1, "a", 1), row(shared, 1, "b", 1)])


def test_memory_is_looked_at() -> None:
    looks = memory.Memory()
    before = memory.held()
    block = bytearray(b"x" * (64 << 20))
    looks.look()
    assert looks.most["own"] - before["own"] > 60 << 20
    most = looks.most
    del block
    looks.look()
    assert looks.most == most
