"""Who is compared: torch's backends, and for NCCL the networks that it goes over.

Every rank is a node of its own to NCCL (NCCL_HOSTID), so that its bytes go through the network, as they
would between hosts.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "lib" / "libnccl-net-mcast.so"
LAB = ROOT / "bin" / "mcast-lab"
KEPT = ("NCCL_SOCKET_IFNAME",)  # of the caller's NCCL_ variables
_PLUGIN = {"NCCL_NET": "mcast", "NCCL_NET_PLUGIN": "mcast"}


@dataclass(frozen=True)
class Contender:
    """A way to communicate.

    Attributes:
        backend: torch's.
        env: variables that select it.
        network: what NCCL calls the network that it then uses; "" without NCCL.
        collnet: whether Allgathers and Reduce-Scatters must go through CollNet; None: the tuner chooses.
    """

    backend: str
    env: Mapping[str, str] = field(default_factory=dict)
    network: str = ""
    collnet: bool | None = False

    @property
    def nccl(self) -> bool:
        """Whether this is NCCL."""
        return self.backend == "nccl"


CONTENDERS = {
    "mcast": Contender("mcast"),  # shared memory, since all ranks are on one host
    "mcast-udp": Contender("mcast", {"MCAST_FABRIC": "udp"}),  # as between hosts
    "gloo": Contender("gloo"),
    "nccl-socket": Contender("nccl", {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}, "Socket"),
    "nccl-net": Contender("nccl", _PLUGIN, "mcast"),  # Ring, over the plugin's messages
    "nccl-tuner": Contender("nccl", {**_PLUGIN, "NCCL_COLLNET_ENABLE": "1"}, "mcast", None),
    "nccl-collnet": Contender(
        "nccl",
        {
            **_PLUGIN,
            "NCCL_COLLNET_ENABLE": "1",
            "MCAST_TUNER_ALLGATHER": "1",
            "MCAST_TUNER_REDUCE_SCATTER": "1",
        },
        "mcast",
        True,
    ),
}


def missing(contenders: list[str], cpu: bool, emulated: bool, library: Path = LIBRARY) -> str | None:
    """Return in one sentence what this machine lacks for these contenders, or None."""
    if importlib.util.find_spec("torch") is None:
        return f"torch for {sys.executable}: run `make setup`, or set PYTHON to one that has it"
    import torch
    import torch.distributed as dist

    nccl = [name for name in contenders if CONTENDERS[name].nccl]
    if any(CONTENDERS[name].backend != "gloo" for name in contenders) and not library.is_file():
        return f"{library.name} in {library.parent.name}/: run `make build`"
    if nccl and (cpu or emulated):
        return f"a GPU: {', '.join(nccl)} need one; choose others with --contenders"
    if cpu or emulated:
        return None
    if not torch.cuda.is_available():
        return (
            f"a GPU: torch {torch.__version__} finds none that it can use; one of NVIDIA's with a driver "
            "for CUDA 11.7 or newer is needed (--cpu tries this program out without)"
        )
    if nccl and not dist.is_nccl_available():
        return f"NCCL: torch {torch.__version__} is built without it"
    if nccl and torch.cuda.nccl.version() < (2, 25):  # type: ignore[no-untyped-call]
        version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        return f"NCCL 2.25 or newer, whose log names the algorithm: torch {torch.__version__} has {version}"
    return None


def environment(name: str, rank: int, args: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Return the environment of a rank: the caller's, without what would change the contender."""
    contender = CONTENDERS[name]
    env = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_") or k in KEPT}
    paths = [str(ROOT / "python"), *filter(None, [env.get("PYTHONPATH")])]
    env |= {
        "PYTHONPATH": ":".join(paths),
        "MCAST_LIBRARY": str(LIBRARY),
        "RANK": str(rank),
        "WORLD_SIZE": str(args.ranks),
        "LOCAL_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0" if args.testbed else "lo",
    }
    env["MCAST_IFACE"] = env["GLOO_SOCKET_IFNAME"]
    if args.cpu:
        return {**env, **contender.env, **dict(args.env)}
    env |= {
        "CUDA_VISIBLE_DEVICES": args.devices[rank % len(args.devices)],
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # sums of matrices the same in every run
    }
    if contender.nccl:
        env.setdefault("NCCL_SOCKET_IFNAME", "eth0" if args.testbed else "lo")
        paths = [str(LIBRARY.parent), *filter(None, [env.get("LD_LIBRARY_PATH")])]
        env |= {
            "LD_LIBRARY_PATH": ":".join(paths),
            "NCCL_HOSTID": f"r{rank}",
            "NCCL_MNNVL_ENABLE": "0",
            "NCCL_MAX_CTAS": "4",
            "NCCL_NET_PLUGIN_REF_COUNT": "1",  # 2.28.3 to 2.29.7 forget the plugin's name
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,TUNING",
            "NCCL_DEBUG_FILE": str(folder / f"nccl.{rank}.log"),
        }
    return {**env, **contender.env, **dict(args.env)}
