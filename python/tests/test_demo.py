"""The training example's data and report; the training itself is `make demo`."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import data
import demo
import hosts
import model
import network
import node
import report

from .limits import LIMIT_S

pytestmark = pytest.mark.more


def test_data_is_real_text_and_the_same_every_time() -> None:
    train, held_out = data.load()
    again, _ = data.load()
    assert torch.equal(train, again)
    assert len(train) > 5 * len(held_out) > 0
    assert b"def " in bytes(train[:20_000].tolist())
    tokens, following = data.batch(train, 3, 16, torch.Generator().manual_seed(4))
    assert tokens.shape == following.shape == (3, 16)
    assert torch.equal(tokens[:, 1:], following[:, :-1])


def written(
    path: Path, backend: str, fabric: str, ran_on: str = "", nudge: float = 0.0, switch: str = ""
) -> report.Run:
    """Write a run's record. switch: not asked for if empty, else how the run reduced in the end."""
    run: dict[str, Any] = {
        "record": "run", "backend": backend, "fabric": fabric, "ranks": 4, "loss_injected": 0.0,
        "switch": bool(switch),
        "machine": "m", "torch": "t", "commit": "c",
    }  # fmt: skip
    counters = {
        "gather_bytes": 1000, "gather_sent_bytes": 1010,
        "switch_ops": 4 if switch == "switch" else 0, "direct_ops": 0 if switch == "switch" else 4,
        "reduce_bytes": 1000, "reduce_sent_bytes": 4040, "reduce_received_bytes": 1020,
    }  # fmt: skip
    steps = [
        {
            "record": "step", "step": i, "loss": 5 - 0.1 * i + (nudge if i == 7 else 0), "step_s": 0.4,
            "compute_s": 0.25, "exposed_allgather_s": 0.1, "exposed_reduce_scatter_s": 0.05,
            "counters": counters if backend == "mcast" else {},
        }
        for i in range(12)
    ]  # fmt: skip
    end = {
        "record": "end",
        "weights_sha256": "w",
        "validation_loss": 4.0,
        "fabric": {
            "fabric": ran_on or fabric,
            "reduce_scatter": switch or "direct",
            "reduce_scatter_reason": "why",
        },
    }
    path.write_text("".join(json.dumps(r) + "\n" for r in [run, *steps, end]))
    return report.read(path)


def test_runs_that_agree_and_runs_that_do_not(tmp_path: Path) -> None:
    udp = written(tmp_path / "udp.ndjson", "mcast", "udp")
    shm = written(tmp_path / "shm.ndjson", "mcast", "shm")
    gloo = written(tmp_path / "gloo.ndjson", "gloo", "tcp", nudge=1e-6)
    assert report.disagreement([udp, shm, gloo]) == []
    off = written(tmp_path / "off.ndjson", "mcast", "shm", nudge=1e-12)
    assert report.disagreement([udp, off]) == ["mcast udp and mcast shm: losses differ from step 7 on"]
    far = written(tmp_path / "far.ndjson", "gloo", "tcp", nudge=0.5)
    assert "0.5 apart at step 7, allowed is 0.01" in report.disagreement([udp, far])[0]
    fallen = written(tmp_path / "fallen.ndjson", "mcast", "udp", ran_on="shm")
    assert "asked for fabric udp, ran on mcast shm" in report.disagreement([fallen])[0]
    through = written(tmp_path / "switch.ndjson", "mcast", "udp", switch="switch")
    assert through.name == "mcast udp, switch"
    assert report.disagreement([udp, through, shm, gloo]) == []
    lost = written(tmp_path / "lost.ndjson", "mcast", "udp", switch="direct")
    assert report.disagreement([udp, lost]) == ["mcast udp: asked for the switch, not used: why"]
    broken = written(tmp_path / "nan.ndjson", "gloo", "tcp", nudge=float("nan"))
    assert len(report.disagreement([udp, broken])) == 1


def test_report_draws_table_and_plot_from_the_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "udp.ndjson", "mcast", "udp")
    written(tmp_path / "switch.ndjson", "mcast", "udp", switch="switch")
    written(tmp_path / "shm.ndjson", "mcast", "shm")
    written(tmp_path / "gloo.ndjson", "gloo", "tcp")
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path)])
    assert report.main() == 0
    out = capsys.readouterr().out
    assert "1.0100" in out  # sent / N
    assert "400.0" in out  # the step, ms
    assert out.index("mcast udp, switch") < out.index("mcast shm")
    assert "1.0200" in out  # received, to n
    assert "100%" in out  # through the switch
    style, _, drawn = (tmp_path / "steps.svg").read_text().partition("</style>")
    assert "prefers-color-scheme: dark" in style
    assert "var(--ink)" in drawn
    assert report.INK not in drawn


def test_node_is_there_for_a_run_and_gone_after_it() -> None:
    with node.node() as address:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=LIMIT_S).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=LIMIT_S)


def test_node_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mcast"
    monkeypatch.setattr(node, "MCAST", program)
    with pytest.raises(node.NodeFailed, match="run `make build` first"), node.node():
        pass
    program.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(node.NodeFailed, match=r"exit code 3(.|\n)*no memory"), node.node():
        pass


def test_node_that_fails_in_a_run_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mcast"
    monkeypatch.setattr(node, "MCAST", program)
    program.write_text(
        "#!/bin/sh\ntrap 'exit 4' TERM\necho listening on here:1\nwhile :; do sleep 0.01; done\n"
    )
    program.chmod(0o755)
    with pytest.raises(node.NodeFailed, match="exit code 4"), node.node() as address:
        assert address == "here:1"


def test_half_a_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "udp.ndjson"
    path.write_text('{"record": "run"}\n')
    with pytest.raises(ValueError, match="not the record of a finished run"):
        report.read(path)


def on_a_testbed(path: Path, name: str, schedule: str, link: float, step_s: float) -> report.Run:
    """Write a run on hosts with links that carried so many bytes a step."""
    run = written(path / f"{name}.ndjson", "mcast" if name == "mcast" else "gloo", "udp")
    run.about |= {"schedule": schedule, "block_ms": 40, "shape": {"blocks": 8}}
    for step in run.steps:
        step |= {"step_s": step_s, "link": {"received": link, "sent": link / 2}}
    waits = [{"kind": "allgather", "start_s": 0.1, "end_s": 0.2}]
    trace = {"record": "trace", "step_s": step_s, "waits": waits}
    testbed = {"record": "network", "label": name, "hosts": "4", "rate": "200mbit", "switch_port_bytes": 1e9}
    records = [run.about, *run.steps, run.end, trace, testbed]
    (path / f"{name}.ndjson").write_text("".join(json.dumps(r) + "\n" for r in records))
    return report.read(path / f"{name}.ndjson")


def test_what_links_allow(tmp_path: Path) -> None:
    ours = on_a_testbed(tmp_path, "mcast", "overlap", 40e6, 2.0)  # 1.6 s of the link beside 0.96 s of compute
    gloo = on_a_testbed(tmp_path, "gloo", "serial", 75e6, 4.5)  # 3 s, and then the compute
    assert network.link_s(ours) == pytest.approx(1.6)
    assert network.allowed_s(ours) == pytest.approx(1.6)
    assert network.allowed_s(gloo) == pytest.approx(3.96)
    assert network.speedup(ours, gloo) == pytest.approx(2.25)
    on_a_testbed(tmp_path, "gloo-overlap", "overlap", 75e6, 3.5)
    runs = [report.read(tmp_path / f"{choice.name}.ndjson") for choice in hosts.RUNS]
    said = network.notes(runs)[0]
    assert "S = 2.25: a step takes 2000 ms, and 4500 ms with gloo" in said
    assert "allow 2.47" in said
    network.plot(runs, tmp_path / "step.svg")
    style, _, drawn = (tmp_path / "step.svg").read_text().partition("</style>")
    assert "prefers-color-scheme: dark" in style
    assert "var(--ink)" in drawn
    assert report.INK not in drawn


def test_where_there_is_no_testbed_the_demo_says_so_and_runs_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "mcast"
    program.write_text("#!/bin/sh\necho user.max_user_namespaces=0 >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(hosts, "LAB", program)
    monkeypatch.setattr(demo, "on_loopback", lambda args, console: 42)
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    assert demo.main() == 42
    said = " ".join(capsys.readouterr().out.split())
    assert "user.max_user_namespaces=0" in said
    assert "nothing crosses a link" in said


def test_an_emulated_accelerator_takes_its_time_and_changes_nothing() -> None:
    shape = model.Shape(context=8, width=16, heads=2, blocks=2)
    tokens = torch.arange(8).reshape(1, 8)
    gradients = []
    for block_s in (0.0, 0.02):
        torch.manual_seed(1)
        gpt = model.GPT(shape, block_s)
        start = time.perf_counter()
        gpt(tokens).sum().backward()
        assert time.perf_counter() - start >= shape.blocks * 3 * block_s
        gradients.append([p.grad for p in gpt.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
