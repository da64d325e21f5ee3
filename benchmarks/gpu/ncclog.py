"""What NCCL's log says about the network it used.

The lines are those of NCCL 2.25 to 2.30 (src/init.cc, src/plugin/net.cc, src/transport.cc,
src/transport/coll_net.cc, src/enqueue.cc) with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS of
INIT,NET,TUNING or more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

PLUGIN = "mcast"  # the name in our tables
DIRECT = "COLLNET_DIRECT"  # NCCL's name of the algorithm
COLLECTIVES = ("AllGather", "ReduceScatter")

_NETWORK = re.compile(r"NCCL INFO Using network (\S+)")
_COLLNET = re.compile(r"NCCL INFO CollNet \d+/\d+ : \d+ \[\w+\] via COLLNET/([^/\s]+)/")
_CHOICE = re.compile(r"NCCL INFO (\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
_WARNING = re.compile(r"NCCL WARN (.*)")


@dataclass
class Log:
    """The logs of all ranks of one run.

    Attributes:
        ranks: number of logs.
        networks: how many communicators used which network, by its name.
        collnet: how many CollNet connections were made, by the plugin's name.
        chosen: how often a collective of so many bytes a rank ran by which algorithm; rank 0 alone
            tells. Keys are (collective, bytes, algorithm), e.g. ("AllGather", 4096, "RING").
        warnings: NCCL's warnings, each once.
    """

    ranks: int = 0
    networks: Counter[str] = field(default_factory=Counter)
    collnet: Counter[str] = field(default_factory=Counter)
    chosen: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)


def read(texts: list[str]) -> Log:
    """Read the logs of all ranks."""
    log = Log(len(texts))
    for text in texts:
        log.networks.update(_NETWORK.findall(text))
        log.collnet.update(_COLLNET.findall(text))
        log.chosen.update((what, int(size), how) for what, size, how, _ in _CHOICE.findall(text))
        log.warnings += [w for w in _WARNING.findall(text) if w not in log.warnings]
    return log


def algorithms(log: Log, collective: str, size: int | None = None) -> dict[str, int]:
    """Return how often a collective ran by which algorithm, at one size (bytes a rank) or at all."""
    ways: Counter[str] = Counter()
    for (what, nbytes, how), times in log.chosen.items():
        if what == collective and size in (None, nbytes):
            ways[how] += times
    return dict(sorted(ways.items()))


def problems(log: Log, network: str, collnet: bool | None, sizes: list[int]) -> list[str]:
    """Return how a run differs from the intended one; empty: it does not.

    Args:
        log: what its ranks logged.
        network: the name that every communicator should have used.
        collnet: whether CollNet should have been ours; else none may have been connected. None: either.
        sizes: bytes a rank at which every Allgather and Reduce-Scatter should then have gone
            through it. At other sizes there are element types that CollNet does not reduce.
    """
    found = []
    if set(log.networks) != {network} or log.networks[network] < log.ranks:
        found.append(
            f"{log.ranks} ranks should have used network {network}; the log names {listed(log.networks)}"
        )
    if collnet is None:
        return found
    if not collnet:
        if log.collnet:
            found.append(f"CollNet was off, and yet the log names {listed(log.collnet)}")
        return found
    if set(log.collnet) != {PLUGIN}:
        found.append(f"CollNet should have been {PLUGIN}'s; the log names {listed(log.collnet)}")
    for collective in COLLECTIVES:
        for size in sizes:
            ways = algorithms(log, collective, size)
            if set(ways) != {DIRECT}:
                found.append(
                    f"{collective} of {size} bytes should have run by {DIRECT}; the log names {listed(ways)}"
                )
    return found


def listed(counts: Mapping[str, int]) -> str:
    """Return e.g. "RING (3 times)" or "none"."""
    return ", ".join(f"{name} ({n} times)" for name, n in sorted(counts.items())) or "none"
