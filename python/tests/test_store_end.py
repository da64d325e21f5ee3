"""init_process_group may follow destroy_process_group at the same port, where rank 0 serves the store."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .limits import LIMIT_S
from .ports import held
from .ranks import run_ranks

RANKS = 3
PROGRAM = """
import torch
import torch.distributed as dist

import torch_mcast
from torch_mcast import store_end

store_end._MOST_S = {limit}  # a busy machine may keep rank 0 from running for long
for turn in range(8):
    dist.init_process_group("mcast")
    part = dist.new_group([0, 1])  # left with the last
    total = torch.ones(3)
    dist.all_reduce(total)
    del part  # it would keep the store, over any backend
    assert total.tolist() == [{ranks}] * 3
    dist.destroy_process_group()
"""


def test_init_again_at_the_same_port(fabric: str) -> None:
    env = os.environ | {
        "MCAST_FABRIC": fabric,
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(RANKS),
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-c", PROGRAM.format(limit=LIMIT_S, ranks=RANKS)]
    with held() as port:
        env["MASTER_PORT"] = str(port)
        codes, said = run_ranks(command, env, RANKS)
    assert codes == [0] * RANKS, "\n".join(said)
