"""A torch.distributed backend with an Allgather by multicast.

import torch_mcast
dist.init_process_group("mcast")
torch_mcast.fsdp.enable(model)      # FSDP2: overlap Allgather, Reduce-Scatter and compute
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from .counters import Stats
from .errors import (
    ArgumentError,
    BusyError,
    ClosedError,
    ForkError,
    InternalError,
    LibraryError,
    McastError,
    MismatchError,
    RankError,
    UnavailableError,
    UnsupportedError,
    WaitTimeoutError,
)
from .group import Info, Peer

if TYPE_CHECKING:
    from . import debug, fsdp, nccl

__version__ = Path(__file__).with_name("VERSION").read_text().strip()

__all__ = [
    "ArgumentError",
    "BusyError",
    "ClosedError",
    "ForkError",
    "Info",
    "InternalError",
    "LibraryError",
    "McastError",
    "MismatchError",
    "Options",
    "Peer",
    "RankError",
    "Stats",
    "UnavailableError",
    "UnsupportedError",
    "WaitTimeoutError",
    "debug",
    "dump_flight_recorder",
    "dump_trace",
    "fsdp",
    "info",
    "nccl",
    "register_memory",
    "stats",
]


def _autoload() -> None:
    """Register the backend; torch calls this at import through the entry point torch.backends."""
    from .registry import register

    register()


def __getattr__(name: str) -> object:
    # FSDP is a large import, and this module is imported whenever torch is.
    if name in ("debug", "fsdp", "nccl"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Importing torch calls _autoload, which must exist by then.
import torch  # noqa: E402, F401

from .options import Options  # noqa: E402
from .recorder import write as dump_flight_recorder  # noqa: E402
from .registry import info, register_memory, stats  # noqa: E402
from .trace import dump as dump_trace  # noqa: E402

_autoload()
