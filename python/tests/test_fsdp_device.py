"""FSDP2 with CUDA tensors over the mcast backend, in processes of their own (over_fsdp_cuda.py)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from .cuda_ranks import RUNNER, needs_cuda, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))

import soak

SCRIPT = Path(__file__).with_name("over_fsdp_cuda.py")


def answers(scenario: str, size: int = 2, delay_us: int = 300, **env: str) -> list[Any]:
    return [answer[scenario] for answer in run(SCRIPT, scenario, size, delay_us, **env)]


@needs_cuda
def test_a_slow_reduce_scatter_keeps_its_input_whatever_the_next_module_is() -> None:
    for answer in answers("mixed"):
        assert answer == {"hooked False": True, "hooked True": True}


@needs_cuda
def test_a_backward_holds_as_many_gradients_as_fsdp_allows() -> None:
    for most in answers("memory"):
        assert most["enable()"] <= most["plain"]
        if "3 buffers" in most:
            assert most["plain"] < most["3 buffers"] <= most["plain"] + 2 * 12, "of 12 MiB each"


@needs_cuda
def test_temporaries_outlive_a_wait_on_another_stream() -> None:
    for answer in answers("temporaries"):
        assert answer == dict.fromkeys(answer, True)


@needs_cuda
def test_what_fails_behind_a_call_is_told_by_wait() -> None:
    for answer in run(SCRIPT, "lost,limits"):
        said = "all_gather of 20 bytes a rank: the group has failed"
        assert answer["lost"] == [said, said, "0 kept, 30.0"]
        assert answer["limits"] == [1, 2, 60_000, 1]


@needs_cuda
def test_hooks_of_fsdp2() -> None:
    for wrong in answers("hooks"):
        assert wrong == dict.fromkeys(wrong, "")


@needs_cuda
def test_replicas() -> None:
    for wrong in answers("replicas", 4):
        assert wrong == dict.fromkeys(wrong, "")


@needs_cuda
def test_where_collectives_run() -> None:
    for answer in run(SCRIPT, "apart,streams"):
        assert set(map(str, answer["apart"].values())) == {"[[1, 0], [0, 1]]"}
        assert answer["streams"] == {
            "used": ["all_gather_stream"],
            "events": ["allgather", "reduce_scatter"],
            "in flight": True,
        }


@pytest.mark.more
@pytest.mark.skipif(not RUNNER, reason="MCAST_TORCH_CUDA is not set: a GPU adds in an order of its own")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes network namespaces")
@pytest.mark.parametrize(("way", "seed"), [("shm", 1), ("udp", 2), ("switch", 3), ("nodes", 5)])
def test_trains_as_on_the_cpu(way: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(soak.RUNNER, RUNNER)  # cuda_ranks took it out
    out = tmp_path / "soak.ndjson"
    words = ["--trainings=1", f"--first={seed}", f"--ways={way}", "--delay-us=1000", f"--out={out}"]
    assert soak.main(words) == 0
    row = json.loads(out.read_text())
    assert (row["wrong"], row["trainings"]) == ([], 1)
    assert row["device_ops"] >= 10 * row["ranks"]
    assert (row["fabric"] == "shm") == (way == "shm")
    assert (row["nodes"] == 2) == (way == "nodes")
    assert (row["switch_ops"] > 0) == (way == "switch")


def test_a_soak_says_what_it_lacks_and_sums_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv(soak.RUNNER, raising=False)
    assert soak.main([f"--out={tmp_path / 'none'}"]) == soak.MISSING
    assert soak.RUNNER in capsys.readouterr().err
    row = {"way": "switch", "trainings": 3, "wrong": [7]}
    row |= {"device_ops": 90, "chunks_injected": 2, "switch_ops": 8}
    assert soak.table([row, row]).splitlines()[2:] == [
        "| 3 hosts, a switch, 1 % loss | 6 | 2 | 180 | 4 chunks lost on purpose, 16 Reduce-Scatters through "
        "the switch |"
    ]
