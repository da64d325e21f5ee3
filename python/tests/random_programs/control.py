"""Sends programs to ranks that live on, and shrinks the ones that fail."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from ..world import TaskError, World
from . import play
from .draw import Program, programs


class Different(AssertionError):
    """A program gave other bits with enable(), or did not end."""


def watch(folder: str) -> None:
    """Let SIGUSR1 write the stacks of this rank."""
    path = f"{folder}/stacks of process {os.getpid()}"
    faulthandler.register(signal.SIGUSR1, open(path, "w"), all_threads=True)  # noqa: SIM115 (kept open)
    play.prepare()


class Ranks:
    """A world that starts anew after a failure that it may not have survived."""

    def __init__(self, size: int, fabric: str) -> None:
        self.size = size
        self.fabric = fabric
        self._world: World | None = None

    def run(self, program: Program, fault: str = "") -> list[dict[str, Any]]:
        """Return what each rank says of the program.

        Raises:
            Different: a rank failed, ended, or did not answer; the message has the stacks then.
        """
        if self._world is None:
            self._world = World(self.size, MCAST_FABRIC=self.fabric, GLOO_SOCKET_IFNAME="")
            self._world.run(watch, self._world.scratch)
        try:
            self._world.start(play.compare, program, fault)
            return self._world.collect()
        except (TaskError, BrokenPipeError) as e:
            stacks = self._stacks() if "no answer" in str(e) else ""
            self.close(at_once=True)
            raise Different(f"{e}{stacks}") from None

    def _stacks(self) -> str:
        """Return where all ranks are."""
        assert self._world is not None
        for process in self._world.processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(2)  # in which they write; nothing says that they have
        files = sorted(Path(self._world.scratch).glob("stacks*"))
        return "".join(f"\n{file.name}\n{file.read_text()}" for file in files)

    def close(self, at_once: bool = False) -> None:
        if self._world is not None:
            if at_once:
                for process in self._world.processes:
                    process.kill()
            self._world.close()
            self._world = None


class Tally:
    """What became of programs."""

    def __init__(self) -> None:
        self.programs = 0
        self.observations = 0
        self.ended: Counter[str] = Counter()  # by what plain FSDP2 said
        self.failures: list[tuple[Program, str]] = []
        self.began = time.monotonic()

    def __str__(self) -> str:
        ended = sum(self.ended.values())
        seconds = time.monotonic() - self.began
        return (
            f"{self.programs} programs, {self.observations} observations on rank 0, {ended} ended by an "
            f"error of FSDP2, {len(self.failures)} differences, {seconds:.0f} s"
        )


def check(ranks: Ranks, program: Program, fault: str = "", tally: Tally | None = None) -> None:
    """Run a program; raise Different where a rank saw a difference."""
    if tally is not None:
        tally.programs += 1
    said = ranks.run(program, fault)
    if tally is not None:
        tally.observations += said[0]["observations"]
        if said[0]["ended"]:
            tally.ended[said[0]["ended"].splitlines()[0][:120]] += 1
    found = [f"rank {rank}: {text}" for rank, one in enumerate(said) for text in one["differences"]]
    if found:
        raise Different("\n".join(found))


def hunt(
    ranks: Ranks,
    number: int,
    start: int,
    compilers: tuple[str, ...] = (),
    fault: str = "",
    shrinking_s: float = 120,
) -> Tally:
    """Draw so many programs from a seed and run them; a failure ends it. It is shrunk, and in the tally."""
    tally = Tally()
    failing: dict[str, str] = {}
    until = float("inf")

    def failure(program: Program) -> str:
        """Return what is wrong with a program, or ""."""
        nonlocal until
        text = json.dumps(program)
        if text in failing or time.monotonic() > until:
            return failing.get(text, "")  # when time is up, what has been found stays the smallest
        try:
            check(ranks, program, fault, None if failing else tally)
        except Different as e:
            if not failing:
                until = time.monotonic() + shrinking_s
                print(f"after {tally.programs} programs, now shrunk: {str(e)[:2000]}", flush=True)
            failing[text] = str(e)
        return failing.get(text, "")

    def once(program: Program) -> None:
        if text := failure(program):
            raise Different(text)  # in one place: Hypothesis takes others for other failures

    phases = (Phase.generate, Phase.shrink) if shrinking_s else (Phase.generate,)
    run = given(programs(ranks.size, compilers))(once)
    run = settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )(run)
    try:
        seed(start)(run)()
    except Exception:
        if not failing:
            raise
    if failing:
        smallest = min(reversed(failing), key=len)
        tally.failures.append((json.loads(smallest), failing[smallest]))
    return tally
