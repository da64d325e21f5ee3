"""The GPU benchmark, as far as it goes without a GPU: options, logs, verdicts, a run on the CPU."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))

import card
import checks
import contenders
import gpu
import ncclog
import prove
import rows

from .cuda_ranks import RUNNER
from .limits import LIMIT_S

pytestmark = pytest.mark.more

# Lines as NCCL 2.27 and 2.30 write them.
NETWORK = "vm:10:10 [0] NCCL INFO Using network {}\n"
COLLNET = "vm:10:10 [0] NCCL INFO CollNet 00/1 : 0 [send] via COLLNET/{}/0\n"
CHOICE = "vm:10:10 [0] NCCL INFO {}: {} Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{0..1}}\n"
WARNING = (
    "\nvm:10:12 [0] a.cc:385 NCCL WARN Cannot initialize CollNet, using point-to-point network instead\n"
)


def collnet_log(network: str = "mcast", collnet: str = "mcast", gather: str = "COLLNET_DIRECT") -> list[str]:
    first = NETWORK.format(network) + COLLNET.format(collnet)
    first += CHOICE.format("AllGather", 4096, gather) + CHOICE.format("AllGather", 12, "RING")
    first += CHOICE.format("ReduceScatter", 4096, "COLLNET_DIRECT")
    return [first, NETWORK.format("mcast") + COLLNET.format(collnet)]


def judged(texts: list[str], network: str, collnet: bool) -> str:
    return "\n".join(ncclog.problems(ncclog.read(texts), network, collnet, [4096]))


def test_good_logs_are_good() -> None:
    assert judged(collnet_log(), "mcast", True) == ""
    assert judged([NETWORK.format("Socket")] * 2, "Socket", False) == ""
    log = ncclog.read([*collnet_log(), WARNING])
    assert ncclog.algorithms(log, "AllGather") == {"COLLNET_DIRECT": 1, "RING": 1}
    assert ncclog.algorithms(log, "AllGather", 12) == {"RING": 1}
    assert log.warnings == ["Cannot initialize CollNet, using point-to-point network instead"]


@pytest.mark.parametrize(
    ("texts", "network", "collnet", "says"),
    [
        ([""] * 2, "mcast", False, "should have used network mcast; the log names none"),
        ([NETWORK.format("mcast"), ""], "mcast", False, "the log names mcast (1 times)"),
        (collnet_log(network="Socket"), "mcast", True, "Socket (1 times)"),
        (collnet_log(collnet="sharp"), "mcast", True, "should have been mcast's; the log names sharp"),
        (
            collnet_log(gather="RING"),
            "mcast",
            True,
            "AllGather of 4096 bytes should have run by COLLNET_DIRECT",
        ),
        ([NETWORK.format("mcast")] * 2, "mcast", True, "ReduceScatter of 4096 bytes"),
        (collnet_log(), "mcast", False, "CollNet was off"),
    ],
)
def test_bad_logs_are_named(texts: list[str], network: str, collnet: bool, says: str) -> None:
    assert says in judged(texts, network, collnet)


def test_options() -> None:
    args = gpu.options([])
    assert (args.ranks, args.contenders) == (2, gpu.DEFAULT)
    assert args.output == gpu.RESULTS / "gpu" / "rows.ndjson"
    assert gpu.options(["--env", "A=b=c"]).env == [("A", "b=c")]
    assert gpu.options(["--devices", "0,1,2"]).ranks == 3
    for bad in (
        ["--ranks", "1"], ["--ranks", "9"], ["--bytes", "6"], ["--turns", "0"], ["--env", "A"],
        ["--ranks", "2", "--devices", "0,1,2"], ["--devices", ""], ["--contenders", "socket"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as e:
            gpu.options(bad)
        assert e.value.code == 2


@pytest.fixture(autouse=True)
def no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "RUNNER", "")


@pytest.mark.parametrize("runner", ["", "rig.py"], ids=["on the CPU", "emulated"])
def test_times_that_mean_nothing_are_no_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runner: str
) -> None:
    monkeypatch.setattr(gpu, "RUNNER", runner)
    words = [] if runner else ["--cpu"]
    args = gpu.options(words)
    assert (args.output, args.contenders, args.emulated) == (None, gpu.WITHOUT_GPU, bool(runner))
    assert gpu.options([*words, "--output", str(tmp_path / "x")]).output is not None
    with pytest.raises(SystemExit):
        gpu.options([*words, "--output", str(gpu.RESULTS / "gpu" / ".." / "gpu" / "rows.ndjson")])


def test_the_environment_of_contenders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    args = gpu.options(["--env", "NCCL_PROTO=Simple", "--devices", "4,7", "--ranks", "4"])
    names = ("nccl-socket", "nccl-collnet", "mcast", "mcast-udp")
    socket, collnet, mcast, udp = (contenders.environment(c, 1, args, tmp_path) for c in names)
    assert "NCCL_ALGO" not in socket
    assert socket["NCCL_HOSTID"] == collnet["NCCL_HOSTID"] == "r1"
    assert (socket["NCCL_NET"], socket.get("NCCL_COLLNET_ENABLE")) == ("Socket", None)
    assert (collnet["NCCL_NET"], collnet["NCCL_NET_PLUGIN"], collnet["NCCL_COLLNET_ENABLE"]) == (
        "mcast", "mcast", "1",
    )  # fmt: skip
    assert socket["NCCL_PROTO"] == "Simple"
    assert collnet["LD_LIBRARY_PATH"].split(":")[0] == str(contenders.LIBRARY.parent)
    assert "NCCL_NET" not in mcast
    assert (mcast.get("MCAST_FABRIC"), udp["MCAST_FABRIC"]) == (None, "udp")
    devices = [contenders.environment("gloo", r, args, tmp_path)["CUDA_VISIBLE_DEVICES"] for r in range(4)]
    assert devices == ["4", "7", "4", "7"]


def test_what_ranks_measured_becomes_one_row() -> None:
    def of(times: list[float], out: float, slowed: float) -> dict[str, Any]:
        return {
            "record": "time", "operation": "allgather", "bytes_per_rank": 4, "rounds": 3, "times_s": times,
            "cpu_s": 0.5, "out_bytes": out, "in_bytes": 2 * out, "slowed": slowed,
        }  # fmt: skip

    link = {"record": "pcie", "both_out_bytes_per_s": 1e3, "both_in_bytes_per_s": 4e3}
    slow = {**link, "both_out_bytes_per_s": 500.0}
    # Ranks 0 and 2 share one device, 1 and 3 the other, which has a slower link.
    ranks = [
        [link, of([1, 2, 3], 100, 0.1)],
        [slow, of([3, 1, 1], 90, 0.4)],
        [{"record": "pcie"}, of([1, 1, 1], 100, 0.2)],
        [{"record": "pcie"}, of([1, 1, 4], 90, 0.3)],
    ]
    pcie, row = rows.merged(ranks, 2)
    assert [d["both_out_bytes_per_s"] for d in pcie["links"]] == [1e3, 500.0]
    assert (row["p50_us"], row["min_us"]) == (3e6, 2e6), "of each round the slowest rank"
    assert (row["cpu_s"], row["slowed"], row["pcie_out_bytes"]) == (2.0, 0.4, 200)
    assert row["pcie_out_share"] == pytest.approx(180 / 3 / 500)
    assert row["pcie_in_share"] == pytest.approx(400 / 3 / 4e3)
    assert "times_s" not in row
    with pytest.raises(rows.Failed, match="different things"):
        rows.merged([ranks[0], ranks[1][:1]], 2)


def test_the_clock_of_the_cpu() -> None:
    clock = card.Clock(torch.device("cpu"))
    clock.start()
    first = clock.stop()
    assert 0 <= first <= clock.stop()


def test_losses_that_differ_are_an_error() -> None:
    def runs(*losses: list[float]) -> list[dict[str, Any]]:
        return [{"record": "time", "losses": one} for one in losses]

    assert rows.difference(runs([5.0, 4.0], [5.0, 4.0])) == 0
    assert 0 < rows.difference(runs([5.0, 4.0], [5.0, 4.0001])) < 1e-3
    for bad in ([5.0, 4.1], [5.0, float("nan")], [5.0]):
        with pytest.raises(rows.Failed):
            rows.difference(runs([5.0, 4.0], bad))


def test_a_wrong_byte_is_found() -> None:
    good = torch.arange(10, dtype=torch.bfloat16)
    checks.compare("x", good, good.clone())
    bad = good.clone()
    bad[7] = 0
    with pytest.raises(checks.Wrong, match="x: byte 14 of 20"):
        checks.compare("x", bad, good)


@pytest.mark.parametrize("dtype", checks.EXACT, ids=str)
@pytest.mark.parametrize("ranks", [2, 8])
def test_sums_are_exact_in_every_type(dtype: torch.dtype, ranks: int) -> None:
    parts = torch.stack([checks.whole(dtype, 500, ranks, seed=r) for r in range(ranks)])
    total = parts.sum(0).clamp(max=1) if dtype == torch.bool else parts.sum(0)
    assert torch.equal(total.to(dtype).to(torch.int64), total)
    assert len(total.unique()) > 1


def test_without_a_gpu_one_line_and_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    library = tmp_path / "lib.so"
    assert "make build" in (contenders.missing(["mcast"], False, False, library) or "")
    assert "a GPU" in (contenders.missing(["gloo"], False, False, library) or "")
    library.touch()
    assert "driver for CUDA 11.7" in (contenders.missing(["mcast"], False, False, library) or "")
    assert contenders.missing(["mcast", "gloo"], True, False, library) is None
    assert "nccl-net need one" in (contenders.missing(["mcast", "nccl-net"], False, True, library) or "")
    done = subprocess.run(
        [gpu.HERE / "run.sh"],
        env={"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == gpu.MISSING
    assert done.stderr.startswith("missing: ")
    assert done.stderr.count("\n") == 1


KINDS = ["check", "time", "time", "time", "time"]
SHORT = ["--turns", "1", "--rounds", "1", "--steps", "2", "--bytes", "4096"]


def test_a_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.ndjson"
    assert gpu.main(["--cpu", *SHORT, "--output", str(out)]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["record"] for r in found] == [*KINDS, *KINDS, "losses"]
    assert len(found[0]["checked"]["reducescatter"]) >= 9
    assert [r["operation"] for r in found[1:5]] == ["allgather", "reduce_scatter", "both", "fsdp_step"]
    assert {r["device"] for r in found} == {"cpu"}
    assert "fsdp_step" in capsys.readouterr().out


@pytest.mark.skipif(
    not RUNNER,
    reason="MCAST_TORCH_CUDA is not set: it names a program that has CUDA tensors without a GPU "
    "(CONTRIBUTING.md)",
)
def test_a_run_on_an_emulated_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "RUNNER", RUNNER)
    out = tmp_path / "gpu.ndjson"
    assert gpu.main([*SHORT, "--contenders", "mcast", "--output", str(out), "--trace", str(tmp_path)]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["record"] for r in found] == ["pcie", *KINDS, "losses"]
    assert {r["device"] for r in found} == {"emulated"}
    gather, reduce, both, step = found[2:6]
    # Two ranks on one device: a shard out and one in for each, and the mirror image.
    assert (gather["pcie_out_bytes"], gather["pcie_in_bytes"]) == (2 * 4096, 2 * 4096)
    assert (reduce["pcie_out_bytes"], reduce["pcie_in_bytes"]) == (4 * 4096, 2 * 4096)
    assert (both["pcie_out_bytes"], both["pcie_in_bytes"]) == (6 * 4096, 4 * 4096)
    assert step["pcie_out_bytes"] > 0
    assert all(r["pcie_out_share"] > 0 and r["cpu_s"] > 0 for r in found[2:6])
    assert all(r["slowed"] > -1 for r in found[2:5])
    assert json.loads((tmp_path / "mcast.json").read_text())["traceEvents"]


def test_proof_without_a_gpu(tmp_path: Path) -> None:
    """Each step that needs a GPU says so; the others run, and their results make a table."""
    proof = contenders.ROOT / "benchmarks" / "gpu"
    env = {k: v for k, v in os.environ.items() if k != "MCAST_TORCH_CUDA"}
    env |= {"OUT": str(tmp_path), "PYTHON": sys.executable, "LIMIT_S": "100000", "CUDA_VISIBLE_DEVICES": ""}
    steps = ["machine", "nccl-check", "nccl-net-2", "streams", "graphs", "mcast-links"]
    done = subprocess.run([proof / "prove.sh", *steps], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in (tmp_path / "prove.ndjson").read_text().splitlines()]
    said = {row["step"]: row["status"] for row in found if row["record"] == "step"}
    assert list(said) == steps
    assert (said["machine"], said["nccl-check"]) == ("passed", "passed")
    for step in steps[2:]:
        assert said[step].startswith("left out for want of a GPU"), said
    assert found[0]["record"] == "machine"
    assert found[0]["torch"] == torch.__version__
    made = subprocess.run(
        [sys.executable, proof / "prove.py", tmp_path], capture_output=True, text=True, check=True
    )
    assert "| nccl-net-2 | left out for want of a GPU" in made.stdout


@pytest.mark.parametrize("end", [SystemExit(143), rows.Failed("rank 1 is late")])
def test_a_run_that_is_cut_keeps_what_all_ranks_had_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: BaseException
) -> None:
    """Whole lines that every rank has written are rows."""

    def cut(_name: str, _args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
        device, check = '{"record": "device", "device": "none"}\n', '{"record": "check", "checked": {}}\n'
        (folder / "0.out").write_text(device + check + '{"record": "training", "losses": [1]}\n')
        (folder / "1.out").write_text(device + check + '{"record": "train')
        raise end

    monkeypatch.setattr(gpu, "launch", cut)
    output = tmp_path / "rows.ndjson"
    args = gpu.options(["--cpu", "--ranks", "2", "--contenders", "gloo", "--output", str(output)])
    with pytest.raises(type(end)):
        gpu.measured(args)
    kept = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["record"], row["contender"], row["device"]) for row in kept] == [("check", "gloo", "none")]


def test_proof_that_is_cut_keeps_what_was_done(tmp_path: Path) -> None:
    env = os.environ | {"OUT": str(tmp_path), "PYTHON": sys.executable, "LIMIT_S": "5"}
    proof = contenders.ROOT / "benchmarks" / "gpu" / "prove.sh"
    subprocess.run([proof, "machine", "streams"], env=env, capture_output=True, check=False)
    found = [json.loads(line) for line in (tmp_path / "prove.ndjson").read_text().splitlines()]
    assert [row["status"] for row in found] == ["not begun: the 5 s are over"] * 2


def step(status: str) -> dict[str, Any]:
    return {"record": "step", "step": "streams", "status": status, "seconds": 1}


def test_status_of_gpus() -> None:
    machine = {
        "record": "machine",
        "gpus": ["NVIDIA H100"],
        "torch": "2.11.0",
        "nccl": "2.28.9",
        "date": "2026-11-27T10:00:00Z",
    }
    steps = [machine, step("passed"), step("cut after 40 s"), step("left out for want of a testbed")]
    said = prove.status(steps)
    assert said == "on NVIDIA H100 with torch 2.11.0 and NCCL 2.28.9 **1 of 2 steps passed** on 2026-11-27"
    assert prove.status([machine | {"gpus": []}, step("passed")]) == "it has **not yet run on a GPU**"


def test_readme_says_what_the_rows_say() -> None:
    readme = (contenders.ROOT / "README.md").read_text()
    assert prove.status(prove.rows(prove.RESULTS / "prove.ndjson")) in readme
