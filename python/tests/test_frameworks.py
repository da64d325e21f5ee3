"""The page about frameworks says what was run (`make frameworks`), of the versions that a run installs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "examples" / "frameworks"


def rows() -> list[dict[str, Any]]:
    text = (ROOT / "benchmarks" / "results" / "frameworks" / "frameworks.ndjson").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_page_has_the_rows() -> None:
    page = (ROOT / "docs" / "how-to" / "frameworks.md").read_text()
    said = [line for line in page.splitlines() if line.startswith("| ") and "framework" not in line]
    columns = ("framework", "version", "line", "result")
    assert said == [f"| {' | '.join(row[column] for column in columns)} |" for row in rows()]


def test_each_row_ran_over_what_it_says() -> None:
    for row in rows():
        assert (PROGRAMS / f"{row['row']}.py").exists()
        assert [run["ran_on"] for run in row["runs"].values()] == ["gloo", "shm", "udp"], row["row"]
        results = {(*run["losses"], run["weights"]) for run in row["runs"].values()}
        assert (row["result"] == "same") == (len(results) == 1), row["row"]


def test_versions_are_the_installed_ones() -> None:
    lines = (PROGRAMS / "requirements.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    pinned = {name.removesuffix("[train]"): version for name, version in pinned.items()}
    for row in rows():
        assert row["version"] in (*pinned.values(), row["torch"]), row["row"]
