"""The tests' progress on the terminal while they run, and their summary at the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

QUIET_S = 20.0  # after so long without a line, what runs is said
SLOW_S = 5.0  # a unit that took so long has a line of its own
TAIL = 12  # lines of a failure that are said again at the end, where a long output may have been cut


@dataclass
class Progress:
    """One step: its size, the tests that run, and the results of the others."""

    began: float = 0.0
    ended: float = 0.0
    unit: str = ""
    total: int = 0
    done: int = 0
    running: dict[str, float] = field(default_factory=dict)
    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)  # and their output
    skipped: Counter[str] = field(default_factory=Counter)


class Board:
    """Counts and prints; its methods may be called from any thread."""

    def __init__(self, steps: list[str]) -> None:
        self._began = time.monotonic()
        self._said = self._began
        self._lock = threading.RLock()
        self._steps = {name: Progress() for name in steps}
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Board:
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def begin(self, step: str, unit: str = "", total: int = 0) -> None:
        """Say that a step begins; it has so many units, such as packages."""
        with self._lock:
            progress = self._steps[step]
            progress.unit, progress.total = unit, total
            if not progress.began:
                progress.began = time.monotonic()
                self._say(f"{step} begins{f', {total} {unit}' if total else ''}")

    def of(self, step: str, total: int) -> None:
        """Say how many units a step has, once that is known."""
        with self._lock:
            self._steps[step].total = total

    def running(self, step: str, name: str) -> None:
        """Say that a unit has begun."""
        with self._lock:
            self._steps[step].running[name] = time.monotonic()

    def test(self, step: str, outcome: str, name: str, reason: str = "") -> None:
        """Count one test: "passed", "failed" with its output, or "skipped" with the reason."""
        with self._lock:
            progress = self._steps[step]
            if outcome == "passed":
                progress.passed += 1
            elif outcome == "skipped":
                progress.skipped[reason or "no reason given"] += 1
            else:
                progress.failed.append((name, reason))
                self._say(f"{step} FAILED {name}\n{reason.rstrip()}")

    def done(self, step: str, name: str, note: str = "") -> None:
        """Say that a unit is over; one that was short is passed over where another was shown just now."""
        with self._lock:
            progress = self._steps[step]
            progress.done += 1
            now = time.monotonic()
            took = now - progress.running.pop(name, now)
            if took >= SLOW_S or now - self._said >= SLOW_S:
                of = f"/{progress.total}" if progress.total else ""
                self._say(f"{step} {progress.done}{of} {name} {took:.1f} s{note}")

    def end(self, step: str) -> None:
        """Say that a step is over."""
        with self._lock:
            progress = self._steps[step]
            if not (progress.passed or progress.failed or progress.skipped):
                progress.failed.append(("no test of it was run", ""))
            progress.ended = time.monotonic()
            progress.running.clear()
            self._say(f"{step} ends after {progress.ended - progress.began:.0f} s: {_counts(progress)}")

    def finish(self, took: float) -> int:
        """Print what came of all; return the status to exit with."""
        with self._lock:
            print()
            skipped: Counter[str] = Counter()
            failed: list[tuple[str, str]] = []
            passed = 0
            for name, progress in self._steps.items():
                if not progress.ended:
                    progress.failed.append(("did not run to its end", ""))
                print(f"{name:14} {progress.ended - progress.began:6.0f} s  {_counts(progress)}")
                skipped += progress.skipped
                failed += [(f"{name}: {test}", said) for test, said in progress.failed]
                passed += progress.passed
            for reason, count in skipped.most_common():
                print(f"skipped {count:4}: {reason}")
            for test, said in failed:
                print(f"failed: {test}")
                for line in said.rstrip().splitlines()[-TAIL:]:
                    print(f"    {line}")
            print(f"after {took / 60:.1f} minutes")
            print(f"{passed} passed, {len(failed)} failed, {skipped.total()} skipped", flush=True)
            return 1 if failed or not passed else 0

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        print(f"[{self._said - self._began:4.0f} s] {line}", flush=True)

    def _tick(self) -> None:
        while not self._over.wait(1):
            with self._lock:
                now = time.monotonic()
                if now - self._said >= QUIET_S:
                    self._say(self._state(now))

    def _state(self, now: float) -> str:
        running, later = [], []
        for name, progress in self._steps.items():
            if not progress.began:
                later.append(name)
            elif not progress.ended:
                units = [
                    f"{unit} ({now - since:.0f} s)" for unit, since in list(progress.running.items())[:3]
                ]
                left = f", {progress.total - progress.done} {progress.unit} left" if progress.total else ""
                running.append(f"{name}: {', '.join(units) or 'at work'}{left}")
        rest = f"; later {', '.join(later)}" if later else ""
        return f"running {'; '.join(running)}{rest}"


def _counts(progress: Progress) -> str:
    return f"{progress.passed} passed, {len(progress.failed)} failed, {progress.skipped.total()} skipped"
