"""Trainings on the hosts of a testbed (docs/how-to/testbed.md), joined by links with a limited rate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from node import LAB, unbuilt
from runs import Choice, RunFailed, Show, environment, follow, late, tail

HERE = Path(__file__).resolve().parent
RUNS = (
    Choice("mcast", "torch-mcast", "mcast", "udp", switch=True),
    Choice("gloo-overlap", "gloo, our schedule", "gloo"),
    Choice("gloo", "gloo, as FSDP2 runs it", "gloo", schedule="serial"),
)
# 6.5 million parameters in f32; windows so short that two cores compute a block for four ranks while the
# emulated accelerators do.
BLOCKS, BLOCK_MS, CONTEXT, BATCH = 8, 40, 64, 1
AHEAD = 2  # modules that "overlap" prefetches


class NoTestbed(Exception):
    """This machine lets no ordinary user build one; the message says why, and what helps."""


def within(hosts: int, rate: str, command: list[str]) -> NoReturn:
    """Become a command that has a testbed of its own; the testbed's name is appended to the command."""
    if (lack := unbuilt()) is not None:
        raise NoTestbed(lack)
    name = f"demo-{os.getpid()}"
    begin = [str(LAB), "testbed", "with", "--name", name, "--hosts", str(hosts), "--rate", rate, "--"]
    tried = subprocess.run([*begin, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise NoTestbed(tried.stderr.strip())
    os.execv(LAB, [*begin, *command, name])


def train(
    choice: Choice,
    testbed: str,
    steps: int,
    seed: int,
    loss: str,
    out: Path,
    show: Show,
    extra: Sequence[str] = (),
) -> None:
    """Run train.py on every host, with extra arguments; raise RunFailed if it fails.

    loss is the share of datagrams to drop, on purpose.
    """
    command = [
        str(LAB), "testbed", "run", "--name", testbed, *(["--switch"] if choice.switch else []),
        "--env", f"MCAST_LOSS={loss if choice.backend == 'mcast' else 0}",
        "--env", "MCAST_GROUP=", "--",  # or all process groups have one, which every host listens to
        sys.executable, str(HERE / "train.py"), "--backend", choice.backend, "--schedule", choice.schedule,
        "--ahead", str(AHEAD), "--steps", str(steps), "--seed", str(seed), "--blocks", str(BLOCKS),
        "--block-ms", str(BLOCK_MS), "--context", str(CONTEXT), "--batch", str(BATCH), "--trace",
        "--out", str(out), *extra,
    ]  # fmt: skip
    # Nothing in a testbed answers for names, and torch asks for each address.
    env = environment() | {"TORCH_CPP_LOG_LEVEL": "ERROR", "RES_OPTIONS": "timeout:1 attempts:1"}
    before = _switch_bytes(testbed)
    with tempfile.TemporaryFile("w+") as log:
        code = follow(command, env, log, out, show)
        log.seek(0)
        said = log.read()
    if code == 124:
        raise RunFailed(late(choice.label, said))
    if code != 0:
        raise RunFailed(f"The run {choice.label} failed:\n{tail(said)}")
    network = {
        "record": "network",
        "label": choice.label,
        "switch_port_bytes": _switch_bytes(testbed) - before,
    }
    with out.open("a") as record:
        print(json.dumps(network | _spec(testbed)), file=record)


def _switch_bytes(testbed: str) -> int:
    """Return what all ports of the switch have received and sent so far."""
    lines = _ask("counters", "--name", testbed, "--json").splitlines()
    ports = [port for port in map(json.loads, lines) if port["kind"] in ("host port", "node port")]
    return sum(port["received_bytes"] + port["sent_bytes"] for port in ports)


def _spec(testbed: str) -> dict[str, str]:
    """Return what the testbed is, as its flags say it: hosts, rate, mtu and so on."""
    words = _ask("status", "--name", testbed).split(":", 1)[1].split(",")[0].split()
    return {flag.removeprefix("--"): value for flag, value in zip(words[::2], words[1::2], strict=True)}


def _ask(*args: str) -> str:
    return subprocess.run([LAB, "testbed", *args], capture_output=True, text=True, check=True).stdout
