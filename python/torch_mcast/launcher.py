"""Where ranks meet that mpirun or srun has started: init_method="launcher://".

torch itself reads only what torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). This
rendezvous takes those where they are, else the variables of the launcher that started the process.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous as meet

from . import errors

SCHEME = "launcher"


@dataclass(frozen=True)
class Launcher:
    """The variables of one kind of launcher."""

    name: str
    rank: str
    size: str
    local: str  # the number of ranks on this host
    job: tuple[str, ...]  # together they name the job
    also: str = ""  # must be set, or the variables mean something else
    nodes: tuple[str, ...] = ()  # the job's hosts, rank 0's first


# torchrun may itself be started by one of these, and is asked before them.
LAUNCHERS = (
    Launcher(
        "mpirun (OpenMPI)",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    Launcher("mpiexec (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_JOBID",)),
    Launcher(
        "srun",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_TASKS_PER_NODE",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        also="SLURM_STEP_ID",  # a batch script has SLURM_PROCID too, but is no step
        nodes=("SLURM_STEP_NODELIST", "SLURM_NODELIST"),
    ),
)


@dataclass(frozen=True)
class Place:
    """Which rank this process is, of how many, and where rank 0's store listens."""

    rank: int
    size: int
    host: str
    port: int


def place(environ: Mapping[str, str] = os.environ) -> Place:
    """Return what the launcher of this process says.

    MASTER_ADDR and MASTER_PORT say where rank 0's store listens. Without the first it is on loopback
    if all ranks are on this host, else on the first of srun's nodes; without the second its port comes
    from the job's name, between 16384 and 32767.

    Raises:
        ArgumentError: no launcher started this process, or a variable of its is not usable.
    """
    for launcher in LAUNCHERS:
        if launcher.rank not in environ or launcher.size not in environ:
            continue
        if launcher.also and launcher.also not in environ:
            continue
        size = _number(environ, launcher.size, 1, 1 << 20, "a number of ranks")
        rank = _number(environ, launcher.rank, 0, size - 1, "a rank")
        return Place(rank, size, _host(launcher, environ, size), _port(launcher, environ))
    names = ", ".join(f"{launcher.rank} ({launcher.name})" for launcher in LAUNCHERS)
    raise errors.ArgumentError(
        f"{SCHEME}:// finds no launcher of this process: want RANK and WORLD_SIZE (torchrun), or {names}"
    )


def rendezvous(
    url: str, timeout: timedelta = timedelta(minutes=5), **_: Any
) -> Iterator[tuple[Store, int, int]]:
    """Yield the store, this rank and the number of ranks; torch.distributed calls this."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        yield from meet("env://", timeout=timeout)
        return
    here = place()
    tcp = f"tcp://{_bracketed(here.host)}:{here.port}"
    yield from meet(tcp, here.rank, here.size, timeout=timeout)


def _host(launcher: Launcher, environ: Mapping[str, str], size: int) -> str:
    if given := environ.get("MASTER_ADDR"):
        return given
    if environ.get(launcher.local) == str(size):
        return "127.0.0.1"
    for name in launcher.nodes:
        if environ.get(name):
            return first_node(environ[name])
    raise errors.ArgumentError(
        f"{launcher.name} does not say where rank 0 is, and not all ranks are on this host: want "
        "MASTER_ADDR, the name or address of rank 0's host, on all ranks (mpirun -x MASTER_ADDR=HOST)"
    )


def _port(launcher: Launcher, environ: Mapping[str, str]) -> int:
    if environ.get("MASTER_PORT"):
        return _number(environ, "MASTER_PORT", 1, 65535, "a port")
    job = [environ[name] for name in launcher.job if environ.get(name)]
    if not job:
        raise errors.ArgumentError(
            f"{launcher.name} does not name the job ({' and '.join(launcher.job)}), from which a port is "
            "made: want MASTER_PORT, the same on all ranks"
        )
    # Below the ports that the kernel gives out by itself.
    return 16384 + zlib.crc32("\n".join(job).encode()) % 16384


def _number(environ: Mapping[str, str], name: str, least: int, most: int, what: str) -> int:
    text = environ[name]
    if not text.isdecimal() or not least <= int(text) <= most:
        raise errors.ArgumentError(f"{name}={text!r} is not allowed: want {what} from {least} to {most}")
    return int(text)


def first_node(nodes: str) -> str:
    """Return the first of a list of Slurm's, such as gpu[007-009,012]-ib,login1."""
    first = nodes.split(",", 1)[0]
    if "[" not in first:
        return first
    before, _, rest = nodes.partition("[")
    numbers, _, after = rest.partition("]")
    return before + numbers.split(",")[0].split("-")[0] + after.split(",")[0]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
