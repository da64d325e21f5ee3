"""Memory registered with a group: which tensors are taken, and how long they are kept.

That a device reads it takes a device: guest_test.go.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torch_mcast

from .world import World


def gathers_from_registered() -> bool:
    shard = torch.full((1000,), float(dist.get_rank()))
    registration = torch_mcast.register_memory(shard)
    result = torch.empty(1000 * dist.get_world_size())
    dist.all_gather_single(result, shard[:1000])
    registration.release()
    registration.release()
    return all(bool((part == r).all()) for r, part in enumerate(result.split(1000)))


def test_a_group_that_copies_takes_it_as_well(world: World) -> None:
    assert all(world.run(gathers_from_registered))


def refused() -> list[str]:
    said = []
    tensor: Any
    for tensor in (torch.empty(0), torch.ones(4, 4).t()[:2], torch.empty(4, device="meta"), [1, 2]):
        with pytest.raises(torch_mcast.ArgumentError) as e:
            torch_mcast.register_memory(tensor)
        said.append(str(e.value))
    return said


def test_what_cannot_be_registered_is_said(world: World) -> None:
    for empty, strided, meta, other in world.run(refused):
        assert "0 bytes" in empty
        assert "not contiguous" in strided
        assert "on meta" in meta
        assert "want a tensor, got list" in other


def ended() -> tuple[bool, bool]:
    registration = torch_mcast.register_memory(torch.ones(1000))
    end = registration._end
    before = end.alive
    del registration
    gc.collect()
    return before, end.alive


def test_a_registration_ends_with_its_last_reference(world: World) -> None:
    for before, after in world.run(ended):
        assert before
        assert not after
