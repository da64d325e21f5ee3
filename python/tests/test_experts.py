"""The report of benchmarks/fsdp/experts.py, and its rows in benchmarks/results/fsdp."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import experts

pytestmark = pytest.mark.more

REPOSITORY = Path(__file__).resolve().parents[2]


def row(model: str, way: str, label: str, *steps: float) -> dict[str, Any]:
    waits = {key: [0.1] * len(steps) for key in ("exposed_allgather_s", "exposed_reduce_scatter_s")}
    links = [3_000_000] * len(steps)
    return {"model": model, "way": way, "label": label, "steps_s": steps, "link_bytes": links, **waits}


def test_gains_are_over_gloo_with_the_same_model() -> None:
    rows = [
        row("moe", "mcast", "ours", 1.0),
        row("moe", "gloo", "gloo", 1.5),
        row("dense", "gloo", "gloo", 6.0, 2.0, 3.0),
        row("dense", "mcast", "ours", 1.0),
        row("dense", "mcast", "ours", 2.0),
    ]
    assert experts.table(rows).splitlines()[2:] == [
        "| dense | gloo | 3000 | 1.00 | 200 | 3.0 |",
        "| dense | ours | 1500 | 2.00 | 200 | 3.0 |",
        "| moe | ours | 1000 | 1.50 | 200 | 3.0 |",
        "| moe | gloo | 1500 | 1.00 | 200 | 3.0 |",
    ]


def test_committed_rows_are_those_of_the_committed_table() -> None:
    folder = REPOSITORY / "benchmarks" / "results" / "fsdp"
    rows = [json.loads(line) for line in (folder / "experts.ndjson").read_text().splitlines()]
    assert experts.table(rows) in (folder / "README.md").read_text()
    for model in {row["model"] for row in rows}:
        ours = [row for row in rows if row["model"] == model and row["way"] == "mcast"]
        assert len({row["weights_sha256"] for row in ours}) == 1, "all versions learn the same, bit for bit"
        assert all(row["blocked"] == 0 < row["deferred"] for row in ours)
