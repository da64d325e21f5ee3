"""torch's own tests of FSDP2 over "mcast": each ends as docs/project/torch-fsdp-suite.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.more

DOCUMENT = Path(__file__).parents[2] / "docs/project/torch-fsdp-suite.md"
FOLDER = "test/distributed/_composable/fsdp"  # within torch's source


class Row(NamedTuple):
    """How a test ends, and torch's message unless it passes."""

    kind: str
    says: str = ""


def listed() -> dict[str, dict[str, Row]]:
    """Return the rows of the list by file and test."""
    files: dict[str, dict[str, Row]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        title, text = section.split("\n", 1)
        if title.endswith(".py"):
            passed, *others = text.split("\n| test |", 1)
            rows = {name: Row("passed") for name in re.findall(r"`(\w+\.test_\w+)`", passed)}
            row = r"^\| `(\w+\.test_\w+)` \| (failed|failed with enable\(\)|left out) \| `(.+?)` \|"
            for name, kind, says in re.findall(row, "".join(others), re.MULTILINE):
                rows[name] = Row(kind, says)
            files[title] = rows
    return files


LIST = listed()


def _ended(how: str, file: Path, names: list[str]) -> Iterator[tuple[str, Row]]:
    """Run the tests of a file, all or the named ones; yield how they ended."""
    command = [sys.executable, "-m", "tests.torch_fsdp_suite", how, str(file), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            outcome = json.loads(line)
            yield outcome["name"], Row(outcome["kind"], outcome["why"])


def outcomes(file: Path) -> dict[str, Row]:
    """Return how the tests of a file end; tests that do not pass over gloo are left out."""
    over_gloo = dict(_ended("gloo", file, []))
    found = {name: Row("left out", row.says) for name, row in over_gloo.items() if row.kind != "passed"}
    if able := sorted(over_gloo.keys() - found.keys()):
        found |= dict(_ended("enabled", file, able))
    if failed := [name for name in able if name in found and found[name].kind == "failed"]:
        for name, row in _ended("mcast", file, failed):
            if row.kind == "passed":
                found[name] = Row("failed with enable()", found[name].says)
    return found


@pytest.mark.parametrize("name", sorted(LIST))
def test_each_ends_as_the_list_says(name: str) -> None:
    if not (source := os.environ.get("TORCH_SOURCE")):
        pytest.skip("TORCH_SOURCE names no copy of torch's source, and its wheel has no tests of FSDP2")
    want, got = LIST[name], outcomes(Path(source) / FOLDER / name)
    wrong = {
        test: f"{got.get(test)}, and not {want.get(test)}"
        for test in want.keys() | got.keys()
        if test not in want
        or test not in got
        or got[test].kind != want[test].kind
        or want[test].says not in got[test].says
    }
    assert not wrong, "\n".join(f"{test}: {what}" for test, what in wrong.items())


def test_the_sums_are_those_of_the_list() -> None:
    text = DOCUMENT.read_text()
    files = {f"`{name}`": list(rows.values()) for name, rows in LIST.items()}
    files["all"] = [row for rows in files.values() for row in rows]
    for name, rows in files.items():
        sums = [sum(row.kind.startswith(kind) for row in rows) for kind in ("passed", "failed", "left out")]
        assert f"| {name} | {' | '.join(map(str, sums))} |" in text
