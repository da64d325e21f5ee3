"""The comparison under NCCL, as far as it goes without NCCL: commands, logs, checks and rows."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "nccl"))

import compare
import cpu
import places

pytestmark = pytest.mark.more

RIG = """# NCCL 23007, 4 ranks, two communicators up in 0.44 s
     1048576      100.00      200.00      250.00      200.00      210.00                0.83        0
     4194304      400.50      800.00     1000.00      800.00      900.00                0.83        0
2 passed, 0 failed
"""
HEAD = "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw #wrong"
TESTS = f"""{HEAD}
    4194304      262144  float  none  -1   123.40   34.00   25.50      0   120.10   34.90   26.20      0
   16777216     1048576  float  none  -1   456.00   36.80   27.60      0   450.00   37.30   28.00      0
# Avg bus bandwidth    : 26.8
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a testbed and a rig that are scripts; "calls" has what was called."""
    calls = tmp_path / "calls"
    program(
        tmp_path / "bin/mcast-lab",
        f"""echo "$*" >>{calls}
case $2 in
status) echo "no testbed is up" ;;
counters)
    for nic in "host NIC" "node NIC"; do
        echo '{{"kind": "'"$nic"'", "sent_bytes": '$(cat {tmp_path}/sent)', "received_bytes": 7}}'
    done ;;
run) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
esac
""",
    )
    program(
        tmp_path / "rig/rigdriver",
        f"""algo=RING
[ "$NCCL_COLLNET_ENABLE" != 1 ] || algo=COLLNET_DIRECT
cat >"$(echo "$NCCL_DEBUG_FILE" | sed s/%p/$$/)" <<EOF
vm:1:1 [0] NCCL INFO Using network ${{FAKE_NETWORK:-$NCCL_NET}}
vm:1:1 [0] NCCL INFO AllGather: 1048576 Bytes -> Algo $algo proto SIMPLE channel{{Lo..Hi}}={{0..1}}
EOF
case "$*" in
*" -c ag,rs "*)
    cat <<EOF
     4194304     all_gather   f32   out     100000.0     1.000     1.000        0
    16777216     all_gather   f32   out     400500.0     1.000     1.000        0
     4194304 reduce_scatter   f32   out     200000.0     1.000     1.000        0
    16777216 reduce_scatter   f32   out     800000.0     1.000     1.000        0
EOF
    ;;
*" -c "*)
    while [ "$1" != -i ]; do shift; done
    echo $(($(cat {tmp_path}/sent) + $2 * 9000000)) >{tmp_path}/sent
    echo "     8388608     all_reduce   f32   out       2500.0     1.000     1.000        0" ;;
*) cat <<EOF
{RIG}EOF
esac
""",
    )
    (tmp_path / "sent").write_text("0")
    (tmp_path / "rig/libnccl.so.2").touch()
    (tmp_path / "lib.so").touch()
    monkeypatch.setattr(places, "ROOT", tmp_path)
    monkeypatch.setattr(places, "LAB", tmp_path / "bin/mcast-lab")
    monkeypatch.setattr(places, "LIBRARY", tmp_path / "lib.so")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("NCCL_RIG", "NCCL_TESTS", "MCAST_SWITCH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_rows_and_table(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = site / "new/rows.ndjson"
    words = f"--rig {site}/rig --rounds 2 --bytes 1M 4M --ways socket switch --hosts 4 --output {output}"
    assert compare.main(words.split()) == 0, capsys.readouterr()
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == 2 * 2 * 3
    row = next(r for r in rows if (r["way"], r["collective"], r["bytes"]) == ("switch", "allgather", 1 << 20))
    assert row["rounds_us"] == [100000.0, 100000.0]
    assert (row["time_us"], row["to_socket"], row["algorithms"]) == (100000.0, 1.0, ["COLLNET_DIRECT"])
    assert row["command"].endswith("-f 4 -i 3 -w 1 (through mcast switch)")
    assert {"date", "commit", "machine", "load", "hosts", "rate"} <= set(row)
    assert str(site) not in output.read_text(), "the rows name no place of this machine"
    calls = (site / "calls").read_text().splitlines()
    runs = [line.split(" -- ")[0] for line in calls if line.startswith("testbed run")]
    assert ["--switch" in line for line in runs] == [False, False, True, True] * 2, "by turns"
    assert calls[1].endswith("--hosts 4 --rate 500mbit")
    assert calls[-1].startswith("testbed down")
    text = capsys.readouterr().out
    assert "     1048576 switch " in text
    assert "COLLNET_DIRECT" in text


def test_bytes_at_links(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = site / "rows.ndjson"
    words = f"--rig {site}/rig --rounds 1 --bytes 1M 4M --ways socket plugin --hosts 2 --per-host 2 --count"
    assert compare.main([*words.split(), "--output", str(output)]) == 0, capsys.readouterr()
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    kept = {(r["way"], r["collective"]): r for r in rows if r["bytes"] == 4 << 20}
    assert len(kept) == len(rows) / 2 == 2 * 4
    row = kept["plugin", "allgather"]
    assert (row["per_host"], row["time_us"], row["rounds_us"]) == (2, 400500.0, [400500.0])
    assert (row["must_bytes"], row["sent_bytes"], row["received_bytes"]) == (8 << 20, 9000000, 0)
    assert "must_bytes" not in kept["plugin", "both"]
    row = kept["plugin", "allreduce"]
    assert (row["time_us"], row["iters"], row["sent_bytes"]) == (2500.0, 3, 9000000)
    said = capsys.readouterr().out
    assert "2 hosts of 2 ranks" in said
    assert "1.073   0.000" in said
    calls = (site / "calls").read_text()
    assert "--per-host 2" in calls
    assert "-g 2" in calls


def test_what_goes_wrong_ends_the_testbed(site: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    output = site / "rows.ndjson"
    words = f"--rig {site}/rig --rounds 1 --bytes 1M 4M --ways plugin --output {output}".split()
    monkeypatch.setenv("FAKE_NETWORK", "Socket")
    assert compare.main(words) == 1
    assert "plugin should have used network mcast; NCCL's log names Socket" in capsys.readouterr().err
    assert (site / "calls").read_text().splitlines()[-1].startswith("testbed down")
    assert not output.exists()

    program(site / "rig/rigdriver", "echo out of luck >&2; exit 3")
    assert compare.main(words) == 1
    assert "out of luck" in capsys.readouterr().err


def test_what_is_missing(site: Path, monkeypatch: pytest.MonkeyPatch,
                         capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    program(site / "gpu/nvidia-smi", "exit 9")
    monkeypatch.setenv("PATH", f"{site}/gpu:{os.environ['PATH']}")

    def lack(*words: str) -> str:
        assert compare.main(list(words)) == compare.MISSING
        return capsys.readouterr().err

    assert lack() == (
        "missing: testbed (the rig: NCCL_RIG=DIR or --rig DIR, a folder with rigdriver and its libnccl.so.2)"
        "; gpus (a GPU: nvidia-smi shows none)\n"
    )
    assert "rigdriver in " in lack("--on", "testbed", "--rig", str(site))
    program(site / "bin/mcast-lab", "echo 'testbed other: 4 hosts, 3 processes'")
    assert "a quiet machine: testbed other: 4 hosts" in lack("--on", "testbed", "--rig", f"{site}/rig")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in lack("--on", "testbed", "--rig", f"{site}/rig")

    program(site / "gpu/nvidia-smi", "")
    assert "all_gather_perf of nccl-tests" in lack("--on", "gpus")
    for name in ("all_gather_perf", "reduce_scatter_perf"):
        program(site / "gpu" / name, "")
    assert "--launcher" in lack("--on", "gpus")


def test_gpus(site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program(site / "gpu/nvidia-smi", "")
    for name in ("all_gather_perf", "reduce_scatter_perf"):
        program(site / "gpu" / name, f'echo "vm NCCL INFO Using network $NCCL_NET"\ncat <<EOF\n{TESTS}EOF\n')
    monkeypatch.setenv("PATH", f"{site}/gpu:{os.environ['PATH']}")
    output = site / "rows.ndjson"
    words = ["--on", "gpus", "--launcher", "env X=1", "--ranks", "4", "--bytes", "1M", "4M", "--rounds", "1"]
    assert compare.main([*words, "--ways", "socket", "switch", "--output", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(r["way"], r["collective"], r["bytes"], r["time_us"]) for r in rows] == [
        ("socket", "allgather", 1 << 20, 123.4), ("socket", "allgather", 4 << 20, 456.0),
        ("socket", "reducescatter", 1 << 20, 123.4), ("socket", "reducescatter", 4 << 20, 456.0),
    ]  # fmt: skip
    said = capsys.readouterr()
    assert "MCAST_SWITCH is not set" in said.err
    assert "both ms" not in said.out


def test_wrong_results_are_no_results() -> None:
    with pytest.raises(places.Failed, match="7 bytes are wrong"):
        places.read_both(RIG.replace("0.83        0", "0.83        7"))
    with pytest.raises(places.Failed, match="no line of results"):
        places.read_both("0 passed, 0 failed")
    with pytest.raises(places.Failed, match="3 elements are wrong"):
        places.read_tests(TESTS.replace("25.50      0", "25.50      3"))
    with pytest.raises(places.Failed, match="no line of results"):
        places.read_tests("# nothing")


def test_stretches() -> None:
    assert places.stretches([4, 1, 16]) == [(1, 16, 4.0)]
    assert places.stretches([8]) == [(8, 8, 2.0)]
    assert places.stretches([1, 2, 5]) == [(1, 1, 2.0), (2, 2, 2.0), (5, 5, 2.0)]


def test_wrong_options() -> None:
    for words in ("--hosts 1", "--rounds 0", "--bytes 6", "--ways x", "--launcher mpirun"):
        with pytest.raises(SystemExit) as e:
            compare.options(words.split())
        assert e.value.code == 2


def test_parts_of_the_cpu() -> None:
    kernel, nccl = "[kernel.kallsyms]", "/rig/libnccl.so.2"
    for process, frames, what in [
        ("rigdriver", [("net_rx_action", kernel), ("handle_softirqs", kernel), ("memcpy", "libc")], "network stack"),
        ("mcast", [("net_rx_action", kernel), ("handle_softirqs", kernel)], "network stack"),
        ("mcast", [("__x64_sys_recvmmsg", kernel)], "switch"),
        ("rigdriver", [("skb_copy", kernel), ("__sys_sendmsg", kernel)], "system calls on sockets"),
        ("rigdriver", [("schedule", kernel), ("__x64_sys_sched_yield", kernel)], cpu.WAITING),
        ("rigdriver", [("ncclProxyProgress", nccl)], cpu.WAITING),
        ("rigdriver", [("Prims::op", nccl)], "copies and sums"),
        ("rigdriver", [("engine.Work", "/lib/libnccl-net-mcast.so")], "plugin"),
        ("rigdriver", [("__memset", "libc.so.6"), ("child", "/rig/rigdriver")], cpu.CHECKS),
        ("rigdriver", [("asm_exc_page_fault", kernel), ("child", "/rig/rigdriver")], cpu.FAULTS),
    ]:
        assert cpu.part(process, frames) == what, frames
