"""What the receive kernel takes for a completion: benchmarks/receive/count.py, and the committed results."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "receive"))

import count

pytestmark = pytest.mark.more

ROOT = count.ROOT
RESULTS = [json.loads(line) for line in (ROOT / "benchmarks/results/receive.ndjson").read_text().splitlines()]
# Table I of Khalilov et al., SC24: instructions a completion on a RISC-V core of the DPA.
PAPER = {"UC": 66, "UD": 113}
PROCESSORS = {processor.name: processor for processor in count.PROCESSORS}


def within_the_papers(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["processor"] == "riscv64" and row["batch"] == max(count.BATCHES):
            assert row["per_completion"] <= PAPER[row["datapath"]], row


@pytest.mark.parametrize("name", PROCESSORS)
def test_no_more_than_the_papers(name: str) -> None:
    processor = PROCESSORS[name]
    if processor.version() is None:
        pytest.skip(f"needs {processor.compiler} (Debian: apt-get install {processor.package})")
    rows = count.rows(processor)
    within_the_papers(rows)
    # With the same compiler the counts must be the same: the committed ones are today's.
    committed = [row for row in RESULTS if row["processor"] == name]
    if all(row["compiler"] == processor.version() for row in committed):
        assert [{key: row[key] for key in rows[0]} for row in committed] == rows


def test_the_committed_counts() -> None:
    ways = {(row["processor"], row["datapath"], row["batch"]) for row in RESULTS}
    assert ways == {(p, d, b) for p in PROCESSORS for d in PAPER for b in count.BATCHES}
    within_the_papers(RESULTS)


def test_the_document_has_the_table() -> None:
    assert count.table(RESULTS) in (ROOT / "docs/project/reproduction.md").read_text()


def test_a_wrong_byte_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel = (ROOT / "internal/receive/kernel.c").read_text()
    wrong = kernel.replace("w->buffer + (uint64_t)psn", "w->buffer + 8 + (uint64_t)psn")
    assert wrong != kernel
    (tmp_path / "kernel.c").write_text(wrong.replace('"kernel.h"', f'"{ROOT}/internal/receive/kernel.h"'))
    monkeypatch.setattr(count, "SOURCES", (str(tmp_path / "kernel.c"), count.SOURCES[1]))
    processor = PROCESSORS["x86-64"]
    if processor.version() is None:
        pytest.skip(f"needs {processor.compiler} (Debian: apt-get install {processor.package})")
    with pytest.raises(RuntimeError, match="not what was sent"):
        count.count(processor, count.build(processor), "UD", 64)
