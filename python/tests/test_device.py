"""CUDA tensors over the mcast backend, in processes of their own (over_cuda.py).

They need a CUDA device, or MCAST_TORCH_CUDA: a Python program that runs the script that follows it where
torch's CUDA tensors need no GPU (CONTRIBUTING.md). There streams are late on purpose, and device memory is
out of the CPU's reach.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_mcast import _lib, device, errors, structs
from torch_mcast.group import Group
from torch_mcast.tensor import require_dense

from . import cuda_ranks
from .cuda_ranks import RUNNER, Ended, needs_cuda
from .limits import LIMIT_MS

SCRIPT = Path(__file__).with_name("over_cuda.py")


def run(scenarios: str, size: int, delay_us: int, **env: str) -> list[Ended]:
    """Run scenarios on ranks, with streams that are late by up to delay_us a copy."""
    return cuda_ranks.ended(SCRIPT, scenarios, size, delay_us, **env)


def answers(scenarios: str, size: int, delay_us: int, **env: str) -> list[dict[str, Any]]:
    """Return what the scenarios saw on each rank; {} of a rank that one of them has end early."""
    return cuda_ranks.run(SCRIPT, scenarios, size, delay_us, **env)


# Most of a scenario's time is the start of its ranks, so many share one. Each start has a seed of its own.


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    """Two ranks with two devices, by shared memory."""
    scenarios = "entries,messages,coalesced,empty,refused,streams,together,asked,touch,steady,programs,fsdp"
    return answers(scenarios, 2, 500, FAKE_CUDA_DEVICES="2", FAKE_CUDA_SEED="1")


@pytest.fixture(scope="module")
def three() -> list[dict[str, Any]]:
    """Three ranks over udp with loss, where the backend's name is "mcast" alone."""
    udp = {"MCAST_FABRIC": "udp", "MCAST_IFACE": "lo", "MCAST_LOSS": "0.01"}
    scenarios = "entries,messages,coalesced,empty,streams,together,fsdp"
    return answers(scenarios, 3, 200, BACKEND="mcast", FAKE_CUDA_SEED="2", **udp)


Answers = list[dict[str, Any]]


@needs_cuda
def test_collectives_give_the_bits_of_the_cpu(two: Answers, three: Answers) -> None:
    for size, answer in [*((2, answer) for answer in two), *((3, answer) for answer in three)]:
        assert answer["entries"] == 830 + size
        assert answer["coalesced"] == 24
        assert answer["messages"] == 4 * 2 * (3 * 5 + 4)


@needs_cuda
def test_streams_are_followed(two: Answers, three: Answers) -> None:
    for answer in two + three:
        assert answer["streams"] == {"wrong": 0}
        assert answer["together"] == {"one group": 0, "two groups": 0}


@needs_cuda
def test_who_asks_instead_of_waiting(two: Answers) -> None:
    for answer in two:
        assert answer["asked"] == {
            "completed": [True, [1.0, 2.0]],
            "future": 8.0,
            "blocked": [True, 8.0],
            "complete": True,
            "kept": [1, 1],
            "collected": [1.0, 3.0, 5.0],
            "host": [2.0, 16.0],
        }


@needs_cuda
def test_nothing_is_made_twice(two: Answers) -> None:
    for answer in two:
        made = answer["steady"]
        assert made.pop("operations") == 80
        assert made == dict.fromkeys(made, 0)
        assert ("driver" in made) == bool(RUNNER)


@needs_cuda
def test_wrong_arguments_are_named(two: Answers) -> None:
    mixed, one_device = "tensors on cuda:0 and cpu: tensors", "tensors of a call must be on one device"
    for answer in two:
        said = answer["refused"]
        for what, words in {
            "CPU and CUDA": [mixed, one_device],
            "CUDA in a list of CPU": ["tensors on cpu and cuda:0", one_device],
            "Allgather's size": ["output has 5 elements, which is not 2 (ranks) times the 3 of the input"],
            "Reduce-Scatter's size": ["input has 7 elements, which is not 2 (ranks) times the 3 of the"],
            "a list's length": ["all_gather: the list has 3 tensors, and there are 2 ranks"],
            "a list's sizes": ["input has 3 elements of torch.float32, its place in the list 2"],
            "inputs' sizes": ["output has 3 elements of torch.float32, its place in the list 4"],
            "types": ["output is torch.float32 and input torch.int32: they must be the same"],
            "BAND": ["all_reduce: BAND of torch.float32: want one of SUM"],
            "AVG of integers": ["reduce: AVG of torch.int32", "use SUM and divide"],
            "a CUDA graph": ["is recording a CUDA graph", "run collectives outside of torch.cuda.graph"],
            "a wait in a CUDA graph": ["cannot wait for all_reduce", "wait before torch.cuda.graph, or with a timeout"],
            "two devices": ["tensors on cuda:0 and cuda:1", one_device],
            "after": ["[2.0, 2.0, 2.0]"],
        }.items():
            if what == "two devices" and not RUNNER and torch.cuda.device_count() < 2:
                continue
            assert all(word in said[what] for word in words), (what, said[what])


@needs_cuda
def test_what_stands_on_collectives(two: Answers) -> None:
    for answer in two:
        assert answer["programs"] == {
            "ddp": True,
            "functional": [0.0, 1.0],
            "objects": [0, 1],
            "another group made": 0,
        }


@needs_cuda
def test_fsdp_trains_as_on_the_cpu(two: Answers, three: Answers) -> None:
    for answer in two + three:
        assert len(answer["fsdp"]) == 4
        assert answer["fsdp"] == dict.fromkeys(answer["fsdp"], True)


@needs_cuda
@pytest.mark.skipif(not RUNNER, reason="a GPU that is in time shows no bug")
def test_planted_bugs_show() -> None:
    found = answers("bugs", 2, 4000, FAKE_CUDA_SEED="3")
    for bug in ("producer", "consumer", "keep"):
        assert sum(answer["bugs"][bug] for answer in found) > 0, bug
    assert all(answer["bugs"]["none"] == 0 for answer in found)


@needs_cuda
def test_the_cpu_does_not_touch_device_memory(two: Answers) -> None:
    assert all("is cuda memory" in answer["touch"] for answer in two)


@needs_cuda
@pytest.mark.skipif(not RUNNER, reason="pages of device memory that end the process are the runner's")
@pytest.mark.parametrize("bug", ["touch_unasked", "touch_in_python"])
def test_a_touch_of_device_memory_ends_the_process(bug: str) -> None:
    [rank] = run(bug, 1, 0)
    assert rank.status < 0, "a signal ends it"
    lies = re.search(r"from (\S+) to (\S+)", rank.out)
    touched = re.search(r"(?:the CPU touched live device memory at|unexpected fault address) (\S+)", rank.err)
    assert lies is not None
    assert touched is not None, rank.err[:3000]
    assert int(lies[1], 16) <= int(touched[1], 16) < int(lies[2], 16)


@needs_cuda
def test_no_stream_waits_for_a_rank_that_does_not_come_or_died() -> None:
    answer = answers("late,death", 2, 1000)[0]
    assert answer["late"]["lost"], "what is no result is NaN"
    text = "an Allgather of tensors on CUDA device 0 was not done 2s after its input was there"
    assert text in answer["late"]["said"]
    assert answer["death"] == {"lost": True, "said": "rank 1", "work": "RankError"}


def on_gpu(index: int) -> Any:
    """Return what looks like a CUDA tensor where there is no GPU."""
    from types import SimpleNamespace

    return SimpleNamespace(device=torch.device("cuda", index), layout=torch.strided)


def test_which_tensors_go_together() -> None:
    require_dense(on_gpu(0), on_gpu(0))
    with pytest.raises(
        errors.ArgumentError, match="cuda:0 and cuda:1: tensors of a call must be on one device"
    ):
        require_dense(on_gpu(0), on_gpu(1))
    with pytest.raises(errors.ArgumentError, match="cuda:0 and cpu"):
        require_dense(on_gpu(0), torch.ones(1))


def test_a_cuda_graph_cannot_hold_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(errors.ArgumentError, match="is recording a CUDA graph, which cannot hold"):
        device.place(on_gpu(0), timedelta(seconds=1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_driver_the_call_says_so_and_nothing_else_changes() -> None:
    group = Group(0, 1, "", lambda blob: [blob], LIMIT_MS)
    try:
        for _ in range(2):
            with pytest.raises(errors.UnavailableError, match=r"no CUDA driver.*libcuda"):
                group.lib.allgather(group.live(), 4096, 8192, 16, structs.stream_at(0, 0, 0))
        buffer = torch.arange(4.0)
        work = group.lib.allreduce(
            group.live(), buffer.data_ptr(), buffer.data_ptr(), 4, _lib.F32, _lib.SUM, 1.0
        )
        assert group.lib.wait(work, LIMIT_MS)
        with pytest.raises(errors.ArgumentError, match=f"work {work} is not on device memory"):
            group.lib.follow(work, 0)
        group.lib.forget(work)
        with pytest.raises(errors.ArgumentError, match="send is 0 but should be the address of 16 bytes"):
            group.lib.allgather(group.live(), 0, 8192, 16, structs.stream_at(0, 0, 0))
    finally:
        group.close()
