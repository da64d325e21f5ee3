"""What the public functions of torch.distributed must do on four ranks: groups, questions, settings."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from typing import Any

import pytest

import torch_mcast
from torch_mcast.backend import MulticastBackend
from torch_mcast.group_in_python import TAKES_BACKENDS

from .entries import ENTRIES, Check, dist, entry, gathers_into, own
from .limits import LIMIT
from .values import SPLITS, group_of, impl, splittable

# ---- groups


def sums_in(group: Any, ranks: list[int]) -> None:
    """Sum in a group that this rank is in, which must be one of ours, and destroy it."""
    tensor = own(dist.get_rank())
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [float(sum(r + 1 for r in ranks))] * 3
    assert torch_mcast.info(group).size == len(ranks)
    dist.destroy_process_group(group)


def begin_again(rank: int, size: int) -> None:
    """Destroy all groups and make the default one anew."""
    where = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    dist.destroy_process_group()
    group_of.cache_clear()
    assert not dist.is_initialized()
    store = dist.FileStore(f"{where[0]}/store", size)
    dist.init_process_group("mcast", store=store, rank=rank, world_size=size, timeout=LIMIT)


@entry
def new_group(rank: int, size: int) -> None:
    group = dist.new_group([0, 2, 3])
    if rank != 1:
        sums_in(group, [0, 2, 3])


@entry
def new_subgroups(rank: int, size: int) -> None:
    group, groups = dist.new_subgroups(group_size=2)
    assert len(groups) == 2
    sums_in(group, [0, 1] if rank < 2 else [2, 3])


@entry
def new_subgroups_by_enumeration(rank: int, size: int) -> None:
    group, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    sums_in(group, [0, 3] if rank in (0, 3) else [1, 2])


@entry
def split_group(rank: int, size: int) -> None:
    if not SPLITS:
        with splittable(), pytest.raises(RuntimeError, match="does not support splitting"):
            dist.split_group(split_ranks=[[0, 2], [1, 3]])
        return
    with splittable():
        part = dist.split_group(split_ranks=[[0, 2], [1, 3]])
    sums_in(part, [0, 2] if rank in (0, 2) else [1, 3])


@entry
def shrink_group(rank: int, size: int) -> None:
    group = dist.new_group()
    if not TAKES_BACKENDS:
        with pytest.raises(TypeError, match="does not support shrinking"):
            dist.shrink_group([3], group)
        dist.destroy_process_group(group)
        return
    dist.barrier(group=group)
    dist.barrier()  # nobody is in an operation of the group that is about to end
    if rank != 3:
        sums_in(dist.shrink_group([3], group), [0, 1, 2])
    dist.barrier()
    if rank == 3:
        dist.distributed_c10d._abort_process_group(group)
    begin_again(rank, size)  # torch numbers groups, and those of rank 3 are behind


@entry
def init_device_mesh(rank: int, size: int) -> None:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    row, column = mesh["shard"].get_group(), mesh["replica"].get_group()
    assert tuple(mesh.get_coordinate()) == (rank // 2, rank % 2)
    assert dist.get_process_group_ranks(row) == [rank // 2 * 2, rank // 2 * 2 + 1]
    for group, other in ((row, rank ^ 1), (column, rank ^ 2)):
        sums_in(group, [rank, other])


@entry
def init_process_group(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group("mcast")


@entry
def destroy_process_group(rank: int, size: int) -> None:
    begin_again(rank, size)
    gathers_into(dist.all_gather_into_tensor, rank, size)


# ---- questions


@entry
def get_backend(rank: int, size: int) -> None:
    assert dist.get_backend() == "mcast"


@entry
def get_backend_config(rank: int, size: int) -> None:
    assert dist.get_backend_config() == "cpu:mcast,cuda:mcast"


@entry
def get_backend_impl(rank: int, size: int) -> None:
    assert isinstance(dist.get_backend_impl(), MulticastBackend)


@entry
def get_default_backend_for_device(rank: int, size: int) -> None:
    assert dist.get_default_backend_for_device("cpu") == "gloo"


@entry
def get_global_rank(rank: int, size: int) -> None:
    assert dist.get_global_rank(dist.group.WORLD, rank) == rank


@entry
def get_group_rank(rank: int, size: int) -> None:
    assert dist.get_group_rank(dist.group.WORLD, rank) == rank


@entry
def get_node_local_rank(rank: int, size: int) -> None:
    assert dist.get_node_local_rank(fallback_rank=5) == 5


@entry
def get_pg_count(rank: int, size: int) -> None:
    assert dist.get_pg_count() > 0


@entry
def get_process_group_ranks(rank: int, size: int) -> None:
    assert dist.get_process_group_ranks(dist.group.WORLD) == list(range(size))


@entry
def get_rank(rank: int, size: int) -> None:
    assert 0 <= dist.get_rank() < size


@entry
def get_world_size(rank: int, size: int) -> None:
    assert dist.get_world_size() == 4


@entry
def is_backend_available(rank: int, size: int) -> None:
    assert dist.is_backend_available("mcast")


@entry
def is_initialized(rank: int, size: int) -> None:
    assert dist.is_initialized()


def says(name: str) -> Check:
    def check(rank: int, size: int) -> None:
        assert isinstance(getattr(dist, name)(), bool)

    return check


for _name in (
    "is_available", "is_gloo_available", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
):  # fmt: skip
    ENTRIES[_name] = says(_name)


@entry
def supports_complex(rank: int, size: int) -> None:
    assert dist.supports_complex(dist.ReduceOp.SUM)


# ---- settings


@entry
def set_timeout(rank: int, size: int) -> None:
    backend = impl()
    before = backend.options._timeout
    dist.set_timeout(timedelta(seconds=33))
    assert backend.options._timeout == timedelta(seconds=33)
    dist.set_timeout(before)


def levels(rank: int, size: int) -> None:
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # torch wraps the groups that are made from now on
    try:
        group = dist.new_group()
        assert torch_mcast.info(group).size == size
        gathers_into(lambda out, own: dist.all_gather_into_tensor(out, own, group=group), rank, size)
        dist.destroy_process_group(group)
        dist.set_debug_level_from_env()
    finally:
        dist.set_debug_level(before)


for _name in ("get_debug_level", "set_debug_level", "set_debug_level_from_env"):
    ENTRIES[_name] = levels


def rendezvous(rank: int, size: int) -> None:
    def handler(url: str, **_: Any) -> Any:
        yield dist.HashStore(), rank, size

    scheme = "mcasttest"
    if scheme not in dist.rendezvous.__globals__["_rendezvous_handlers"]:
        dist.register_rendezvous_handler(scheme, handler)
    assert next(iter(dist.rendezvous(f"{scheme}://")))[1:] == (rank, size)


ENTRIES["rendezvous"] = ENTRIES["register_rendezvous_handler"] = rendezvous


class Debugger:
    """Answers nothing: nobody is there to ask."""

    def message(self, text: str) -> None: ...

    def set_trace(self) -> None: ...


def stop(rank: int, size: int) -> None:
    if not hasattr(dist, "_make_distributed_pdb"):  # and nobody is there to type
        assert callable(dist.breakpoint)
        return
    before = dist._make_distributed_pdb
    dist._make_distributed_pdb = Debugger
    try:
        dist.breakpoint(rank=1, timeout_s=None)
    finally:
        dist._make_distributed_pdb = before


ENTRIES["breakpoint"] = stop
