"""Our page in torch's debug server, and its table of when each rank came."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from torch_mcast.arrivals import Arrival, arrivals

from .limits import LIMIT_S
from .ports import held


def entry(group: str, number: int, at_ms: int, state: str = "completed", p2p: bool = False) -> dict[str, Any]:
    return {
        "process_group": (group, "undefined"),
        "collective_seq_id": number,
        "profiling_name": "mcast:all_gather",
        "time_created_ns": at_ms * 10**6,
        "state": state,
        "is_p2p": p2p,
    }


def test_arrivals_name_who_came_last_who_is_missing_and_who_is_not_done() -> None:
    config = {"0": {"ranks": "[0, 1, 2]"}, "7": {"ranks": "[1, 2]"}}
    traces = {
        0: {"pg_config": config, "entries": [entry("0", 1, 10), entry("0", 2, 20, "scheduled")]},
        1: {
            "pg_config": config,
            "entries": [entry("0", 1, 14), entry("7", 1, 5), entry("0", 2, 19, "scheduled")],
        },
        2: {
            "pg_config": config,
            "entries": [entry("7", 1, 6), entry("0", 1, 9), entry("0", 1, 30, p2p=True)],
        },
    }
    assert arrivals(traces) == [
        Arrival("7", 1, "mcast:all_gather", 1, 2, 1.0, [], []),
        Arrival("0", 1, "mcast:all_gather", 2, 1, 5.0, [], []),
        Arrival("0", 2, "mcast:all_gather", 1, 0, 1.0, [2], [0, 1]),
    ]


SCRIPT = """
    import json, sys, urllib.request
    import torch, torch.distributed as dist
    import torch_mcast
    from tests.limits import until
    from torch.distributed.debug import start_debug_server, stop_debug_server
    dist.init_process_group("mcast")
    start_debug_server(port=int(sys.argv[1]), handlers=torch_mcast.debug.handlers())
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(5))
    store = dist.distributed_c10d._get_default_store()
    work = dist.barrier(async_op=True) if rank else None
    store.set(f"ready {rank}", "")

    def page(name):
        return urllib.request.urlopen(f"http://localhost:{sys.argv[1]}/{name}").read().decode()

    def answers():
        try:
            return page("mcast")
        except urllib.error.URLError:
            return ""

    if rank == 0:
        store.wait(["ready 1"])
        until(answers, "the server, which starts beside this process, answers")
        print(json.dumps([page("mcast"), page("mcast_trace")]), flush=True)
        work = dist.barrier(async_op=True)
        work.wait()
        stop_debug_server()
    else:
        work.wait()
    dist.destroy_process_group()
"""


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.more
@pytest.mark.skipif(not has_ipv6(), reason="torch's debug server needs IPv6, which this kernel has not")
def test_the_debug_server_has_our_page() -> None:
    with held() as where, held() as store:
        page, trace = pages(where, store)
    assert "#1 mcast:all_reduce: done; rank" in page
    assert "#2 mcast:barrier: not done on ranks [1], no sign of ranks [0]" in page
    assert page.count("&quot;fabric&quot;: &quot;shm&quot;") == 2
    assert "mcast:all_reduce" in trace


def pages(where: int, store: int) -> list[str]:
    """Return what the debug server at a port shows of two ranks, which meet at another."""
    names = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store), "WORLD_SIZE": "2", "MCAST_FABRIC": "shm"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(where)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **names, "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo", "no_proxy": "*"},
        )
        for rank in range(2)
    ]
    try:
        said, _ = ranks[0].communicate(timeout=LIMIT_S)
        assert ranks[1].wait(timeout=LIMIT_S) == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    shown: list[str] = json.loads(said)
    return shown
