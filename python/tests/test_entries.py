"""Functions of torch.distributed do what docs/reference/torch.md says, by the library named there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from torch_mcast import work
from torch_mcast.group_in_python import TAKES_BACKENDS

from . import entries_functional, entries_groups  # noqa: F401
from .entries import ENTRIES
from .values import SINCE_2_15
from .world import World

DOCUMENT = Path(__file__).parents[2] / "docs/reference/torch.md"
TABLE = dict(re.findall(r"^\| `([\w.]+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE))
_INTERNAL = re.compile(r"^_|_(backward|setup_context|inplace|ctx)$")  # parts of autograd and of the compiler


def public() -> set[str]:
    names = {n for n in dir(dist) if not n.startswith("_")} - {"reduce_op"}  # which warns when it is touched
    found = {n for n in names if inspect.isroutine(getattr(dist, n))}
    own = {n: f for n, f in vars(functional).items() if inspect.isfunction(f)}
    found |= {
        f"functional.{name}"
        for name, function in own.items()
        if function.__module__ == functional.__name__ and not _INTERNAL.search(name)
    }
    return found


def test_the_table_has_every_function() -> None:
    assert set(TABLE) == set(ENTRIES)
    assert set(ENTRIES) >= public()
    if SINCE_2_15:  # an older torch lacks some
        assert set(ENTRIES) == public()
    assert set(TABLE.values()) <= {"mcast", "torch", "refused"}


def is_ours(name: str) -> bool:
    """Check the function of this name; say whether the library worked for it on this rank."""
    works = 0
    original = work.McastWork.__init__

    def init(self: Any, *args: Any) -> None:
        nonlocal works
        works += 1
        original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work.McastWork, "__init__", init)
        ENTRIES[name](dist.get_rank(), dist.get_world_size())
    return works > 0


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_it_works_as_the_table_says(world: World, name: str) -> None:
    if name not in public():
        pytest.skip(f"torch {torch.__version__} has no {name}")
    ours = world.run(is_ours, name)
    if name == "monitored_barrier" and not TAKES_BACKENDS:
        pytest.skip(f"torch {torch.__version__} refuses {name}")
    assert TABLE[name] != "mcast" or any(ours)
