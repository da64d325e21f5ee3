"""FSDP2 with CUDA tensors over the mcast backend, in processes of their own (over_fsdp_cuda.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .cuda_ranks import needs_cuda, run

SCRIPT = Path(__file__).with_name("over_fsdp_cuda.py")

pytestmark = needs_cuda


def answers(scenario: str, size: int = 2, delay_us: int = 300, **env: str) -> list[Any]:
    return [answer[scenario] for answer in run(SCRIPT, scenario, size, delay_us, **env)]


def test_a_slow_reduce_scatter_keeps_its_input_whatever_the_next_module_is() -> None:
    for answer in answers("mixed"):
        assert answer == {"hooked False": True, "hooked True": True}


def test_a_backward_holds_as_many_gradients_as_fsdp_allows() -> None:
    for most in answers("memory"):
        assert most["enable()"] <= most["plain"]
        if "3 buffers" in most:
            assert most["plain"] < most["3 buffers"] <= most["plain"] + 2 * 12, "of 12 MiB each"


def test_temporaries_outlive_a_wait_on_another_stream() -> None:
    for answer in answers("temporaries"):
        assert answer == dict.fromkeys(answer, True)


def test_what_fails_behind_a_call_is_told_by_wait() -> None:
    for answer in run(SCRIPT, "lost,limits"):
        assert answer["lost"] == [
            "the group has failed",
            "all_gather of 20 bytes a rank: the group has failed",
            "0 kept, 30.0",
        ]
        assert answer["limits"] == [1, 2, 60_000, 1]


def test_hooks_of_fsdp2() -> None:
    for wrong in answers("hooks"):
        assert wrong == dict.fromkeys(wrong, "")


def test_replicas() -> None:
    for wrong in answers("replicas", 4):
        assert wrong == dict.fromkeys(wrong, "")


def test_where_collectives_run() -> None:
    for answer in run(SCRIPT, "apart,streams"):
        assert set(map(str, answer["apart"].values())) == {"[[1, 0], [0, 1]]"}
        assert answer["streams"] == {
            "used": ["all_gather_stream"],
            "events": ["allgather", "reduce_scatter"],
            "in flight": True,
        }
