"""FSDP2 between hosts of `mcast-lab testbed`, and what breaks there: needs root, which CI has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .limits import LIMIT_S, until

ROOT = Path(__file__).resolve().parents[2]
MCAST = ROOT / "bin" / "mcast"
LAB = ROOT / "bin" / "mcast-lab"
HOSTS = 4

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes network namespaces"),
]


def mcast(*args: str) -> str:
    """Run `mcast-lab testbed ...` and return its output."""
    ran = subprocess.run([LAB, "testbed", *args], capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, f"mcast-lab testbed {' '.join(args)}: {ran.stderr[-3000:]}"
    return ran.stdout


def left(name: str) -> list[str]:
    """Return what there is of a testbed: namespaces, state, and processes that name it."""
    found = [str(p) for p in Path("/run/netns").glob(f"mcast-{name}-*")]
    found += [str(p) for p in Path("/run/mcast-testbed").glob(name)]
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = p.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if name.encode() in command:
            found.append(str(p))
    return found


def received(name: str, host: str) -> int:
    """Return how many bytes a host's NIC has received."""
    rows = [json.loads(line) for line in mcast("counters", "--name", name, "--json").splitlines()]
    (nic,) = (r for r in rows if r["kind"] == "host NIC" and r["device"] == host)
    return int(nic["received_bytes"])


@pytest.fixture
def testbed(request: pytest.FixtureRequest) -> Iterator[str]:
    """Build a testbed, of 4 hosts where a test does not say more; remove it, and see that nothing is left."""
    name = f"py{os.getpid()}"
    flags = getattr(request, "param", ("--hosts", str(HOSTS)))
    mcast("up", "--name", name, "--rate", "500mbit", *flags)
    try:
        yield name
    finally:
        mcast("down", "--name", name)
        assert left(name) == []


def train(name: str, out: Path, backend: str, *flags: str) -> list[dict[str, Any]]:
    """Train three steps on the hosts and return what was recorded."""
    mcast(
        "run", "--name", name, *flags, "--",
        sys.executable, str(ROOT / "benchmarks" / "fsdp" / "train.py"),
        "--backend", backend, "--steps", "3", "--blocks", "2", "--width", "64", "--out", str(out),
    )  # fmt: skip
    return [json.loads(line) for line in out.read_text().splitlines()]


def losses(run: list[dict[str, Any]]) -> list[float]:
    """Return what the model's error was after each step."""
    return [r["loss"] for r in run if r["record"] == "step"]


@pytest.mark.parametrize("testbed", [("--hosts", "2", "--ipv6")], indirect=True)
def test_fsdp2_over_ipv6_alone(testbed: str, tmp_path: Path) -> None:
    """Hosts without IPv4 train as gloo does, through a switch."""
    gloo, ours = (
        train(testbed, tmp_path / f"{peer}.ndjson", peer, *flags)
        for peer, flags in (("gloo", ()), ("mcast", ("--switch",)))
    )
    assert len(losses(ours)) == 3
    assert losses(ours) == pytest.approx(losses(gloo), rel=1e-4)
    assert ours[-1]["fabric"]["allgather"] == "multicast"
    assert ours[-1]["counters"]["switch_ops"] > 0


def test_fsdp2_trains_alike(testbed: str, tmp_path: Path) -> None:
    """The same losses over multicast and a switch as over gloo, with frames lost."""
    gloo = train(testbed, tmp_path / "gloo.ndjson", "gloo")
    for host in range(HOSTS):
        mcast("fault", "loss", "--name", testbed, str(host), "0.01")
    ours = train(testbed, tmp_path / "mcast.ndjson", "mcast", "--switch")
    assert len(losses(ours)) == 3
    assert losses(ours) == pytest.approx(losses(gloo), rel=1e-4)
    end = ours[-1]
    assert end["fabric"]["fabric"] == "udp"
    assert end["counters"]["switch_ops"] > 0
    assert end["counters"]["direct_ops"] == 0


def test_a_link_that_flaps(testbed: str) -> None:
    """An operation outlives a link that is down for less than MCAST_TIMEOUT; every byte is checked."""
    bench = [str(MCAST), "bench", "allgather", "--bytes", "4M", "--iters", "60", "--json"]

    def flaps() -> bool:
        """Run the operations while the link flaps; say whether it was down while it was needed."""
        before = received(testbed, "h2")
        with subprocess.Popen(
            [LAB, "testbed", "run", "--name", testbed, "--", *bench], stdout=subprocess.PIPE, text=True
        ) as run:
            while received(testbed, "h2") < before + (100 << 20) and run.poll() is None:
                pass  # of 800 MB, 76 of them warm-up
            mcast("fault", "link", "--name", testbed, "2", "down")
            time.sleep(1)
            mcast("fault", "link", "--name", testbed, "2", "up")
            out, _ = run.communicate(timeout=LIMIT_S)
        assert run.returncode == 0
        (result,) = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
        assert result["wrong"] == 0
        assert result["iters"] == 60
        return int(result["chunks_lost"]) > 0

    until(flaps, "the link is down before all is done")


def test_a_rank_that_is_killed(testbed: str) -> None:
    """Its name ends the run."""
    with subprocess.Popen(
        [LAB, "testbed", "run", "--name", testbed, "--", "sleep", "1000"], stderr=subprocess.PIPE, text=True
    ) as run:
        kill = [str(LAB), "testbed", "fault", "signal", "--name", testbed, "h2", "KILL"]
        until(lambda: subprocess.run(kill, capture_output=True).returncode == 0, "there is a rank to kill")
        _, errors = run.communicate(timeout=LIMIT_S)
    assert run.returncode != 0
    assert "rank 2" in errors
    assert "killed" in errors


def test_wrong_arguments() -> None:
    """A wrong argument is answered with one line."""
    for args, want in (
        (("up", "--hosts", "0"), "hosts"),
        (("up", "--hosts", "4", "--rate", "fast"), "rate"),
        (("run", "--name", "none", "--", "true"), "none"),
        (("fault", "signal", "--name", "none", "h0", "LOUD"), "LOUD"),
    ):
        ran = subprocess.run([LAB, "testbed", *args], capture_output=True, text=True, timeout=LIMIT_S)
        assert ran.returncode != 0
        assert want in ran.stderr
        assert len(ran.stderr.strip().splitlines()) <= 3
