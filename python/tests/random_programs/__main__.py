"""Random FSDP2 programs: `python -m tests.random_programs --programs N --seed S --fabric shm --ranks 2`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from .control import Different, Ranks, check, hunt

BATCH = 100  # programs between two lines of what has been done


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.random_programs", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the next has the next")
    parser.add_argument("--fabric", choices=("shm", "udp"), default="shm")
    parser.add_argument("--ranks", type=int, choices=(2, 3, 4), default=2)
    parser.add_argument("--compiled", action="append", default=[], help="by aot_eager, say")
    parser.add_argument("--fault", default="", help="plant this one, see faults.py")
    parser.add_argument("--shrinking", type=float, default=120, help="seconds for each failure")
    parser.add_argument("--keep", type=Path, help="the folder for programs that fail")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these programs, JSON files, instead")
    chosen = parser.parse_args()
    if chosen.replay:
        return replay(chosen.replay, chosen.fabric, chosen.fault)
    ranks = Ranks(chosen.ranks, chosen.fabric)
    compilers = tuple(chosen.compiled)
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    ended: Counter[str] = Counter()
    failed = 0
    seed = chosen.seed
    end = seed + chosen.programs

    def terminated(*_: object) -> None:
        """Say where the ranks are: SIGTERM comes where a limit has passed."""
        print(f"ended by SIGTERM{ranks.tell()}", file=sys.stderr, flush=True)
        ranks.close(at_once=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, terminated)
    try:
        while seed < end:
            tally = hunt(ranks, min(BATCH, end - seed), seed, compilers, chosen.fault, chosen.shrinking)
            print(f"from seed {seed}: {tally}", flush=True)
            ended += tally.ended
            for program, text in tally.failures:
                failed += 1
                print(f"{text}\n{json.dumps(program)}", flush=True)
                if chosen.keep:
                    name = f"{chosen.fabric}-{chosen.ranks}-{seed}.json"
                    (chosen.keep / name).write_text(json.dumps(program, indent=1) + "\n")
            seed += tally.seeds
            if failed and chosen.fault:
                break
    finally:
        ranks.close()
    for what, times in ended.most_common():
        print(f"{times:5d} ended by {what}")
    return 1 if failed else 0


def replay(paths: list[Path], fabric: str, fault: str) -> int:
    """Run programs that were kept."""
    failed = 0
    for path in paths:
        program = json.loads(path.read_text())
        ranks = Ranks(program["ranks"], fabric)
        try:
            check(ranks, program, fault)
            print(f"{path}: same", flush=True)
        except Different as e:
            failed += 1
            print(f"{path}: {e}", flush=True)
        finally:
            ranks.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
