"""NCCL with this library as its plugin: two communicators that both go through CollNet.

NCCL runs the operations of a communicator one after another. An Allgather and a
Reduce-Scatter that are to run side by side need two, and both need CollNet:

groups = torch_mcast.nccl.groups()
torch_mcast.fsdp.enable(model, group=groups)

Each is asked for CollNet by its own configuration, so that no other communicator of the process gets it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from . import _lib, errors

Kind = Literal["allgather", "reduce_scatter"]

_NAMES: dict[Kind, str] = {"allgather": "Allgather", "reduce_scatter": "Reduce-Scatter"}
_TEXT_BYTES = 512  # of what a rank tells the others
_NETWORK = "mcast"  # the plugin's name for its network, with any device
_Key = tuple[Path, int]
_made_here: dict[str, set[_Key]] = {}  # communicators by the name of their group


@dataclass(frozen=True)
class Communicator:
    """The tuner's decision for one of NCCL's communicators, and how it went.

    Attributes:
        library: the file that NCCL has loaded.
        id: never reused in a process, increasing.
        ranks: of the communicator.
        nodes: of the communicator.
        collnet: whether its CollNet is connected, and the tuner may take it.
        why: why not, or "".
        allgather_from: bytes, of all ranks together, from which Allgathers go through CollNet; 0:
            none does.
        reduce_scatter_from: the same of Reduce-Scatters.
        paired: whether another communicator of the same ranks has CollNet: with a switch that decides.
        allgather_alone_from: bytes, of all ranks together, from which CollNet is the faster for an Allgather
            that no Reduce-Scatter runs beside; 0: for none.
        allgather_alone_to: up to how many; 0: no bound.
        allgather_windows: pieces of Allgathers that NCCL has handed to CollNet so far.
        reduce_scatter_windows: the same of Reduce-Scatters.
    """

    library: Path
    id: int
    ranks: int
    nodes: int
    collnet: bool
    why: str
    allgather_from: int
    reduce_scatter_from: int
    allgather_windows: int
    reduce_scatter_windows: int
    paired: bool = False
    allgather_alone_from: int = 0
    allgather_alone_to: int = 0

    def gathers_alone(self, nbytes: int) -> bool:
        """Say whether CollNet is the faster for an Allgather of so many bytes with nothing beside it."""
        least, most = self.allgather_alone_from, self.allgather_alone_to
        return 0 < least <= nbytes <= (most or nbytes)


class Groups(NamedTuple):
    """Two process groups of the same ranks, each with a communicator of its own.

    Attributes:
        allgather: for Allgathers.
        reduce_scatter: for Reduce-Scatters.
    """

    allgather: dist.ProcessGroup
    reduce_scatter: dist.ProcessGroup


def communicators() -> list[Communicator]:
    """Return NCCL's communicators in this process that have asked the library's tuner, oldest first.

    None before NCCL has made one, or where it has not loaded the library. NCCL 2.20 tells its tuner
    nothing of communicators, and is never listed.

    Raises:
        LibraryError: NCCL has loaded an older version of the library.
    """
    known = {f.name for f in fields(Communicator)}
    return [
        Communicator(library=path, **{name: value for name, value in one.items() if name in known})
        for path in _lib.mapped()
        for one in json.loads(_lib.Library(path).communicators())
    ]


def _key(c: Communicator) -> _Key:
    return c.library, c.id


def _of(group: dist.ProcessGroup) -> list[Communicator]:
    keys = _made_here.get(group.group_name, set())
    return [c for c in communicators() if _key(c) in keys]


def groups(
    ranks: Sequence[int] | None = None, *, channels: int | None = None, timeout: timedelta | None = None
) -> Groups:
    """Make two NCCL groups of the same ranks with communicators that both go through CollNet.

    All of these ranks call it, each after torch.cuda.set_device(). A group that new_group() makes beside
    an NCCL default group is an ncclCommSplit, which NCCL gives no CollNet: these are not. They ask for the
    plugin's network and for CollNet themselves; NCCL_NET and NCCL_COLLNET_ENABLE, if set, count instead.

    Args:
        ranks: of the default group; None: all.
        channels: of NCCL's, at least so many in each communicator: a larger part of an operation is in
            flight at once, and as many of the GPU's multiprocessors are busy meanwhile. None: NCCL chooses.
        timeout: of the groups' operations; None: torch's default.

    Raises:
        UnavailableError: one of the two would not go through CollNet on some rank; the message says which
            and why, the same on all ranks. The groups are gone.
    """
    made, reason = _make(range(dist.get_world_size()) if ranks is None else ranks, channels, timeout)
    if made is None:
        raise errors.UnavailableError(
            f"Allgather and Reduce-Scatter cannot run side by side in CollNet: {reason}"
        )
    return made


def beside(shard: dist.ProcessGroup) -> tuple[Groups | None, str]:
    """Return two groups of the ranks of an NCCL group, or why there are none, the same on all ranks."""
    if reason := _common(_lacking(os.environ), shard):
        return None, reason
    return _make(dist.get_process_group_ranks(shard), None, None)


def _make(ranks: Iterable[int], channels: int | None, timeout: timedelta | None) -> tuple[Groups | None, str]:
    """Return two groups that both go through CollNet, or why there are none, the same on all ranks."""
    if not dist.is_nccl_available() or not torch.cuda.is_available():
        return None, "NCCL needs a torch built with it and a CUDA device: there is none"
    if reason := _splits():
        return None, reason
    members = sorted(ranks)
    made: list[dist.ProcessGroup] = []
    for kind in _NAMES:
        before = set(map(_key, communicators()))
        group: Any = dist.new_group(
            members,
            timeout=timeout,
            backend="nccl",
            pg_options=_options(channels),
            use_local_synchronization=True,
            group_desc=f"mcast {kind}",
        )
        made.append(group)
        try:
            _exchange("", group)  # the first operation makes the communicator
        except RuntimeError as e:  # torch 2.15 raises one, older ones their DistBackendError
            # Every rank comes here: where NCCL gives one up the others lose their connection to it.
            _destroy(made)
            return None, f"NCCL has made no communicator: {_last_line(e)}"
        _made_here[group.group_name] = {_key(c) for c in communicators() if c.ranks == len(members)} - before
    # What the tuner decides for the first depends on the second one.
    reasons = [_why_not(kind, _of(group)) for kind, group in zip(_NAMES, made, strict=True)]
    if reason := _common("; ".join(dict.fromkeys(filter(None, reasons))), made[0]):
        _destroy(made)
        return None, reason
    return Groups(*made), ""


def _destroy(made: Iterable[dist.ProcessGroup]) -> None:
    for group in made:
        _made_here.pop(group.group_name, None)
        dist.destroy_process_group(group)


def _last_line(error: Exception) -> str:
    """Return the last line of an error that says something: torch puts NCCL's own words there."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")


def is_nccl(group: dist.ProcessGroup) -> bool:
    """Say whether a group's CUDA tensors go over NCCL."""
    try:
        backend = group._get_backend(torch.device("cuda"))
    except RuntimeError:
        return False
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return backend.name().startswith("nccl")  # torch 2.15 has several


def _lacking(environment: Mapping[str, str]) -> str:
    """Return which variable keeps communicators that ask for CollNet from it, or ""."""
    if "mcast" not in environment.get("NCCL_NET_PLUGIN", ""):
        return "NCCL does not load the plugin: set NCCL_NET_PLUGIN=mcast, and LD_LIBRARY_PATH to its folder"
    network = environment.get("NCCL_NET", _NETWORK)
    if network.lower() != _NETWORK:
        return f"NCCL_NET={network} puts every communicator on that network: unset it, or set {_NETWORK}"
    collnet = environment.get("NCCL_COLLNET_ENABLE")
    if collnet in ("", "0"):
        return (
            f"CollNet is off for every communicator: NCCL_COLLNET_ENABLE={collnet}; unset it, or set it to 1"
        )
    if collnet is None and not _asks_for_collnet():
        return f"torch {torch.__version__} asks NCCL for no CollNet: set NCCL_COLLNET_ENABLE=1"
    return ""


def _asks_for_collnet() -> bool:
    """Say whether this torch can ask NCCL for CollNet for one communicator."""
    return hasattr(dist.ProcessGroupNCCL.Options().config, "collnet_enable")


def of(group: dist.ProcessGroup) -> Communicator | None:
    """Return the communicator of a group that groups() or enable() made, or None."""
    return next(iter(_of(group)), None)


def _why_not(kind: Kind, new: Collection[Communicator]) -> str:
    """Return why a group's new communicator does not go through CollNet, or ""."""
    if not new:
        cause = _lacking(os.environ) or "NCCL_TUNER_PLUGIN names another, or NCCL_DEBUG=INFO says why"
        return f"NCCL has not asked the plugin's tuner: {cause}"
    for c in new:
        if not c.collnet:
            return _lacking(os.environ) or c.why
        if not (c.allgather_from if kind == "allgather" else c.reduce_scatter_from):
            if os.environ.get("MCAST_SWITCH") and c.ranks == c.nodes > 2 and not c.paired:
                return "the two are no pair: ranks have asked NCCL for different operations"
            return (
                f"the tuner leaves {_NAMES[kind]}s to NCCL, which is as fast on two nodes and where "
                f"no switch answers (MCAST_SWITCH); MCAST_TUNER_{kind.upper()} sets a size from which "
                "they go through CollNet"
            )
    return ""


def _splits() -> str:
    """Return why torch would split a new group off the default group, or ""."""
    if hasattr(dist.ProcessGroupNCCL.Options(), "lazy_init"):
        return ""
    world = dist.group.WORLD
    if world is None or world.bound_device_id is None or not is_nccl(world):
        return ""
    return (
        f"torch {torch.__version__} makes groups beside an NCCL default group by ncclCommSplit, which NCCL "
        'gives no CollNet: use init_process_group("gloo"), leave out device_id, or take torch 2.15'
    )


def _options(channels: int | None) -> Any:
    """Return what makes a group with a communicator of its own, through the plugin and with CollNet."""
    nccl: Any = dist.ProcessGroupNCCL.Options()
    if hasattr(nccl, "lazy_init"):
        nccl.lazy_init = True  # keeps new_group from splitting
    if not _lacking(os.environ):  # else NCCL uses the network it has, and asks no tuner: _why_not
        nccl.config.net_name = _NETWORK
        if _asks_for_collnet():
            nccl.config.collnet_enable = 1
    if channels is not None:
        nccl.config.min_ctas = channels
    return nccl


def _common(reason: str, group: dist.ProcessGroup) -> str:
    """Return the reasons of all ranks as one, the same on all of them; "" where none has one."""
    reasons = _exchange(reason, group)
    by_text: dict[str, list[int]] = {}
    for rank, text in enumerate(reasons):
        if text:
            by_text.setdefault(text, []).append(rank)
    return "; ".join(
        text if len(ranks) == len(reasons) else f"rank {', '.join(map(str, ranks))}: {text}"
        for text, ranks in by_text.items()
    )


def _exchange(text: str, group: dist.ProcessGroup) -> list[str]:
    """Return what every rank says, cut to 512 bytes, in rank order."""
    device = torch.device("cuda", torch.cuda.current_device())
    mine = text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
    send = torch.tensor(list(mine), dtype=torch.uint8, device=device)
    received = torch.empty(group.size() * _TEXT_BYTES, dtype=torch.uint8, device=device)
    dist.all_gather_into_tensor(received, send, group=group)
    whole = bytes(received.cpu().tolist())
    return [
        whole[at : at + _TEXT_BYTES].rstrip(b"\0").decode(errors="replace")
        for at in range(0, len(whole), _TEXT_BYTES)
    ]
