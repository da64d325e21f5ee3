"""The report of benchmarks/fsdp/advice.py, and its rows that benchmarks/results/advise.md keeps."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import advice

pytestmark = pytest.mark.more

REPOSITORY = Path(__file__).resolve().parents[2]


def rows(*predicted: bool) -> list[dict[str, Any]]:
    """Return rounds of gloo and the backend alone, twice as fast, each with predictions or none."""
    bounds = [{"gain_least": 1.0 + s, "gain_most": 3.0 + s} for s in range(2)]
    return [
        {"way": way, "round": i, "step_ns": ns, "predictions": said, "predictions_link_told": said}
        for i, known in enumerate(predicted)
        for said in [bounds if known else []]
        for way, ns in (("gloo", 4_000_000), ("backend", 2_000_000))
    ]


def test_the_table_counts_rounds_that_have_predictions() -> None:
    backend = "| torch-mcast, nothing else changed | 2 | 2.00 |"
    for predicted, want in {(True, False): "1.00 to 3.00", (False, False): "nothing"}.items():
        assert advice.table(rows(*predicted)).splitlines()[2:] == [
            "| gloo, as FSDP2 runs it | 4 | 1.00 |  |  |",
            f"{backend} {want} | {want} |",
        ]


def test_rows_of_another_invocation_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "rows.ndjson"
    out.write_text(json.dumps(rows(True)[0]) + "\n")
    before = out.read_text()
    command = [sys.executable, str(advice.__file__), "--rounds", "0", "--testbed", "none", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert f"--out {out} has rows of another invocation" in done.stderr
    assert out.read_text() == before


def test_the_document_says_what_the_rows_do() -> None:
    text = (REPOSITORY / "benchmarks" / "results" / "advise.md").read_text()
    kept = REPOSITORY / "benchmarks" / "results" / "fsdp" / "advice.ndjson"
    found = [json.loads(line) for line in kept.read_text().splitlines()]
    steps = {(row["way"], row["round"]): row["step_ns"] for row in found}
    rounds = sorted({row["round"] for row in found})
    gains = {way.name: [steps["gloo", i] / steps[way.name, i] for i in rounds] for way in advice.WAYS}
    for way in ("backend", "enable", "switch"):
        step = 1e-6 * statistics.median(steps[way, i] for i in rounds)
        each = ", ".join(f"{gain:.2f}" for gain in gains[way])
        assert f"| {step:.0f} | {statistics.median(gains[way]):.2f} | {each} |" in text
    pairs = zip(gains["switch"], gains["enable"], strict=True)
    beside = [f"{switch:.2f} and {enable:.2f}" for switch, enable in pairs]
    assert ", ".join(beside) in " ".join(text.split())
    shows = [i for i in rounds if gains["switch"][i] > gains["enable"][i]]
    assert shows == [1, 2]
    assert "shows in two of three rounds and not in the first" in text
    loads = [row["load"] for row in found]
    assert f"of {min(loads):.0f} to {max(loads):.0f} at the beginning of a run" in text
    for commit in {row["commit"] for row in found}:
        assert f"`{commit}`" in text
