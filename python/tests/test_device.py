"""CUDA tensors over the mcast backend, in processes of their own (over_cuda.py).

They need a CUDA device, or MCAST_TORCH_CUDA: a Python program that runs the script that follows it where
torch's CUDA tensors need no GPU (CONTRIBUTING.md). There streams are late on purpose, and device memory is
out of the CPU's reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from torch_mcast import _lib, errors
from torch_mcast.group import Group
from torch_mcast.tensor import require_cpu, require_dense

RUNNER = os.environ.get("MCAST_TORCH_CUDA", "")
LIMIT_S = 300.0  # on a busy machine
SCRIPT = Path(__file__).with_name("over_cuda.py")

needs_cuda = pytest.mark.skipif(
    not RUNNER and not torch.cuda.is_available(),
    reason="no CUDA device, and MCAST_TORCH_CUDA is not set: it names a program that does without one "
    "(CONTRIBUTING.md)",
)


def run(scenario: str, size: int = 2, delay_us: int = 1000, **env: str) -> list[dict[str, Any]]:
    """Run scenarios on ranks, and return the JSON that each printed last; {} of one that printed none."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    base = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "TORCH_FR_DUMP_ON_TIMEOUT": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "FAKE_CUDA_DELAY_US": str(delay_us),
        "FAKE_CUDA_GUARD": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **env,
    }
    command = [sys.executable, *([RUNNER] if RUNNER else []), str(SCRIPT), scenario]
    ranks = [
        subprocess.Popen(
            command,
            env={**base, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    answers = []
    try:
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, f"rank {rank}:\n{out[-2000:]}\n{err[-6000:]}"
            lines = [line for line in out.splitlines() if line.startswith("{")]
            answers.append(json.loads(lines[-1]) if lines else {})
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return answers


@needs_cuda
@pytest.mark.parametrize(
    ("size", "env"),
    [
        (2, {}),
        (3, {"MCAST_FABRIC": "udp", "MCAST_IFACE": "lo", "MCAST_LOSS": "0.01"}),
    ],
    ids=["shm", "udp with loss"],
)
def test_collectives_give_the_bits_of_the_cpu(size: int, env: dict[str, str]) -> None:
    for answer in run("entries", size, 200, **env):
        assert answer["entries"] == 254 + size


@needs_cuda
def test_streams_are_followed() -> None:
    for answer in run("streams,steady,asked,touch"):
        assert answer["streams"] == {"wrong": 0}
        assert answer["steady"]["later"] == 0, "pinned memory, streams and events are made once"
        assert answer["steady"]["ops"] > 6
        said = answer["asked"]
        assert said[:3] == ["completed True [1.0, 2.0]", "future 8.0", "blocked True 8.0"]
        assert said[3:5] == ["kept 1 1", "host 2.0 16.0"]
        assert "reduce of CUDA tensors" in said[5]
        assert "this all_reduce of CUDA tensors" in said[6]
        assert "must be on one device" in said[7]
        assert "is cuda memory" in answer["touch"]


@needs_cuda
def test_what_stands_on_collectives() -> None:
    for answer in run("programs", delay_us=500):
        assert answer["programs"] == {
            "ddp": True,
            "functional": [0.0, 1.0],
            "objects": [0, 1],
            "another group made": 0,
        }


@needs_cuda
@pytest.mark.skipif(not RUNNER, reason="a GPU that is in time shows no bug")
def test_planted_bugs_show() -> None:
    answers = run("bugs", delay_us=4000)
    for bug in ("producer", "consumer", "keep"):
        assert sum(answer["bugs"][bug] for answer in answers) > 0, bug
    assert all(answer["bugs"]["none"] == 0 for answer in answers)


@needs_cuda
def test_no_stream_waits_for_a_rank_that_died() -> None:
    answer = run("death")[0]["death"]
    assert answer["lost"], "what is no result is NaN"
    assert answer["said"] == "rank 1"
    assert answer["work"] == "RankError"


@needs_cuda
def test_no_stream_waits_for_a_rank_that_does_not_come() -> None:
    answer = run("late")[0]["late"]
    assert answer["lost"]
    assert (
        "an Allgather of tensors on CUDA device 0 was not done 2s after its input was there" in answer["said"]
    )


@needs_cuda
@pytest.mark.parametrize("size", [2, 3])
def test_fsdp_trains_as_on_the_cpu(size: int) -> None:
    for answer in run("fsdp", size, 300):
        assert answer["fsdp"] == dict.fromkeys(answer["fsdp"], True)


def on_gpu(index: int) -> Any:
    """Return what looks like a CUDA tensor where there is no GPU."""
    from types import SimpleNamespace

    return SimpleNamespace(device=torch.device("cuda", index), layout=torch.strided)


def test_which_tensors_go_together() -> None:
    require_dense(on_gpu(0), on_gpu(0))
    with pytest.raises(
        errors.ArgumentError, match="cuda:0 and cuda:1: those of a call must be on one device"
    ):
        require_dense(on_gpu(0), on_gpu(1))
    with pytest.raises(errors.ArgumentError, match="cuda:0 and cpu"):
        require_dense(on_gpu(0), torch.ones(1))
    with pytest.raises(errors.UnsupportedError, match="scatter of CUDA tensors: the mcast backend does"):
        require_cpu("scatter", on_gpu(0))
    require_cpu("scatter", torch.ones(1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_driver_the_call_says_so_and_nothing_else_changes() -> None:
    group = Group(0, 1, "", lambda blob: [blob], 10_000)
    try:
        for _ in range(2):
            with pytest.raises(errors.UnavailableError, match=r"no CUDA driver.*libcuda"):
                group.lib.allgather(group.live(), 4096, 8192, 16, _lib.stream_at(0, 0, 0))
        buffer = torch.arange(4.0)
        work = group.lib.allreduce(
            group.live(), buffer.data_ptr(), buffer.data_ptr(), 4, _lib.F32, _lib.SUM, 1.0
        )
        assert group.lib.wait(work, 10_000)
        with pytest.raises(errors.ArgumentError, match=f"work {work} is not on device memory"):
            group.lib.follow(work, 0)
        group.lib.forget(work)
        with pytest.raises(errors.ArgumentError, match="send is 0 but should be the address of 16 bytes"):
            group.lib.allgather(group.live(), 0, 8192, 16, _lib.stream_at(0, 0, 0))
    finally:
        group.close()
