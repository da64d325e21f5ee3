from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from torch_mcast import bench

from .limits import LIMIT_S


def test_sizes() -> None:
    assert bench.parse_sizes("1K:64K") == (1024, 4096, 16384, 65536)
    assert bench.parse_sizes("1K:3K") == (1024, 3072)
    assert bench.parse_sizes("4096,2MiB,1k") == (4096, 2 << 20, 1024)
    for bad in ("", "1", "1X", "0K", "64K:1K", "-4", "K", "64KB", "4iB"):
        with pytest.raises(argparse.ArgumentTypeError):
            bench.parse_sizes(bad)


@pytest.mark.parametrize("collective", bench.COLLECTIVES)
def test_a_wrong_byte_is_counted(collective: str) -> None:
    case = bench._Case(collective, rank=1, ranks=3, nbytes=400)
    case.fill(5)
    if collective in ("allgather", "alltoall"):
        start = 100 if collective == "alltoall" else 0
        for r in range(3):
            case.output[r * 100 : (r + 1) * 100] = case._of(r, start, 100)
    elif collective == "sendrecv":
        case.output[:] = case._of(0, 0, 100)
    else:
        start = 100 if collective == "reducescatter" else 0
        case.output[:] = sum(case._of(r, start, 100) for r in range(3))
    assert case.wrong_bytes() == 0
    case.output[7] += 1
    assert case.wrong_bytes() > 0
    case.fill(5)
    assert case.wrong_bytes() > 100  # an operation that does nothing is not right either


@pytest.mark.parametrize(
    ("argument", "named"),
    [("--ranks=0", "at least 1"), ("--fabric=pigeon", "shm, udp"), ("--bytes=3", "multiple of 4")],
)
def test_bad_arguments_are_named(argument: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        bench.main([argument])
    assert exit_.value.code == 2
    assert named in capsys.readouterr().err


@pytest.mark.more
def test_a_small_run_end_to_end() -> None:
    command = [
        sys.executable,
        "-m",
        "torch_mcast.bench",
        "--peer",
        "gloo",
        "--ranks",
        "2",
        "--bytes",
        "4K",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    seen = [(row["collective"], row["backend"], row["fabric"]) for row in rows]
    assert seen == [
        (collective, backend, fabric)
        for collective in bench.COLLECTIVES
        for backend, fabric in (("gloo", "tcp"), ("mcast", "shm"), ("mcast", "udp"))
    ]
    for row in rows:
        assert (row["ranks"], row["bytes"], row["wrong"]) == (2, 4096, 0)
        assert row["p50_us"] > 0
        assert row["ratio_to_memcpy"] > 0
        assert (row["ratio_to_gloo"] is None) == (row["backend"] == "gloo")
