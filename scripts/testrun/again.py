"""A second try, with nothing beside it, of tests that failed while other steps ran beside them.

Two heavy lanes on two cores may disturb a test. The second try says which it was. A data race stays a failure, as
does what is no test of its own, and more failures than a disturbance makes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Step

MOST = 4  # tests; subtests count with theirs
_NEVER = ("DATA RACE", "race detected during execution")


def command(step: Step, failed: list[tuple[str, str]]) -> list[str]:
    """Return what tries the failed tests of a step again; empty if they are not to be tried."""
    if not step.again or not failed or any(mark in said for _, said in failed for mark in _NEVER):
        return []
    names = [name for name, _ in failed]
    if step.kind == "pytest":
        known = all("::" in name for name in names) and len(names) <= MOST
        return [*step.command, *names] if known else []
    parts = [re.fullmatch(r"(.+?)\.(Test\w+)(/.*)?", name) for name in names]
    tests = sorted({part[2] for part in parts if part})
    if None in parts or len(tests) > MOST:
        return []
    packages = sorted({f"./{part[1]}" for part in parts if part})
    flags = [word for word in step.command if not word.startswith("./")]
    return ["go", "test", "-json", *flags, "-p=1", "-parallel=1", "-count=1", f"-run=^({'|'.join(tests)})$", *packages]


class Tries:
    """Takes the results of a second try, where a Board takes those of the first."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def test(self, _step: str, outcome: str, name: str, _reason: str = "") -> None:
        """Take one result."""
        (self.passed if outcome == "passed" else self.failed).add(name)

    def running(self, step: str, name: str) -> None:
        """Units are not counted."""

    def done(self, step: str, name: str, note: str = "") -> None:
        """Units are not counted."""
