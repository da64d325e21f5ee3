"""The program behind `make test`: its counts, and that no failure looks like a pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 600

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
GO = {
    "good/good_test.go": """package good
import "testing"
func TestGood(t *testing.T) {}
func TestLeftOut(t *testing.T) { t.Skip("no such device") }
""",
    "bad/bad_test.go": """package bad
import "testing"
func TestBad(t *testing.T) { t.Fatal("two is not three") }
func TestGood(t *testing.T) {}
""",
    "broken/broken_test.go": """package broken
import "testing"
func TestBroken(t *testing.T) { nothing() }
""",
    "exits/exits_test.go": """package exits
import ("os"; "testing")
func TestExits(t *testing.T) { os.Exit(3) }
""",
}
PYTHON = {
    "good": "def test_good(): pass\n",
    "bad": "def test_bad(): assert 2 == 3\n",
    "left_out": "import pytest\ndef test_left_out(): pytest.skip('no such card')\n",
    "broken": "import nothing_of_this_name\n",
    "exits": "import os\ndef test_exits(): os._exit(3)\n",
}


def run(tmp_path: Path, kind: str, command: tuple[str, ...]) -> tuple[int, str]:
    """Run one step as scripts/run-tests does, in a folder of its own."""
    program = f"""
import sys, os
from pathlib import Path
sys.path.insert(0, {str(SCRIPTS)!r})
from testrun.board import Board
from testrun.run import Lane, Step
board = Board(["it"])
with board:
    step = Step("", {kind!r}, {command!r})
    lane = Lane([("it", step)], board, dict(os.environ), Path({str(tmp_path)!r}), False)
    lane.start()
    lane.join()
sys.exit(board.finish(0))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"GOFLAGS": "-mod=mod"},
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("packages", "status", "last"),
    [
        (["good"], 0, "1 passed, 0 failed, 1 skipped"),
        (["good", "bad"], 1, "2 passed, 1 failed, 1 skipped"),
        (["good", "broken"], 1, "1 passed, 1 failed, 1 skipped"),
        (["good", "exits"], 1, "1 passed, 1 failed, 1 skipped"),
        (["good", "-run=^TestRenamed$"], 1, "0 passed, 1 failed, 0 skipped"),
    ],
)
def test_go_tests(tmp_path: Path, packages: list[str], status: int, last: str) -> None:
    (tmp_path / "go.mod").write_text("module example.org/it\n\ngo 1.26\n")
    flags = [word for word in packages if word.startswith("-")]
    for name, text in GO.items():
        package = name.split("/")[0]
        if package in packages:
            (tmp_path / package).mkdir()
            (tmp_path / name).write_text(text)
    got, said = run(tmp_path, "go", ("-vet=off", *flags, "./..."))
    assert (got, said.splitlines()[-1]) == (status, last), said
    assert ("no such device" in said) == (not flags)
    assert ("two is not three" in said) == ("bad" in packages), said
    assert ("undefined: nothing" in said) == ("broken" in packages), said


@pytest.mark.parametrize(
    ("files", "status", "last"),
    [
        (["good", "left_out"], 0, "1 passed, 0 failed, 1 skipped"),
        (["left_out"], 1, "0 passed, 0 failed, 1 skipped"),  # nothing was tried
        (["good", "bad"], 1, "1 passed, 1 failed, 0 skipped"),
        (["good", "broken"], 1, "0 passed, 1 failed, 0 skipped"),
        (["good", "exits"], 1, "0 passed, 1 failed, 0 skipped"),  # in the order of the alphabet
    ],
)
def test_python_tests(tmp_path: Path, files: list[str], status: int, last: str) -> None:
    for name in files:
        (tmp_path / f"test_{name}.py").write_text(PYTHON[name])
    got, said = run(tmp_path, "pytest", (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "."))
    assert (got, said.splitlines()[-1]) == (status, last), said
    assert ("no such card" in said) == ("left_out" in files), said


def test_a_command_counts_by_its_status(tmp_path: Path) -> None:
    assert run(tmp_path, "plain", ("true",))[0] == 0
    got, said = run(tmp_path, "plain", ("sh", "-c", "echo of no use; exit 4"))
    assert got == 1
    assert "of no use\nexit status 4" in said
    assert run(tmp_path, "plain", ("no-such-command",))[0] == 1
    got, said = run(tmp_path, "plain", ("echo", "it: NOT RUN: for want of a guest"))
    assert got == 1  # nothing passed
    assert "skipped    1: it: NOT RUN: for want of a guest" in said
