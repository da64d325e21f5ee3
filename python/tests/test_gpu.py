"""The GPU benchmark, as far as it goes without a GPU: options, logs, verdicts, a run on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))

import gpu
import ncclog
import rank

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
    assert (args.ranks, args.contenders) == (2, ["socket", "net", "collnet"])
    assert gpu.options(["--env", "A=b=c"]).env == [("A", "b=c")]
    for bad in (["--ranks", "1"], ["--ranks", "9"], ["--bytes", "6"], ["--turns", "0"], ["--env", "A"]):
        with pytest.raises(SystemExit) as e:
            gpu.options(bad)
        assert e.value.code == 2


def test_the_environment_of_contenders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    args = gpu.options(["--env", "NCCL_PROTO=Simple"])
    socket, collnet = (gpu.environment(c, 1, args, tmp_path) for c in ("socket", "collnet"))
    assert "NCCL_ALGO" not in socket
    assert socket["NCCL_HOSTID"] == collnet["NCCL_HOSTID"] == "r1"
    assert (socket["NCCL_NET"], socket.get("NCCL_COLLNET_ENABLE")) == ("Socket", None)
    assert (collnet["NCCL_NET"], collnet["NCCL_NET_PLUGIN"], collnet["NCCL_COLLNET_ENABLE"]) == (
        "mcast", "mcast", "1",
    )  # fmt: skip
    assert socket["NCCL_PROTO"] == "Simple"
    assert collnet["LD_LIBRARY_PATH"].split(":")[0] == str(gpu.LIBRARY.parent)


def test_losses_that_differ_are_an_error() -> None:
    def runs(*losses: list[float]) -> list[dict[str, Any]]:
        return [{"record": "train", "losses": one} for one in losses]

    assert gpu.difference(runs([5.0, 4.0], [5.0, 4.0])) == 0
    assert 0 < gpu.difference(runs([5.0, 4.0], [5.0, 4.0001])) < 1e-3
    for bad in ([5.0, 4.1], [5.0, float("nan")], [5.0]):
        with pytest.raises(gpu.Failed):
            gpu.difference(runs([5.0, 4.0], bad))


def test_a_wrong_byte_is_found() -> None:
    good = torch.arange(10, dtype=torch.bfloat16)
    rank.compare("x", good, good.clone())
    bad = good.clone()
    bad[7] = 0
    with pytest.raises(rank.Wrong, match="x: byte 14 of 20"):
        rank.compare("x", bad, good)


@pytest.mark.parametrize("dtype", rank.EXACT, ids=str)
@pytest.mark.parametrize("ranks", [2, 8])
def test_sums_are_exact_in_every_type(dtype: torch.dtype, ranks: int) -> None:
    parts = torch.stack([rank.whole(dtype, 500, ranks, seed=r) for r in range(ranks)])
    total = parts.sum(0).clamp(max=1) if dtype == torch.bool else parts.sum(0)
    assert torch.equal(total.to(dtype).to(torch.int64), total)
    assert len(total.unique()) > 1


def test_without_a_gpu_one_line_and_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    library = tmp_path / "lib.so"
    assert "make build" in (gpu.missing(False, library) or "")
    library.touch()
    assert "a GPU" in (gpu.missing(False, library) or "")
    done = subprocess.run(
        [gpu.HERE / "run.sh"],
        env={"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == gpu.MISSING
    assert done.stderr.startswith("missing: ")
    assert done.stderr.count("\n") == 1


def test_a_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.ndjson"
    words = ["--cpu", "--turns", "1", "--rounds", "1", "--steps", "2", "--bytes", "4096"]
    assert gpu.main([*words, "--contenders", "socket", "net", "--output", str(out)]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["record"] for r in records] == ["check", "time", "time", "train"] * 2 + ["losses"]
    assert len(records[0]["checked"]["reducescatter"]) >= 9
    assert "FSDP2 step" in capsys.readouterr().out
