"""torch's nccl backend, NCCL itself and this library as its plugin: two groups that both go through CollNet.

What needs all three runs where MCAST_TORCH_NCCL names a program that runs its arguments with an NCCL
which needs no GPU, and with torchrig on the path: CONTRIBUTING.md. Of such NCCLs kernels are emulated,
so times mean nothing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed.fsdp import FSDPModule

from torch_mcast import _lib, errors, fsdp, nccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import node

from .cuda_ranks import Test
from .limits import until

RUNNER = os.environ.get("MCAST_TORCH_NCCL", "")
LIBRARY = Path("/lib/libnccl-net-mcast.so")

# What losses, norms and weights may differ by from a run on CPUs: sums of 3 and 4 ranks have another
# order, over Socket as well (some 1e-7, and 3e-3 where gradients are bfloat16).
F32, BF16 = 1e-5, 2e-2

_without_rig = pytest.mark.skipif(
    not RUNNER or not dist.is_nccl_available(),
    reason="MCAST_TORCH_NCCL is not set: it names a program that runs NCCL without a GPU (CONTRIBUTING.md)"
    if dist.is_nccl_available()
    else "this torch was built without nccl",
)


def needs_rig(test: Test) -> Test:
    """Have a test run where there is such an NCCL, and in `make test-all`."""
    marked: Test = pytest.mark.more(_without_rig(test))
    return marked


SEPARATE = hasattr(FSDPModule, "set_separate_reduce_scatter_group")  # torch 2.15

needs_nccl = pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch was built without nccl")


def communicator(**changes: Any) -> nccl.Communicator:
    settled: dict[str, Any] = {
        "library": LIBRARY,
        "id": 1,
        "ranks": 4,
        "nodes": 4,
        "collnet": True,
        "why": "",
        "allgather_from": 4096,
        "reduce_scatter_from": 4096,
        "allgather_windows": 0,
        "reduce_scatter_windows": 0,
    }
    return nccl.Communicator(**settled | changes)


@pytest.mark.parametrize(
    ("kind", "after", "says"),
    [
        ("allgather", {}, ""),
        ("reduce_scatter", {}, ""),
        ("allgather", {"reduce_scatter_from": 0}, ""),
        ("reduce_scatter", {"allgather_from": 0}, ""),
        ("allgather", {"allgather_from": 0}, "the tuner leaves Allgathers to NCCL"),
        ("reduce_scatter", {"reduce_scatter_from": 0}, "MCAST_TUNER_REDUCE_SCATTER sets a size"),
        (
            "reduce_scatter",
            {"collnet": False, "why": "there is one node"},
            "there is one node",
        ),
        ("allgather", None, "asked the plugin's tuner: NCCL does not load the plugin"),
    ],
)
def test_why_a_communicator_does_not_go_through_collnet(
    monkeypatch: pytest.MonkeyPatch, kind: nccl.Kind, after: dict[str, Any] | None, says: str
) -> None:
    for name in ("NCCL_NET_PLUGIN", "NCCL_NET", "NCCL_COLLNET_ENABLE"):
        monkeypatch.delenv(name, raising=False)
    if after is not None:  # the tuner was asked, so there is a plugin
        monkeypatch.setenv("NCCL_NET_PLUGIN", "mcast")
    why = nccl._why_not(kind, [] if after is None else [communicator(**after)])
    assert (says in why) if says else why == ""


class OneGroup:
    """A process group as far as Handle._gathers_over looks at it."""


@pytest.mark.parametrize(
    ("alone", "nbytes", "over"),
    [
        ((0, 0), 1 << 30, "FSDP's"),
        ((8, 16), 7, "FSDP's"),
        ((8, 16), 8, "CollNet's"),
        ((8, 16), 16, "CollNet's"),
        ((8, 16), 17, "FSDP's"),
        ((8, 0), 1 << 40, "CollNet's"),
    ],
)
def test_a_forward_gathers_over_what_is_faster_alone(
    monkeypatch: pytest.MonkeyPatch, alone: tuple[int, int], nbytes: int, over: str
) -> None:
    own, ours = cast(Any, OneGroup()), cast(Any, OneGroup())
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [0, 1, 2])
    handle = fsdp.Handle(nn.Linear(1, 1), "auto", nccl.Groups(ours, ours))
    assert handle._gathers_over(own, nbytes) is ours, "groups of the user's own"
    handle._collnet = communicator(allgather_alone_from=alone[0], allgather_alone_to=alone[1])
    assert handle._gathers_over(own, nbytes) is (own if over == "FSDP's" else ours)
    assert handle._gathers_over(ours, nbytes) is ours, "FSDP shards over the group that was made"
    in_backward: list[Any] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            in_backward.append(handle._gathers_over(own, nbytes))
            return grad

    Look.apply(torch.ones(1, requires_grad=True)).sum().backward()
    assert in_backward == [ours], "a Reduce-Scatter runs beside it"


def test_two_that_are_no_pair_are_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCAST_SWITCH", "10.0.0.9:7470")
    assert "no pair" in nccl._why_not("allgather", [communicator(allgather_from=0)])
    assert "the tuner leaves" in nccl._why_not("allgather", [communicator(allgather_from=0, paired=True)])
    assert nccl._why_not("allgather", [communicator(paired=False)]) == "", "MCAST_TUNER_ALLGATHER needs none"


PLUGIN = {"NCCL_NET_PLUGIN": "mcast"}


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "set NCCL_NET_PLUGIN=mcast"),
        ({"NCCL_NET_PLUGIN": "none", "NCCL_COLLNET_ENABLE": "1"}, "set NCCL_NET_PLUGIN=mcast"),
        ({**PLUGIN, "NCCL_COLLNET_ENABLE": "0"}, "NCCL_COLLNET_ENABLE=0; unset it"),
        ({**PLUGIN, "NCCL_COLLNET_ENABLE": ""}, "NCCL_COLLNET_ENABLE=; unset it"),
        ({**PLUGIN, "NCCL_NET": "Socket"}, "NCCL_NET=Socket puts every communicator on that network"),
        (PLUGIN, ""),
        ({**PLUGIN, "NCCL_NET": "MCAST"}, ""),
        ({**PLUGIN, "NCCL_COLLNET_ENABLE": "1"}, ""),
        ({"NCCL_NET_PLUGIN": "/lib/libnccl-net-mcast.so", "NCCL_COLLNET_ENABLE": "1"}, ""),
    ],
)
@needs_nccl
def test_which_variable_is_lacking(environment: dict[str, str], says: str) -> None:
    lacking = nccl._lacking(environment)
    assert (says in lacking) if says else lacking == ""


@needs_nccl
def test_a_torch_that_cannot_ask_for_collnet_needs_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_asks_for_collnet", lambda: False)
    assert "set NCCL_COLLNET_ENABLE=1" in nccl._lacking(PLUGIN)
    assert nccl._lacking({**PLUGIN, "NCCL_COLLNET_ENABLE": "1"}) == ""


@needs_nccl
def test_our_communicators_ask_for_collnet_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_NET", "NCCL_COLLNET_ENABLE"):
        monkeypatch.delenv(name, raising=False)
    plain: Any = dist.ProcessGroupNCCL.Options().config  # what a group gets that is not ours
    monkeypatch.setenv("NCCL_NET_PLUGIN", "mcast")
    ours: Any = nccl._options(5).config  # torch's stubs have neither name
    assert (ours.net_name, ours.collnet_enable, ours.min_ctas) == ("mcast", 1, 5)
    assert (plain.net_name, plain.collnet_enable) != ("mcast", 1)
    # A network that is not there ends the job, where NCCL would have taken another one.
    monkeypatch.setenv("NCCL_NET_PLUGIN", "none")
    assert nccl._options(None).config.net_name is None


def test_what_nccl_says_of_a_communicator_that_it_gives_up() -> None:
    error = RuntimeError("NCCL error in: a.cpp:1\nLast error:\nFailed to initialize any NET plugin\n\n")
    assert nccl._last_line(error) == "Failed to initialize any NET plugin"


class Part(SimpleNamespace):
    """Of one of FSDP's parameter groups what says over which process groups it goes."""

    def __init__(self, own: object) -> None:
        mesh = SimpleNamespace(shard_process_group=object(), reduce_scatter_process_group=own)
        super().__init__(device=torch.device("cuda", 0), mesh_info=mesh, post_forward_mesh_info=None)


@pytest.mark.parametrize(
    ("own", "serial"),
    [([None, None], True), ([object(), object()], False), ([object(), None], True)],
    ids=["one communicator", "set_separate_reduce_scatter_group", "of some modules"],
)
@pytest.mark.parametrize("alike", [True, False])
def test_two_communicators_of_fsdp_are_not_said_to_be_serial(
    monkeypatch: pytest.MonkeyPatch, own: list[object], serial: bool, alike: bool
) -> None:
    parts = [Part(one) for one in own]
    ranks = iter([[0, 1], [0, 1] if alike else [0]])
    monkeypatch.setattr(nccl, "is_nccl", lambda group: True)
    monkeypatch.setattr(nccl, "beside", lambda group: (None, "there is one node"))
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: next(ranks))
    groups, why = fsdp._choose(None, parts)
    assert groups is None
    assert bool(why) == serial, why


@pytest.mark.parametrize(
    ("told", "common"),
    [
        (["", "", ""], ""),
        (["one node"] * 3, "one node"),
        (["", "one node", ""], "rank 1: one node"),
        (["off", "one node", "off"], "rank 0, 2: off; rank 1: one node"),
    ],
)
def test_all_ranks_say_the_same(monkeypatch: pytest.MonkeyPatch, told: list[str], common: str) -> None:
    def exchange(text: str, group: Any) -> list[str]:
        return told

    monkeypatch.setattr(nccl, "_exchange", exchange)
    nobody: Any = None
    assert nccl._common(told[0], nobody) == common


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_groups_without_a_gpu_are_refused() -> None:
    with pytest.raises(errors.UnavailableError, match="CUDA device"):
        nccl.groups([0])


def test_no_communicators_without_nccl() -> None:
    _lib.library()
    assert _lib.find().resolve() in [path.resolve() for path in _lib.mapped()]
    assert nccl.communicators() == []


class Run:
    """Ranks of over_nccl.py: their results, and their output."""

    def __init__(self, folder: Path, size: int, task: str, case: dict[str, Any], **settings: str) -> None:
        assert Path(RUNNER).is_file(), f"MCAST_TORCH_NCCL={RUNNER}: no such file"
        keep = {
            k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "MCAST_", "JOIN_", "FAKE_"))
        }
        keep |= {k: v for k, v in os.environ.items() if k in ("JOIN_BUILD", "FAKE_CUDA_BUILD")}
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        library = _lib.find()
        keep |= {
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
            ),
            "MCAST_LIBRARY": str(library),
            "JOIN_PLUGIN": str(library.parent),
            "NCCL_DEBUG": "WARN",
            "MCAST_TIMEOUT": os.environ["MCAST_TIMEOUT"],
            "MCAST_IFACE": "lo",
            "MCAST_TUNER_ALLGATHER": "1",
            "MCAST_TUNER_REDUCE_SCATTER": "1",
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "LOCAL_RANK": "0",
        } | settings
        program = str(Path(__file__).with_name("over_nccl.py"))
        arguments = [RUNNER, sys.executable, "-m", "torchrig", program, task, json.dumps(case)]
        self.logs = [folder / f"rank{rank}" for rank in range(size)]
        self.processes = []
        for rank, log in enumerate(self.logs):
            with log.open("w") as out:
                self.processes.append(
                    subprocess.Popen(arguments, env=keep | {"RANK": str(rank)}, stdout=out, stderr=out)
                )
        self.store = store

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until something is so, or all ranks have ended."""
        try:
            until(lambda: done() or all(p.poll() is not None for p in self.processes), "the ranks are done")
        except AssertionError as e:
            raise AssertionError("\n".join(text[-3000:] for text in self.texts())) from e

    def texts(self) -> list[str]:
        return [log.read_text(errors="replace") for log in self.logs]

    def results(self) -> list[dict[str, Any]]:
        """Return the object that each rank has printed."""
        self.until(lambda: False)
        found: list[dict[str, Any]] = []
        for text, process in zip(self.texts(), self.processes, strict=True):
            lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
            assert process.returncode == 0, f"ended with {process.returncode}: {text[-3000:]}"
            assert lines, f"no result: {text[-3000:]}"
            found.append(json.loads(lines[-1].removeprefix("RESULT ")))
        return found


@contextmanager
def switch(wanted: bool) -> Iterator[dict[str, str]]:
    if not wanted:
        yield {}
        return
    with node.node() as address:
        yield {"MCAST_SWITCH": address}


TRAININGS: dict[str, tuple[int, dict[str, Any], dict[str, str], float]] = {
    "2": (2, {}, {}, 0.0),
    "2, delays, two groups beside gloo": (2, {"default": "gloo"}, {"FAKE_CUDA_DELAY_US": "1000"}, 0.0),
    "2, delays, accumulation, switch": (
        2,
        {"accumulate": 2},
        {"FAKE_CUDA_DELAY_US": "1000", "SWITCH": "1"},
        0.0,
    ),
    "2, none but FSDP's have CollNet": (2, {"unset": True}, {}, 0.0),
    "2, bfloat16": (2, {"dtype": "bfloat16"}, {}, 0.0),
    "3, delays": (3, {}, {"FAKE_CUDA_DELAY_US": "500"}, F32),
    "4, switch": (4, {}, {"SWITCH": "1"}, F32),
    "4, bfloat16, switch": (4, {"dtype": "bfloat16"}, {"SWITCH": "1"}, BF16),
}


@needs_rig
@pytest.mark.parametrize("name", TRAININGS)
def test_training_over_two_groups_is_that_of_the_cpu(name: str, tmp_path: Path) -> None:
    size, case, settings, limit = TRAININGS[name]
    settings = dict(settings)
    with (
        switch(bool(settings.pop("SWITCH", ""))) as address,
        Run(tmp_path, size, "training", case, **settings, **address) as run,
    ):
        results = run.results()
    for result in results:
        assert result["apart"] <= limit, result
        assert (result["two"], result["why_serial"]) == (True, ""), result
        assert result["deferred"] > 0, result
        assert result["blocked"] == 0, result  # FSDP has a stream for them
        gather, reduce = result["windows"][-2:]
        assert gather[0] >= 10, result  # its Allgathers and none of the Reduce-Scatters
        assert gather[1] == 0, result
        assert reduce[1] >= 10, result
        assert reduce[0] <= 2, result  # what ranks told each other


@needs_rig
def test_only_fsdps_communicators_have_collnet_and_both_work_at_once(tmp_path: Path) -> None:
    count = 12_345
    case = {"elements": 1 << 22, "count": count, "turns": 8}
    debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING"}
    with Run(tmp_path, 2, "beside", case, **debug) as run:
        results = run.results()
        log = run.texts()[0]
    for result in results:
        assert [collnet for collnet, _ in result["communicators"]] == [False, True, True], result
        assert result["communicators"][0][1] == [0, 0], "the default group's go through CollNet"
        (gathers, none, _), (_, reduces, _) = result["alone"]
        assert none == 0, result
        assert min(gathers, reduces) > 8, f"too few windows to tell what is under way: {result}"
        assert all(run[:2] == [gathers, reduces] for run in result["together"]), result
        assert any(both for *_, both in result["together"]), f"one waited for the other: {result}"
        assert not any(both for *_, both in result["behind"]), f"one communicator cannot run both: {result}"
        assert result["theirs"] == 2, result  # 0 + 1, twice
    # Of each operation rank 0 of a communicator logs the bytes and the algorithm.
    assert re.search(rf"AllReduce: {count * 4} Bytes -> Algo (RING|TREE) ", log), log[-5000:]
    assert re.search(r"AllGather: \d+ Bytes -> Algo COLLNET_DIRECT ", log)
    assert re.search(r"ReduceScatter: \d+ Bytes -> Algo COLLNET_DIRECT ", log)


@needs_rig
def test_a_forward_gathers_over_fsdps_own_group_where_a_ring_is_faster(tmp_path: Path) -> None:
    auto = {"MCAST_TUNER_ALLGATHER": "auto", "MCAST_TUNER_REDUCE_SCATTER": "auto"}
    with switch(True) as address, Run(tmp_path, 3, "phases", {"width": 2100}, **auto, **address) as run:
        results = run.results()
    for result in results:
        forward, backward, *_ = result["steps"]
        assert forward == [0, 0], result  # nothing runs beside it
        assert min(backward) > 8, result
        assert result["steps"] == [forward, backward] * 2, result


@needs_rig
def test_without_the_library_fsdp_keeps_its_groups_and_says_so(tmp_path: Path) -> None:
    nowhere = {"JOIN_PLUGIN": str(tmp_path), "NCCL_NET": "mcast", "NCCL_NET_PLUGIN": "mcast"}
    with Run(tmp_path, 2, "missing", {}, **nowhere) as run:
        for result in run.results():
            assert "NCCL has made no communicator" in result["said"], result
            assert result["mesh"] == result["said"].partition(": ")[2], result


@needs_rig
def test_a_wait_left_out_is_seen(tmp_path: Path) -> None:
    with Run(tmp_path, 2, "training", {"mistake": "wait"}, FAKE_CUDA_DELAY_US="1000") as run:
        assert max(result["apart"] for result in run.results()) > 1e-3


@needs_rig
@pytest.mark.parametrize(
    ("settings", "says", "mesh"),
    [
        (
            {"MCAST_TUNER_REDUCE_SCATTER": "0"},
            "the tuner leaves Reduce-Scatters to NCCL",
            "the tuner leaves Reduce-Scatters to NCCL",
        ),
        (
            {"NCCL_COLLNET_ENABLE": "0"},
            "CollNet is off for every communicator: NCCL_COLLNET_ENABLE=0",
            "CollNet is off for every communicator: NCCL_COLLNET_ENABLE=0",
        ),
    ],
)
def test_where_two_groups_cannot_be_had_it_says_why(
    settings: dict[str, str], says: str, mesh: str, tmp_path: Path
) -> None:
    with Run(tmp_path, 2, "refusal", {}, **settings) as run:
        results = run.results()
    for result in results:
        assert says in result["said"]
        assert mesh in result["mesh"]
        assert result["kept"] == 0
        assert "one NCCL communicator" in result["one"]
        if SEPARATE:
            assert result["separate"] == ""
        assert "side by side" in result["said"]
    assert len({result["said"] + result["mesh"] for result in results}) == 1
    assert "run one after another" in run.texts()[0]


@needs_rig
def test_a_dead_rank_reaches_torch(tmp_path: Path) -> None:
    # By the end of its connections: MCAST_TIMEOUT is longer than the limit. Torch then ends the process.
    known = re.compile(r"\[rank\d\]:\[E.*\b(nccl|NCCL)\b.*\berror\b")
    case = {"victim": 1}
    with Run(tmp_path, 3, "death", case) as run:
        run.until(lambda: all(known.search(run.texts()[rank]) for rank in (0, 2)))
        assert run.processes[1].wait() == -signal.SIGKILL
    for rank in (0, 2):
        text = run.texts()[rank]
        assert known.search(text), text[-3000:]
        assert "rank 1 is lost: its connection closed without a farewell" in text
