"""How torch's own tests end: a line of JSON for each, for the test that started them."""

from __future__ import annotations

import json
import sys
import unittest
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["passed", "failed", "left out"]


@dataclass
class Outcome:
    """What became of a test: why it was left out, or how it failed."""

    name: str
    kind: Kind
    why: str = ""


class Outcomes(unittest.TestResult):
    """Prints an outcome a line; a name has so many parts of the test's id, the last ones."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts = parts

    def _note(self, test: unittest.TestCase, kind: Kind, why: str = "") -> None:
        outcome = Outcome(".".join(test.id().split(".")[-self._parts :]), kind, why)
        print(json.dumps(asdict(outcome)), file=sys.__stdout__, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "left out", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    addError = addFailure
