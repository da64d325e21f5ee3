"""torch's own DistributedTest over "mcast": `python -m tests.torch_suite RANKS [NAME ... | --names]`.

torch ships the tests that its backends must pass. While they are imported, the backend's name decides which
of them run: they are imported here with gloo's name, and run over ours. Each rank of each test is a process
of its own, as in torch's CI, but one that is forked from a process that has imported torch.
"""

from __future__ import annotations

import inspect
import multiprocessing as mp
import os
import sys
import unittest
from multiprocessing.context import ForkServerProcess
from typing import Any

NAME = "mcast"
MODULE = "tests.torch_suite"  # by which a rank finds the class

os.environ.update(
    BACKEND="gloo",
    CUDA_VISIBLE_DEVICES="",  # the tests of CUDA are for those who have a GPU a rank
    GLOO_SOCKET_IFNAME="lo",
    INIT_METHOD="file://",  # a file of each test's own, see TorchSuite.run_test
    MASTER_ADDR="127.0.0.1",
    MCAST_FABRIC="shm",
    OMP_NUM_THREADS="1",
    PYTORCH_PRINT_REPRO_ON_FAILURE="0",
)
os.environ["WORLD_SIZE"] = sys.argv[1] if __name__ == "__main__" else os.environ.get("WORLD_SIZE", "4")

from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

from .limits import LIMIT_S  # noqa: E402
from .torch_outcomes import Outcomes  # noqa: E402

os.environ["BACKEND"] = NAME
suite: Any = distributed_test
suite.BACKEND = NAME
common_distributed.TIMEOUT_DEFAULT = int(LIMIT_S)  # seconds of a test
# test_new_subgroups_by_enumeration takes a GPU's number for its rank's, and uses no GPU.
suite.init_multigpu_helper = lambda world_size, _: {rank: [rank] for rank in range(world_size)}
suite.Barrier.sync.__func__.__defaults__ = (None, LIMIT_S)  # torch's 10 s are few on a machine that is busy

# torch says so of all backends but MPI. It was true of all_to_all on a CPU; gloo has had it for years.
_SAID_OF_GLOO = ("Only MPI supports CPU all_to_all_single", "Only MPI supports all_to_all")

# torch leaves these out for want of GPUs, for NCCL or for an issue of its own. They use the CPU alone.
_ON_A_CPU = (
    "test_batch_isend_irecv_op_list_err",
    "test_broadcast_object_list",
    "test_new_subgroups",
    "test_new_subgroups_by_enumeration",
    "test_new_subgroups_by_enumeration_input_rank_exceeds_world_size",
    "test_new_subgroups_by_enumeration_negative_input_rank",
    "test_new_subgroups_group_size_exceeds_world_size",
    "test_new_subgroups_overlap_not_allowed",
    "test_new_subgroups_world_size_not_divisible_by_group_size",
)


class Rank(ForkServerProcess):
    """A process of one rank, with the environment of the test that starts it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._environment = dict(os.environ)

    def run(self) -> None:
        os.environ.update(self._environment)
        super().run()


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """torch's tests, on ranks that start fast."""

    def setUp(self) -> None:
        gpus = getattr(getattr(type(self), self._testMethodName), "_min_gpus_required", 0)
        if gpus:  # the ranks would find out by themselves, and cost a start
            self.skipTest(common_distributed.TEST_SKIPS[f"multi-device-{gpus}"].message)
        super().setUp()
        self._start_processes(Rank)

    def run_test(self, test_name: str, parent_pipe: Any) -> None:
        suite.INIT_METHOD = os.environ["INIT_METHOD"]
        if test_name.startswith(
            "test_accumulate_gradients"
        ):  # which ask this name whether tensors are on the CPU
            suite.BACKEND = "gloo"  # the group is made by now
        super().run_test(test_name, parent_pipe)


def _take_back() -> None:
    """Run also the tests that use the CPU alone, and those kept from gloo for a lack that it no longer has."""
    for name in _ON_A_CPU:
        test = inspect.unwrap(getattr(TorchSuite, name))
        test.__unittest_skip__ = False
        setattr(TorchSuite, name, test)
    # All decorators are gone by now, and this one skips nothing.
    in_detail = suite.with_dist_debug_levels(levels=["DETAIL"])
    TorchSuite.test_broadcast_object_list = in_detail(TorchSuite.test_broadcast_object_list)
    for name in names():
        method = getattr(TorchSuite, name)
        if getattr(method, "__unittest_skip_why__", "") in _SAID_OF_GLOO:
            method.__unittest_skip__ = False


def names() -> list[str]:
    """Return the names of torch's tests."""
    return list(unittest.TestLoader().getTestCaseNames(TorchSuite))


def main(chosen: list[str]) -> None:
    """Run the tests that are named, or all, and print an outcome a line, as JSON; or print their names."""
    if chosen == ["--names"]:
        print(*names())
        return
    mp.set_forkserver_preload([MODULE])
    unittest.TestSuite(TorchSuite(name) for name in chosen or names()).run(Outcomes(1))


TorchSuite.__module__ = MODULE
_take_back()

if __name__ == "__main__":
    import importlib

    importlib.import_module(MODULE).main(sys.argv[2:])
