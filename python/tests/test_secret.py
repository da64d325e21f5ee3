"""MCAST_SECRET=store: the ranks of a group share a secret through torch's store."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import torch_mcast
import torch_mcast.fsdp
from torch_mcast import Options
from torch_mcast.group import Group
from torch_mcast.rendezvous import exchange
from torch_mcast.secret import settings

from .host import pair
from .limits import LIMIT, LIMIT_MS
from .values import distributed
from .world import World

ASKED = Options(secret="store")


def secret_in(store: Store, options: Options = ASKED) -> str:
    """Return the secret that the library is given."""
    found = re.fullmatch(r"(?s).*MCAST_SECRET=([0-9a-f]{64})", settings(options, store))
    assert found
    return found[1]


@pytest.mark.parametrize("kind", ["hash", "file"])
def test_ranks_of_a_group_have_one_and_groups_have_others(kind: str, tmp_path: Any) -> None:
    store = HashStore() if kind == "hash" else FileStore(str(tmp_path / "store"), 4)
    groups = [PrefixStore(f"{number}/", store) for number in range(3)]
    with ThreadPoolExecutor(8) as pool:
        secrets = [list(pool.map(secret_in, [group] * 8)) for group in groups]
    assert all(len(set(of_a_group)) == 1 for of_a_group in secrets)
    assert len({of_a_group[0] for of_a_group in secrets}) == len(groups)
    assert [secret_in(group) for group in groups] == [of[0] for of in secrets]  # those of a later start


def test_options_and_environment_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    own = "correct-horse-battery-staple"
    assert settings(Options(fabric="udp"), store) == "MCAST_FABRIC=udp"
    assert settings(Options(secret=own), store) == f"MCAST_SECRET={own}"
    assert store.num_keys() == 0
    monkeypatch.setenv("MCAST_SECRET", "store")
    assert secret_in(store, Options(fabric="udp")) == secret_in(store)
    assert settings(Options(secret=own), store) == f"MCAST_SECRET={own}"


def test_it_goes_into_no_options() -> None:
    options = Options(secret="store")
    secret = secret_in(HashStore(), options)
    assert secret not in options.backend + options.lines()
    assert Options.of(options).settings == {"MCAST_SECRET": "store"}


def test_a_switch_cannot_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCAST_SWITCH", "10.0.0.1:7470")
    with pytest.raises(torch_mcast.ArgumentError, match=r"MCAST_SWITCH=10\.0\.0\.1:7470 is not allowed"):
        settings(ASKED, HashStore())


class Plain(Store):
    """A store in Python, which has no compare_set."""


def test_a_store_that_cannot_hold_it_is_an_error() -> None:
    with pytest.raises(torch_mcast.UnavailableError, match=r"compare_set,.* Not implemented"):
        settings(ASKED, Plain())


@pytest.mark.parametrize(
    "strange",
    [" ", "\n", "not hexadecimal", "\N{SNOWMAN}", "00\nMCAST_ENCRYPT=0", "00" * 31, "00" * 32 + "\n"],
)
def test_what_is_no_secret_is_not_taken_for_settings(strange: str) -> None:
    store = HashStore()
    store.set("mcast/secret", strange)
    with pytest.raises(torch_mcast.ArgumentError, match="is no secret of torch_mcast") as caught:
        settings(ASKED, store)
    assert not strange.strip() or strange not in str(caught.value)


@pytest.mark.parametrize("kind", ["hash", "file"])
def test_what_is_empty_is_no_secret(kind: str, tmp_path: Any) -> None:
    store = HashStore() if kind == "hash" else FileStore(str(tmp_path / "store"), 1)
    store.set("mcast/secret", "")
    assert secret_in(store) == secret_in(store)  # the store takes it for none, and has one put there


def test_the_library_alone_has_no_store() -> None:
    with pytest.raises(torch_mcast.ArgumentError, match="MCAST_SECRET=store is for process groups of torch"):
        Group(0, 1, "MCAST_SECRET=store", lambda blob: [blob], LIMIT_MS)


@pytest.mark.parametrize("others", ["", "correct-horse-battery-staple"])
def test_who_has_another_secret_or_none_is_told(others: str) -> None:
    store = HashStore()

    def join(rank: int) -> str:
        options = ASKED if rank == 0 else Options(secret=others)
        with pytest.raises(torch_mcast.MismatchError) as caught:
            Group(
                rank,
                2,
                settings(options, store),
                lambda blob: exchange(store, rank, 2, blob, LIMIT),
                LIMIT_MS,
            )
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        for said in pool.map(join, range(2)):
            theirs = "the MCAST_SECRET with the digest .*" if others else "no MCAST_SECRET"
            assert re.search(f"rank 0 has the MCAST_SECRET with the digest .*, rank 1 {theirs}: set", said)


def step(group: Any) -> None:
    """Move bytes in both lanes, and by FSDP2."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    gathered = torch.empty(5 * size)
    dist.all_gather_into_tensor(gathered, torch.full((5,), float(rank)), group=group)
    assert gathered.view(size, 5)[:, 0].tolist() == [float(r) for r in range(size)]
    summed = torch.empty(70_000)
    dist.reduce_scatter_tensor(summed, torch.ones(70_000 * size), group=group)
    assert summed.eq(size).all()
    model: Any = fully_shard(nn.Linear(64, 64), mesh=DeviceMesh.from_group(group, "cpu"))
    torch_mcast.fsdp.enable(model)
    model(torch.ones(1, 64)).sum().backward()
    bias = model.bias.grad.to_local()
    assert bias.eq(1).all(), bias


def groups_within() -> None:
    options = Options(secret="store", encrypt=1, fabric="udp")  # with encrypt there is none without a secret
    group: Any = dist.new_group(backend="mcast", pg_options=options)
    step(group)
    halves = distributed.split_group(group, split_ranks=[[0, 1], [2, 3]])  # with the settings of its parent
    assert torch_mcast.info(halves).fabric == "udp"
    step(halves)
    for done in (halves, group):
        dist.destroy_process_group(done)


def test_every_lane_and_group_has_it() -> None:
    # DTensor keeps the groups of a mesh for all meshes of such a shape, also when they are destroyed.
    world = World(4, GLOO_SOCKET_IFNAME="")
    try:
        world.run(groups_within)
    finally:
        world.close()


def test_nothing_that_is_written_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MCAST_SECRET": "store",
        "MCAST_LOG": "debug",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "TORCH_CPP_LOG_LEVEL": "INFO",
    }.items():
        monkeypatch.setenv(name, value)
    done = pair(
        """
        import re
        dist.all_reduce(torch.ones(1000))
        if RANK == 0:
            with open(os.environ["PAIR_STORE"], "rb") as store:
                [secret] = re.findall(rb"mcast/secret.{0,16}?([0-9a-f]{64})", store.read(), re.DOTALL)
            path = tempfile.mktemp(prefix="mcast-test-")
            torch_mcast.dump_trace(path)
            with open(path, "rb") as trace:
                assert secret not in trace.read()
            os.unlink(path)
            assert secret.decode() not in repr(torch_mcast.info()) + repr(os.environ)
            print(secret.decode())
        dist.destroy_process_group()
        if RANK == 0:
            assert peer.wait(LIMIT_S) == 0
        """,
        monkeypatch,
    )
    secret = done.stdout.split()[-1]
    assert len(secret) == 64
    assert "joined" in done.stderr  # it has logged at all
    assert secret not in done.stderr
