"""torch's own DistributedTest over "mcast": each test ends as docs/project/torch-suite.md says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from .limits import LIMIT_S

pytestmark = pytest.mark.more

DOCUMENT = Path(__file__).parents[2] / "docs/project/torch-suite.md"
_TOGETHER = 2  # runs at a time beside the one with few ranks: ranks mostly wait
_AGAIN = 10  # more than that are no accident


class Row(NamedTuple):
    """The list's entry for a test, and for a failure the message that torch must give."""

    kind: str
    why: str
    ranks: int


def listed() -> dict[str, Row]:
    """Return the rows of the list by test."""
    rows: dict[str, Row] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        title = section.split("\n", 1)[0]
        if found := re.fullmatch(r"Passed with (\d+) ranks", title):
            rows |= {name: Row("passed", "", int(found[1])) for name in _names(section)}
        elif title == "Failed":
            rows |= {
                name: Row("failed", says, 4)
                for name, says in re.findall(r"^\| `(test_\w+)` \| `(.+?)` \|", section, re.MULTILINE)
            }
        elif title == "Left out":
            for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
                why = part.split("\n", 1)[0]
                rows |= {name: Row("left out", why, 4) for name in _names(part)}
    return rows


def _names(text: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", text)


LIST = listed()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Row]:
    """Run torch's tests, the few that need eight ranks beside the others."""
    if not torch.__version__.startswith("2.15.0"):
        pytest.skip(f"the list is that of torch 2.15.0, this is {torch.__version__}")
    of_four = _run(4, ["--names"])
    of_four = [name for name in of_four if LIST.get(name, Row("", "", 4)).ranks == 4]
    shares = [(4, of_four[i::_TOGETHER]) for i in range(_TOGETHER)]
    shares.append((8, [name for name, row in LIST.items() if row.ranks == 8]))
    found = _ended(shares)
    # Some of torch's tests hold a clock to seconds: what ends otherwise gets a second turn, by itself.
    other = [name for name, row in LIST.items() if name not in found or not _agree(found[name], row)]
    if len(other) <= _AGAIN:
        for name in other:
            found |= _ended([(LIST[name].ranks, [name])])
    return found


def _ended(shares: list[tuple[int, list[str]]]) -> dict[str, Row]:
    """Run shares of the tests side by side, each with so many ranks; return how they ended."""
    found: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as scratch:
        runs = []
        for i, (ranks, names) in enumerate(shares):
            with (Path(scratch) / str(i)).open("w") as out:
                runs.append(subprocess.Popen(_command(ranks, names), stdout=out, stderr=subprocess.DEVNULL))
        try:
            for run in runs:
                assert run.wait(LIMIT_S) == 0
        finally:
            for run in runs:
                run.kill()
        for i, (ranks, _) in enumerate(shares):
            for line in (Path(scratch) / str(i)).read_text().splitlines():
                if line.startswith("{"):
                    outcome = json.loads(line)
                    found[outcome["name"]] = Row(outcome["kind"], outcome["why"], ranks)
    return found


def _agree(got: Row, want: Row) -> bool:
    if want.kind == "failed":
        return got.kind == "failed" and want.why in got.why
    return (got.kind, got.why) == (want.kind, want.why)


def _command(ranks: int, names: list[str]) -> list[str]:
    return [sys.executable, "-m", "tests.torch_suite", str(ranks), *names]


def _run(ranks: int, names: list[str]) -> list[str]:
    done = subprocess.run(_command(ranks, names), capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.split()


def test_the_list_has_every_test_and_no_other(outcomes: dict[str, Row]) -> None:
    assert set(outcomes) == set(LIST)


@pytest.mark.parametrize("name", sorted(LIST))
def test_it_ends_as_the_list_says(outcomes: dict[str, Row], name: str) -> None:
    got, want = outcomes[name], LIST[name]
    assert got.kind == want.kind, got.why or f"it passes: take it off the list of those that are {want.kind}"
    assert _agree(got, want), got.why


def test_the_sums_are_those_of_the_list() -> None:
    kinds = [row.kind for row in LIST.values()]
    sums = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "failed", "left out"))
    assert f"**{sums}**" in DOCUMENT.read_text()
