"""torch's own tests of FSDP2 on CPUs: `python -m tests.torch_fsdp_suite HOW FILE [NAME ...]`.

HOW is "gloo", "mcast", or "enabled": over "mcast", with enable() after each fully_shard. FILE is one of
test/distributed/_composable/fsdp of torch's source, which torch's wheel does not have. Most tests are written
for GPUs: what keeps them from a CPU is taken away here, and the run over gloo shows which can pass there.
Each rank is a process, also where torch's test takes threads over a group of its own.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing as mp
import os
import sys
import unittest
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

RANKS = 4  # at most: torch's tests take as many as there are GPUs, up to 8
MODULE = "tests.torch_fsdp_suite"  # by which the ranks import this

if __name__ == "__main__":
    os.environ.update(
        CUDA_VISIBLE_DEVICES="",
        GLOO_SOCKET_IFNAME="lo",
        MCAST_FABRIC="shm",
        OMP_NUM_THREADS="1",
        PYTORCH_PRINT_REPRO_ON_FAILURE="0",
        TORCH_FSDP_HOW=sys.argv[1],
        TORCH_FSDP_FILE=sys.argv[2],
    )

# torch's tests reset dynamo and set inductor on each rank, which would import them there.
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch._inductor.config  # noqa: E402
import torch.distributed.fsdp as fsdp  # noqa: E402
from torch import nn  # noqa: E402
from torch.testing._internal import common_distributed, common_fsdp  # noqa: E402

from torch_mcast.fsdp import enable  # noqa: E402
from torch_mcast.param_groups import param_groups  # noqa: E402

from .limits import LIMIT_S  # noqa: E402
from .torch_outcomes import Outcomes  # noqa: E402

common: Any = common_fsdp
distributed: Any = common_distributed


class Rank(ForkServerProcess):
    """A process of one rank: it starts fast, since torch is imported."""


class Processes(common_fsdp.FSDPTest):
    """A test that torch runs on threads, here on processes."""

    def run_test(self, test_name: str, parent_pipe: Any) -> None:
        """Run the test on this rank, after the set-up that each thread needs."""
        self.perThreadSetUp()
        super().run_test(test_name, parent_pipe)

    def perThreadSetUp(self) -> None:
        """Do nothing, unless the test has something to do."""


def _fully_shard_enabled(plain: Any) -> Any:
    @functools.wraps(plain)
    def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
        sharded = plain(module, *args, **kwargs)
        model = nn.ModuleList(module) if isinstance(module, list) else module
        # The root's call is the last, and the last enable() counts.
        if any(isinstance(m, fsdp.FSDPModule) and param_groups(m) for m in model.modules()):
            enable(model)
        return sharded

    return fully_shard


def _ddp_of_cpus() -> None:
    """Let DDP take the device_ids of a GPU, and use none: torch's tests compare with DDP."""
    plain = nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, device_ids: object = None, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)

    setattr(nn.parallel.DistributedDataParallel, "__init__", init)  # noqa: B010


def _at_least(ranks: int, **_: object) -> Any:
    return unittest.skipIf(ranks > RANKS, f"it needs {ranks} ranks")


def _at_most(ranks: property) -> property:
    return property(lambda self: min(RANKS, ranks.__get__(self)))


def _suite(how: str, file: Path) -> Any:
    """Return torch's file as a module that runs on CPUs."""
    count: Any = lambda: RANKS  # noqa: E731
    torch.accelerator.device_count = torch.cpu.device_count = count
    distributed.TIMEOUT_DEFAULT = int(LIMIT_S)  # seconds of a test
    distributed.TIMEOUT_OVERRIDE = {}
    distributed.skip_if_lt_x_gpu = _at_least
    common.DISTRIBUTED_BACKEND = "gloo" if how == "gloo" else "mcast"
    common.DEVICE_COUNT = RANKS
    common.FSDPTest._spawn_processes = lambda self: self._start_processes(Rank)
    common.FSDPTestMultiThread = Processes
    _ddp_of_cpus()
    if how == "enabled":
        fsdp.fully_shard = common.fully_shard = _fully_shard_enabled(fsdp.fully_shard)
    sys.path.insert(0, str(file.parent))
    suite: Any = importlib.import_module(file.stem)
    cases: list[Any] = [case for case in vars(suite).values() if isinstance(case, type)]
    for case in cases:
        if isinstance(ranks := vars(case).get("world_size"), property):
            case.world_size = _at_most(ranks)
    return suite


def main(names: list[str]) -> None:
    """Run the tests that are named, or all of the file, and print an outcome a line, as JSON."""
    mp.set_forkserver_preload([MODULE])
    loader = unittest.TestLoader()
    tests = loader.loadTestsFromNames(names, SUITE) if names else loader.loadTestsFromModule(SUITE)
    tests.run(Outcomes(2))


if __name__ == "__main__":
    importlib.import_module(MODULE).main(sys.argv[3:])
elif __name__ == MODULE:  # and not "__mp_main__", as a rank has it once more
    SUITE = _suite(os.environ["TORCH_FSDP_HOW"], Path(os.environ["TORCH_FSDP_FILE"]))
