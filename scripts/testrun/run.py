"""Runs steps one after another and reads what each says of its tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from .board import Board

_SKIP_LINE = re.compile(r"^\s+\S+\.go:\d+: (.*)")
_MODULE = "github.com/torch-mcast/torch-mcast/"
_LONGEST = ("internal/group", "internal/lab/world", "cmd/mcast", "cmd/mcast-lab")  # packages to begin with
_SHOWN = 200  # lines of a failure's output


@dataclass(frozen=True)
class Step:
    """A command, and how to read its output: "go" test, "pytest", or "plain": only its status counts."""

    about: str
    kind: str
    command: tuple[str, ...]
    without: tuple[str, ...] = ()  # Go packages to leave out
    long: bool = False  # searches are whole, not a draw (systest.Long)
    nice: int = 0


class Lane(threading.Thread):
    """Steps that run one after another, beside other lanes."""

    def __init__(
        self, steps: list[tuple[str, Step]], board: Board, env: dict[str, str], out: Path, shuffle: bool
    ) -> None:
        super().__init__(daemon=True)
        self._steps = steps
        self._board = board
        self._env = env
        self._out = out
        self._shuffle = shuffle

    def run(self) -> None:
        """Run all steps, even after one has failed."""
        read: dict[str, Callable[[str, Step], None]] = {
            "go": self._go,
            "pytest": self._pytest,
            "plain": self._plain,
        }
        for name, step in self._steps:
            try:
                read[step.kind](name, step)
            except OSError as e:
                self._board.test(name, "failed", name, str(e))
            self._board.end(name)

    def _lines(self, name: str, step: Step, command: list[str], log: TextIO) -> Iterator[str]:
        """Yield the lines that a command prints; they are kept in the log, as is its status at the end."""
        log.write(f"$ {shlex.join(command)}\n")
        process = subprocess.Popen(
            command,
            env=self._env | ({"MCAST_TEST_LONG": "1"} if step.long else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=(lambda: os.nice(step.nice)) if step.nice else None,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                yield line
            self._status = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _plain(self, name: str, step: Step) -> None:
        self._board.begin(name)
        last: list[str] = []
        with (self._out / f"{name}.txt").open("w") as log:
            for line in self._lines(name, step, list(step.command), log):
                last = [*last[-_SHOWN:], line]
        if self._status == 0:
            left_out = [line for line in last if "NOT RUN" in line]
            self._board.test(name, "skipped" if left_out else "passed", name, "".join(left_out).strip())
        else:
            self._board.test(name, "failed", name, f"{''.join(last)}exit status {self._status}")

    def _go(self, name: str, step: Step) -> None:
        at = step.command.index("-args") if "-args" in step.command else len(step.command)
        words, arguments = step.command[:at], step.command[at:]
        flags = [word for word in words if not word.startswith("./")]
        packages = self._listed([word for word in words if word.startswith("./")])
        if step.without:
            packages -= self._listed(list(step.without))
        self._board.begin(name, "packages", len(packages))
        shuffle = ["-shuffle=on"] if self._shuffle else []
        command = ["go", "test", "-json", *shuffle, *flags, *sorted(packages, key=_longest_first), *arguments]
        with (self._out / f"{name}.txt").open("w") as log:
            tests = _GoTests(self._board, name)
            for line in self._lines(name, step, command, log):
                tests.line(line)
        tests.over(self._status)

    def _listed(self, patterns: list[str]) -> set[str]:
        """Return the Go packages that patterns stand for."""
        said = subprocess.run(
            ["go", "list", *patterns], capture_output=True, text=True, env=self._env, check=False
        )
        if said.returncode != 0:
            raise OSError(f"go list {' '.join(patterns)}: {said.stderr}")
        return set(said.stdout.split())

    def _pytest(self, name: str, step: Step) -> None:
        report = self._out / f"{name}.ndjson"
        report.unlink(missing_ok=True)
        order = ["--random-order"] if self._shuffle else []
        command = [*step.command, *order, f"--report-log={report}", "-o", "console_output_style=classic"]
        self._board.begin(name, "tests")
        with (self._out / f"{name}.txt").open("w") as log:
            tests = _PyTests(self._board, name, report)
            last: list[str] = []
            for line in self._lines(name, step, command, log):
                last = [*last[-_SHOWN:], line]
                if collected := re.match(r"collected (\d+) items(?:.* (\d+) selected)?", line):
                    self._board.of(name, int(collected[2] or collected[1]))
                tests.read()
        tests.read()
        if self._status and not tests.failed:
            self._board.test(name, "failed", "pytest", f"{''.join(last)}exit status {self._status}")


class _GoTests:
    """Reads the events of go test -json."""

    def __init__(self, board: Board, step: str) -> None:
        self._board = board
        self._step = step
        self._said: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)
        self._failed: dict[str, int] = defaultdict(int)

    def line(self, line: str) -> None:
        """Take one line of its output."""
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:  # what go itself says, such as of a package that does not exist
            self._said["", ""].append(line)
            return
        package = event.get("Package", event.get("ImportPath", "")).removeprefix(_MODULE).split(" ")[0]
        test, action = event.get("Test", ""), event["Action"]
        if action in ("output", "build-output"):
            self._said[package, test].append(event["Output"])
        elif action == "start":
            self._board.running(self._step, package)
        elif test and action in ("pass", "fail", "skip"):
            self._test(package, test, action)
        elif action in ("pass", "fail", "skip"):
            self._package(package, action)

    def _test(self, package: str, test: str, action: str) -> None:
        said = self._said.pop((package, test), [])
        name = f"{package}.{test}"
        if action == "pass":
            self._counts[package] += 1
            self._board.test(self._step, "passed", name)
        elif action == "skip":
            reasons = [found[1] for line in said if (found := _SKIP_LINE.match(line))]
            self._board.test(self._step, "skipped", name, reasons[-1] if reasons else "")
        else:
            self._failed[package] += 1
            self._board.test(self._step, "failed", name, "".join(said[-_SHOWN:]))

    def _package(self, package: str, action: str) -> None:
        said = self._said.pop((package, ""), [])
        if action == "fail" and not self._failed[package]:  # it did not build, or ended outside a test
            rest = [line for (of, _), lines in self._said.items() if of == package for line in lines]
            self._failed[package] += 1
            self._board.test(self._step, "failed", package, "".join((rest + said)[-_SHOWN:]))
        cached = " (cached)" if any("(cached)" in line for line in said) else ""
        note = f": {self._counts[package]} passed{cached}"
        self._board.done(self._step, package, note)

    def over(self, status: int) -> None:
        """Take the status that go test ended with."""
        if status and not any(self._failed.values()):
            rest = [line for lines in self._said.values() for line in lines]
            self._board.test(
                self._step, "failed", "go test", "".join(rest[-_SHOWN:]) + f"exit status {status}"
            )


class _PyTests:
    """Reads what pytest-reportlog writes."""

    def __init__(self, board: Board, step: str, report: Path) -> None:
        self._board = board
        self._step = step
        self._report = report
        self._read = 0
        self._file = ""
        self._passed = 0
        self.failed = 0

    def read(self) -> None:
        """Take what was written since."""
        if not self._report.exists():
            return
        with self._report.open() as log:
            log.seek(self._read)
            for line in iter(log.readline, ""):
                if not line.endswith("\n"):
                    break
                self._read += len(line.encode())
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        kind, outcome, where = event.get("$report_type"), event.get("outcome"), event.get("nodeid", "")
        if kind == "CollectReport" and outcome == "failed":
            self._fail(where, event)
        if kind != "TestReport":
            return
        if event["when"] == "setup":
            self._board.running(self._step, where)
        if outcome == "failed":
            self._fail(where, event)
        elif outcome == "skipped":
            reason = event["longrepr"][2] if isinstance(event["longrepr"], list) else str(event["longrepr"])
            self._board.test(self._step, "skipped", where, reason.removeprefix("Skipped: "))
        elif event["when"] == "call":
            self._board.test(self._step, "passed", where)
        if event["when"] == "teardown":
            self._board.done(self._step, where)

    def _fail(self, where: str, event: dict[str, Any]) -> None:
        self.failed += 1
        text = event["longrepr"]
        said = "".join(f"\n--- {title}\n{content}" for title, content in event.get("sections", []))
        self._board.test(self._step, "failed", where, f"{_text(text)}{said}")


def _longest_first(package: str) -> tuple[int, str]:
    name = package.removeprefix(_MODULE)
    return _LONGEST.index(name) if name in _LONGEST else len(_LONGEST), name


def _text(longrepr: Any) -> str:
    """Return a failure as pytest-reportlog has it: text, or entries with lines."""
    if not isinstance(longrepr, dict):
        return str(longrepr)
    lines: list[str] = []
    for entry in longrepr.get("reprtraceback", {}).get("reprentries", []):
        data = entry.get("data", {})
        lines += data.get("lines", [])
        where = data.get("reprfileloc") or {}
        lines.append(f"{where.get('path')}:{where.get('lineno')}: {where.get('message')}")
    return "\n".join(lines)
