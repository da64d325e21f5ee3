"""Sends programs to ranks that live on, and shrinks the ones that fail."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, seed, settings

from ..world import TaskError, World
from . import play
from .draw import Program, programs

_ENDED = "its process ended"  # as World says it
SLOW_S = 60.0  # a program that takes longer is told of, with stacks; nothing fails by it


class Different(AssertionError):
    """A program gave other bits with enable(), or did not end."""


def watch(folder: str) -> None:
    """Let SIGUSR1 write the stacks of this rank."""
    path = f"{folder}/rank {dist.get_rank()}, process {os.getpid()}"
    faulthandler.register(signal.SIGUSR1, open(path, "w"), all_threads=True)  # noqa: SIM115 (kept open)
    play.prepare()


class Ranks:
    """A world that starts anew after a failure that it may not have survived."""

    def __init__(self, size: int, fabric: str, slow_s: float = SLOW_S) -> None:
        self.size = size
        self.fabric = fabric
        self._slow_s = slow_s
        self._world: World | None = None
        self._running: Program | None = None

    def run(self, program: Program, fault: str = "") -> list[dict[str, Any]]:
        """Return what each rank says of the program.

        Where torch ends the process without us as well, by a segmentation fault, that is what ended it.

        Raises:
            Different: a rank failed, ended, or did not answer; the message has the stacks then.
        """
        if self._world is None:
            self._world = World(self.size, MCAST_FABRIC=self.fabric, GLOO_SOCKET_IFNAME="")
            self._world.run(watch, self._world.scratch)
        try:
            self._running = program
            self._world.start(play.compare, program, fault)
            self._tell_if_slow(self._world)
            answers = self._world.collect()
            self._running = None
            return answers
        except (TaskError, BrokenPipeError) as e:
            told = self.tell() if "no answer" in str(e) else ""
            self.close(at_once=True)
            if _ENDED in str(e) and self._ends_torch(program):
                return [
                    {"differences": [], "observations": 0, "ended": "torch: its process ended"}
                ] * self.size
            raise Different(f"{e}{told}") from None

    def _ends_torch(self, program: Program) -> bool:
        """Say whether plain FSDP2 over gloo ends a process by this program, too."""
        world = World(self.size, GLOO_SOCKET_IFNAME="")
        try:
            world.run(play.prepare)
            world.run(play.plainly, program)
        except TaskError as e:
            return _ENDED in str(e)
        finally:
            world.close()
        return False

    def _tell_if_slow(self, world: World) -> None:
        end = time.monotonic() + self._slow_s
        if not all(pipe.poll(max(0.0, end - time.monotonic())) for pipe in world.pipes):
            print(f"a program has no end after {self._slow_s:g} s{self.tell()}", file=sys.stderr, flush=True)

    def tell(self) -> str:
        """Return which program runs, and where all ranks are in it; nothing if none runs."""
        if self._world is None or self._running is None:
            return ""
        for process in self._world.processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(2)  # in which they write; nothing says that they have
        files = sorted(Path(self._world.scratch).glob("rank *"))
        stacks = "".join(f"\nstacks of {file.name}\n{file.read_text()}" for file in files)
        return f"\n{json.dumps(self._running)}{stacks}"

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
        self.seeds = 0
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
    """Run the programs of so many seeds; a failure ends it. It is shrunk, and in the tally."""
    tally = Tally()
    strategy = programs(ranks.size, compilers)
    passed: set[str] = set()
    for one in range(start, start + number):
        tally.seeds += 1
        if _fails(ranks, strategy, one, passed, tally, fault, shrinking_s):
            break
    return tally


def _fails(
    ranks: Ranks,
    strategy: Any,
    number: int,
    passed: set[str],
    tally: Tally,
    fault: str,
    shrinking_s: float,
) -> bool:
    """Run the program of one seed, if it has not passed already, and shrink it if it fails."""
    failing: dict[str, str] = {}
    until = float("inf")

    def failure(program: Program) -> str:
        """Return the error of a program, or ""."""
        nonlocal until
        text = json.dumps(program)
        if text in passed or text in failing or time.monotonic() > until:
            return failing.get(text, "")  # when time is up, what has been found stays the smallest
        try:
            check(ranks, program, fault, None if failing else tally)
            passed.add(text)
        except Different as e:
            if not failing:
                until = time.monotonic() + shrinking_s
                print(f"seed {number}, after {tally.programs} programs: {str(e)[:2000]}", flush=True)
            failing[text] = str(e)
        return failing.get(text, "")

    def once(program: Program) -> None:
        if text := failure(program):
            raise Different(text)  # in one place: Hypothesis takes others for other failures

    run = settings(
        max_examples=2,  # the simplest program, and a drawn one: of further ones most would be near copies
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrinking_s else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )(given(strategy)(once))
    try:
        seed(number)(run)()
    except Exception:
        if not failing:
            raise
    if failing:
        smallest = min(reversed(failing), key=len)
        tally.failures.append((json.loads(smallest), failing[smallest]))
    return bool(failing)
