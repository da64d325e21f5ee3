"""MCAST_REPLACE: groups of other names are ours, and torch goes on to say what the program said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from torch_mcast.group_in_python import TAKES_BACKENDS

from .limits import LIMIT_S
from .ranks import run_ranks
from .values import SINCE_2_15

BEGIN = """
import inspect, json, os, sys, torch, torch.distributed as dist, torch_mcast
from torch.distributed.device_mesh import init_device_mesh
def kind(group=None, device="cpu"):
    group = group or dist.group.WORLD
    return type(group._get_backend(torch.device(device))).__name__
def begin(*args, **kwargs):
    dist.init_process_group(*args, store=dist.HashStore(), rank=0, world_size=1, **kwargs)
said = {}
"""
END = """
dist.destroy_process_group()
print(json.dumps(said))
"""
OURS, GLOO = "MulticastBackend", "ProcessGroupGloo"


def process(program: str, replace: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program + END],
        env=os.environ | {"MCAST_REPLACE": replace, "MCAST_FABRIC": "shm"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def said(program: str, replace: str = "gloo") -> dict[str, Any]:
    done = process(program, replace)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # older gloo prints, too
    return answer


NAMES = """
begin({name})
said["kind"], said["name"], said["config"] = kind(), dist.get_backend(), dist.get_backend_config()
said["replaces"] = torch_mcast.info().replaces if kind() == "MulticastBackend" else None
"""


@pytest.mark.parametrize(
    ("name", "replace", "kind", "config"),
    [
        ("gloo", "gloo", OURS, "cpu:gloo,cuda:gloo"),
        ("GLOO", "gloo", OURS, "cpu:gloo,cuda:gloo"),
        ("cpu:gloo", "gloo", OURS, "cpu:gloo"),
        ("cpu:gloo,cuda:gloo", "gloo", OURS, "cpu:gloo,cuda:gloo"),
        ("gloo", "nccl, gloo", OURS, "cpu:gloo,cuda:gloo"),
        ("nccl", "gloo,nccl", OURS, "cuda:nccl"),
        ("cpu:gloo,cuda:nccl", "gloo,nccl", OURS, "cpu:gloo,cuda:nccl"),
        ("gloo", "", GLOO, "cpu:gloo,cuda:gloo"),
        ("gloo", "nccl", GLOO, "cpu:gloo,cuda:gloo"),
    ],
)
def test_a_group_by_name(name: str, replace: str, kind: str, config: str) -> None:
    got = said(NAMES.format(name=repr(name)), replace)
    replaces = name.lower() if kind == OURS else None
    assert got == {"kind": kind, "name": name.lower(), "config": config, "replaces": replaces}


def test_our_own_name_replaces_nothing() -> None:
    config = "cpu:mcast,cuda:mcast"
    got = said(NAMES.format(name="'mcast'"))
    assert got == {"kind": OURS, "name": "mcast", "config": config, "replaces": ""}


def test_a_program_that_names_no_backend() -> None:
    program = """
torch.accelerator.current_accelerator = lambda *_, **__: None  # as on a machine without one
begin()
dist.all_reduce(torch.ones(3))
said.update(kind=kind(), name=dist.get_backend(), replaces=torch_mcast.info().replaces)
said["group"] = kind(dist.new_group())
"""
    plain = said(program.replace("replaces=torch_mcast.info().replaces", ""), replace="")
    assert plain == {"kind": GLOO, "name": "undefined", "group": GLOO}
    assert said(program) == {"kind": OURS, "name": "undefined", "replaces": "undefined", "group": OURS}


def test_groups_made_later() -> None:
    got = said("""
begin("mcast")
groups = {
    "named": dist.new_group(backend="gloo"),
    "for two devices": dist.new_group(backend="cpu:gloo,cuda:gloo"),
    "default": dist.new_group(),
}
if "backend_override" in inspect.signature(init_device_mesh).parameters:
    groups["mesh"] = init_device_mesh("cpu", (1, 1), backend_override={0: "gloo", 1: "gloo"}).get_group(0)
if SPLITS:
    groups["part"] = dist.split_group(dist.new_group(backend="gloo"), [[0]])
said.update({name: [kind(group), dist.get_backend(group)] for name, group in groups.items()})
""".replace("SPLITS", str(SINCE_2_15)))
    assert {name: kind for name, (kind, _) in got.items()} == dict.fromkeys(got, OURS)
    assert got.pop("default")[1] == "mcast"
    assert got.pop("for two devices")[1] == "cpu:gloo,cuda:gloo"
    assert {name for _, name in got.values()} == {"gloo"}


def test_options_of_the_replaced_backend_are_left_out() -> None:
    got = said("""
from torch._C._distributed_c10d import ProcessGroupGloo
begin("gloo", pg_options=ProcessGroupGloo._Options())
said["kind"] = kind()
dist.new_group(pg_options=torch_mcast.Options(timeout="7s"))
""")
    assert got == {"kind": OURS}


def test_other_options_of_our_own_name_are_refused() -> None:
    done = process("""
from torch._C._distributed_c10d import ProcessGroupGloo
begin("mcast", pg_options=ProcessGroupGloo._Options())
""", "gloo")
    assert "pg_options is a _Options: the mcast backend takes torch_mcast.Options" in done.stderr


def test_a_group_for_cuda_alone() -> None:
    got = said("""
begin("cuda:nccl")
said["fabric"] = torch_mcast.info().fabric
""", "nccl")
    assert got == {"fabric": "shm"}


@pytest.mark.skipif(TAKES_BACKENDS, reason="from torch 2.14 on ours shares a group with others")
@pytest.mark.parametrize(("name", "replace"), [("cpu:mcast,cuda:nccl", ""), ("cpu:gloo,cuda:nccl", "gloo")])
def test_ours_shares_no_group_in_older_torch(name: str, replace: str) -> None:
    done = process(f"torch.cuda.is_available = lambda: True\nbegin({name!r})", replace)
    assert f"ArgumentError: a group of {name}: before torch 2.14 mcast shares" in done.stderr
    assert ("or set MCAST_REPLACE" in done.stderr) == bool(replace)


def test_it_may_be_set_once_torch_is_imported() -> None:
    got = said("""
os.environ["MCAST_REPLACE"] = "gloo"
begin("gloo")
said["kind"] = kind()
""", "")
    assert got == {"kind": OURS}


def test_a_rank_that_is_not_in_a_group_has_no_info() -> None:
    got = said("""
begin("gloo")
try:
    torch_mcast.info(dist.GroupMember.NON_GROUP_MEMBER)
except torch_mcast.ArgumentError as e:
    said["error"] = str(e)
""")
    assert "is no process group, or one that this rank is not in" in got["error"]


def test_a_group_made_by_torchs_own_function() -> None:
    """As OpenRLHF, TRL and vLLM make groups beside the default one."""
    got = said("""
from torch.distributed.distributed_c10d import _new_process_group_helper as make
from datetime import timedelta
begin("mcast")
group, _ = make(1, 0, [], "gloo", dist.HashStore(), group_name="x", timeout=timedelta(seconds=9))
said["kind"] = kind(group)
""")
    assert got == {"kind": OURS}


def test_our_benchmark_keeps_gloo(tmp_path: Any) -> None:
    got = said(f"""
from types import SimpleNamespace
from torch_mcast import bench
bench._measure = lambda rank, plan, gloo: said.update(kind=kind(gloo)) or iter(())
bench._rank(0, SimpleNamespace(store={str(tmp_path / "store")!r}, ranks=1, out=os.devnull))
begin("mcast")
""")
    assert got == {"kind": GLOO}


@pytest.mark.skipif(not TAKES_BACKENDS, reason="before torch 2.14 torch checks collectives of its own backends alone")
def test_torchs_own_gloo_that_checks_collectives() -> None:
    got = said("""
dist.set_debug_level(dist.DebugLevel.DETAIL)
begin("gloo")
dist.all_reduce(torch.ones(3))
wrapper = dist.group.WORLD._get_backend(torch.device("cpu"))
said["kind"], said["replaces"] = type(wrapper.wrapped_pg).__name__, torch_mcast.info().replaces
""")
    assert got == {"kind": OURS, "replaces": "gloo"}


RANK = """
import os, torch, torch.distributed as dist, torch_mcast
rank, size = int(os.environ["RANK"]), 2
dist.init_process_group("gloo", store=dist.FileStore(os.environ["STORE"], size), rank=rank, world_size=size)
sum = torch.full((3,), float(rank + 1))
dist.all_reduce(sum)
assert sum.tolist() == [3.0] * 3
alone = dist.new_group([1], backend="gloo")
assert (alone is dist.GroupMember.NON_GROUP_MEMBER) == (rank == 0)
dist.monitored_barrier()
dist.all_gather_object([None] * size, "object")
dist.destroy_process_group()
"""


def test_it_is_said_once(tmp_path: Any) -> None:
    env = os.environ | {"MCAST_REPLACE": "gloo", "MCAST_FABRIC": "shm", "STORE": str(tmp_path / "store")}
    codes, errors = run_ranks([sys.executable, "-c", RANK], env, ranks=2)
    assert codes == [0, 0], errors
    said = [error.count("torch_mcast: groups that ask for gloo are of mcast (MCAST_REPLACE)") for error in errors]
    assert said == [1, 0]


@pytest.mark.parametrize("value", ["mpi", "gloo;nccl", "gloo,", "yes"])
def test_another_value_is_refused(value: str) -> None:
    done = process('begin("gloo")', value)
    assert done.returncode == 1
    wanted = f"ArgumentError: MCAST_REPLACE={value} is not allowed: it must be gloo, nccl or gloo,nccl"
    assert wanted in done.stderr


def test_a_wrong_value_harms_no_program_without_groups() -> None:
    assert process("begin = print; dist.destroy_process_group = print", "yes").returncode == 0
