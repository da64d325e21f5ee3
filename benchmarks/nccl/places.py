"""Where NCCL is compared: ranks on a testbed of this machine, or on real GPUs.

On a testbed the ranks are `rigdriver`, linked to a libnccl.so.2 that is NVIDIA's host code with an
emulation of the kernels in place of a GPU. On GPUs they are nccl-tests, started by any launcher, such
as mpirun.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MCAST = ROOT / "bin" / "mcast"
LAB = ROOT / "bin" / "mcast-lab"
LIBRARY = ROOT / "lib" / "libnccl-net-mcast.so"
COLLECTIVES = ("allgather", "reducescatter", "both")
COUNTED = {"allgather": "ag", "reducescatter": "rs", "allreduce": "ar"}  # and the rig's names


class Failed(Exception):
    """A run did not go as it must."""


@dataclass(frozen=True)
class Way:
    """How NCCL is run: its variables, and whether there is a switch and buffers are registered."""

    env: dict[str, str]
    switch: bool = False
    registered: bool = False


_OURS = {"NCCL_NET": "mcast", "NCCL_NET_PLUGIN": str(LIBRARY)}
_COLLNET = {**_OURS, "NCCL_COLLNET_ENABLE": "1"}
_ALWAYS = {**_COLLNET, "MCAST_TUNER_ALLGATHER": "1", "MCAST_TUNER_REDUCE_SCATTER": "1"}
_COHERENT = {"MCAST_GPU_MEMORY": "coherent", "NCCL_NET_GDR_LEVEL": "SYS"}
WAYS = {
    "socket": Way({"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_ALGO": "Ring"}),
    "plugin": Way(_OURS),  # and nothing else set
    "collnet": Way(_COLLNET),  # the tuner chooses
    "direct": Way(_ALWAYS),  # CollNet for all, and Reduce-Scatters between the hosts
    "switch": Way(_COLLNET, switch=True),
    "in-flight": Way({**_COLLNET, "NCCL_BUFFSIZE": str(32 << 20)}, switch=True),
    "registered": Way({**_ALWAYS, **_COHERENT}, registered=True),
    "switch-registered": Way({**_COLLNET, **_COHERENT}, switch=True, registered=True),
}
DEFAULT_WAYS = ["socket", "plugin", "collnet", "direct", "switch", "in-flight", "switch-registered"]


@dataclass
class Measured:
    """What one run has shown: times in microseconds by (collective, bytes a rank), and the logs."""

    times: dict[tuple[str, int], float] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    command: str = ""
    sent: float = 0  # bytes of frames at the busiest host's link, an operation, where they were counted
    received: float = 0
    iters: int = 0  # how many are timed, if not as many as was asked for


def clean() -> dict[str, str]:
    """Return the environment without what would change a way."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "MCAST_"))}


def built() -> str | None:
    """Return what has not been built, or None."""
    for path in (MCAST, LAB, LIBRARY):
        if not path.is_file():
            return f"{path.relative_to(ROOT)}: run `make build`"
    return None


def run(words: list[str], env: dict[str, str], limit: float) -> str:
    """Run a command and return its output. Raises Failed."""
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"not done after {limit:g} s: {' '.join(words)}") from e
    if done.returncode != 0:
        said = (done.stdout[-1500:] + done.stderr[-3000:]).strip()
        raise Failed(f"ended with {done.returncode}: {' '.join(words)}\n{said}")
    return done.stdout


@dataclass(frozen=True)
class Driven:
    """One run of the rig: what rank 0 wrote, NCCL's logs, and what was run."""

    text: str
    logs: list[str]
    command: str


# Off: features that the rig does not emulate, and transports within a host, which are not measured here.
_RIG = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_PROTO": "Simple",
    "NCCL_PAT_ENABLE": "0", "NCCL_P2P_LL_THRESHOLD": "0", "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "1",
    "NCCL_RAS_ENABLE": "0", "NCCL_MAX_CTAS": "2",
    "RIG_NAP": "100",  # us: an emulated kernel that waits leaves the core to others
}  # fmt: skip

# Several GPUs a node: they share their data in memory, and have an NVSwitch, without which NCCL before 2.31
# has no CollNet there.
_SEVERAL = {"NCCL_SHM_DISABLE": "0", "FAKENVML_NVSWITCH": "18"}


class Testbed:
    """Hosts of this machine, each with so many ranks, and the rig in a folder."""

    name = "testbed"

    def __init__(self, rig: Path | None, beside: bool = False, per_host: int = 1) -> None:
        self.rig, self.beside, self.per_host, self.bed, self.ranks = rig, beside, per_host, "", 0

    def missing(self) -> str | None:
        """Return in one line what this machine lacks, or None."""
        if self.rig is None:
            return "the rig: NCCL_RIG=DIR or --rig DIR, a folder with rigdriver and its libnccl.so.2"
        for file in ("rigdriver", "libnccl.so.2"):
            if not (self.rig / file).is_file():
                return f"{file} in {self.rig}: NCCL_RIG or --rig is the folder in which the rig was built"
        if os.geteuid() != 0:
            return "root, without whom there is no testbed"
        if (lack := built()) is not None:
            return lack
        status = run([str(LAB), "testbed", "status"], clean(), 60).strip()
        if "no testbed is up" not in status and not self.beside:
            return f"a quiet machine: {status.splitlines()[0]} (--beside measures all the same)"
        return None

    @contextmanager
    def hosts(self, count: int, rate: str) -> Iterator[None]:
        """Build a testbed for a while."""
        self.bed, self.ranks = f"nccl-{os.getpid()}", count * self.per_host
        up = [str(LAB), "testbed", "up", "--name", self.bed, "--hosts", str(count)]
        up += ["--rate", rate] if rate != "unlimited" else []
        try:
            run(up, clean(), 120)
            yield
        finally:
            subprocess.run([str(LAB), "testbed", "down", "--name", self.bed], env=clean(), check=True)

    def measure(self, way: Way, sizes: list[int], iters: int, limit: float) -> Measured:
        """Run one way once, at all sizes: each collective on one communicator, both on two. Raises Failed."""
        measured = Measured()
        for first, last, factor in stretches(sizes):
            alone = ["-c", "ag,rs", "-t", "f32", "-m", "out"]  # sizes are of all ranks
            for what, ranks, read in (alone, self.ranks, read_alone), (["-A"], 1, read_both):
                words = [*what, "-b", str(first * ranks), "-e", str(last * ranks), "-f", f"{factor:g}"]
                done = self.drive(way, [*words, "-i", str(iters), "-w", "1"], limit)
                measured.times |= {(name, size // ranks): us for (name, size), us in read(done.text).items()}
                measured.logs += done.logs
                measured.command = done.command
        return measured

    def count(self, way: Way, collective: str, size: int, ranks: int, limit: float) -> Measured:
        """Count the bytes at links for an operation of so many bytes a rank; an Allreduce has all ranks'.

        The result is the difference of two runs; the second has two operations more. Raises Failed.
        """
        more, runs, total = 2, [], str(ranks * size)
        if collective == "allreduce" and self.per_host > 1 and "NCCL_COLLNET_ENABLE" in way.env:
            way = replace(way, env=way.env | {"NCCL_ALGO": "allreduce:collnetdirect"})  # the rig has no chain
        for iters in (1, 1 + more):
            words = ["-c", COUNTED[collective], "-b", total, "-e", total, "-i", str(iters), "-w", "1"]
            before = self.counters()
            done = self.drive(way, words, limit)
            runs.append([now - then for now, then in zip(self.counters(), before, strict=True)])
        each = [(many - few) / more for few, many in zip(*runs, strict=True)]
        times = {(collective, size): next(iter(read_alone(done.text).values()))}
        return Measured(times, done.logs, done.command, max(each[::2]), max(each[1::2]), 1 + more)

    def counters(self) -> list[int]:
        """Return what each host has sent and received, by turns."""
        text = run([str(LAB), "testbed", "counters", "--name", self.bed, "--json"], clean(), 60)
        ports = [json.loads(line) for line in text.splitlines()]
        nics = [port for port in ports if port["kind"] == "host NIC"]
        return [port[what] for port in nics for what in ("sent_bytes", "received_bytes")]

    def launch(self, words: list[str], env: dict[str, str], limit: float) -> str:
        """Run the launcher of the ranks and return what rank 0 has written. Raises Failed."""
        return run(words, env, limit)

    def drive(self, way: Way, words: list[str], limit: float) -> Driven:
        """Run the rig once with some options. Raises Failed."""
        assert self.rig is not None
        with tempfile.TemporaryDirectory(prefix="mcast-nccl-") as scratch:
            head = [str(self.rig / "rigdriver"), "-X", f"{scratch}/shared", "-T", f"{limit:.0f}"]
            head += ["-g", str(self.per_host)] if self.per_host > 1 else []
            words = [*head, *words] + ["-R"] * way.registered
            env = _RIG | (_SEVERAL if self.per_host > 1 else {}) | way.env | {
                "LD_LIBRARY_PATH": str(self.rig),
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING,COLL",
                "NCCL_DEBUG_FILE": f"{scratch}/nccl.%p.log",
            }  # fmt: skip
            if way.registered:
                env["FAKECUDA_GDR"] = "1"
            head = [str(LAB), "testbed", "run", "--name", self.bed, "--per-host", str(self.per_host)]
            head += ["--switch"] * way.switch
            sets = [f"{k}={v}" for k, v in env.items()]
            text = self.launch([*head, "--", "env", *sets, *words], clean(), limit + 60)
            logs = [p.read_text(errors="replace") for p in sorted(Path(scratch).glob("nccl.*.log"))]
        return Driven(text, logs, command(words, way))


class GPUs:
    """Real GPUs: nccl-tests, started by a launcher with one rank a GPU."""

    name = "gpus"

    def __init__(self, tests: Path | None, launcher: list[str], ranks: int) -> None:
        self.tests, self.launcher, self.ranks = tests, launcher, ranks

    def program(self, name: str) -> str | None:
        """Return the path of a program of nccl-tests, or None."""
        return shutil.which(name, path=None if self.tests is None else str(self.tests))

    def missing(self) -> str | None:
        """Return in one line what this machine lacks, or None."""
        smi = shutil.which("nvidia-smi")
        if smi is None or subprocess.run([smi, "-L"], capture_output=True, check=False).returncode != 0:
            return "a GPU: nvidia-smi shows none"
        for name in ("all_gather_perf", "reduce_scatter_perf"):
            if self.program(name) is None:
                return f"{name} of nccl-tests: NCCL_TESTS=DIR, --tests DIR, or on the PATH"
        if not self.launcher:
            return 'how to start ranks on several nodes: --launcher "mpirun -np 4 -H a,b,c,d" --ranks 4'
        return built()

    @contextmanager
    def hosts(self, count: int, rate: str) -> Iterator[None]:
        """Take the hosts that the launcher knows, as they are."""
        yield

    def measure(self, way: Way, sizes: list[int], iters: int, limit: float) -> Measured:
        """Run one way once, at all sizes; nccl-tests runs one collective at a time. Raises Failed."""
        measured = Measured()
        env = way.env | {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING"}
        if way.switch:
            env["MCAST_SWITCH"] = os.environ["MCAST_SWITCH"]
        for collective, name in (("allgather", "all_gather_perf"), ("reducescatter", "reduce_scatter_perf")):
            for first, last, factor in stretches(sizes):
                words = [str(self.program(name)), "-b", str(first * self.ranks), "-e", str(last * self.ranks)]
                words += ["-f", f"{factor:g}", "-g", "1", "-n", str(iters), "-w", "2", "-c", "1"]
                words += ["-R", "1"] * way.registered
                sets = [f"{k}={v}" for k, v in env.items()]
                text = run([*self.launcher, "env", *sets, *words], dict(os.environ), limit)
                measured.logs.append(text)
                for size, time in read_tests(text).items():
                    measured.times[collective, size // self.ranks] = time
                measured.command = command(words, way)
        return measured


def stretches(sizes: list[int]) -> list[tuple[int, int, float]]:
    """Return runs (first, last, factor) that make the sizes: one if they are a geometric series."""
    sizes = sorted(set(sizes))
    factors = {b / a for a, b in itertools.pairwise(sizes)}
    if len(factors) <= 1:
        return [(sizes[0], sizes[-1], factors.pop() if factors else 2.0)]
    return [(size, size, 2.0) for size in sizes]


def command(words: list[str], way: Way) -> str:
    """Return what the ranks run, without where it lies on this machine."""
    sets = [f"{k}={Path(v).name}" for k, v in way.env.items()]
    kept = [Path(w).name if w.startswith("/") else w for w in words]
    return " ".join([*sets, *kept]) + (" (through mcast switch)" if way.switch else "")


def results(text: str) -> list[list[str]]:
    """Return the words of the rig's lines of results. Raises Failed."""
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    lines = [words for words in lines if len(words) == 8 and words[0].isdigit()]
    if not lines:
        raise Failed(f"no line of results in {text[-500:]!r}")
    for words in lines:
        if int(words[7]) != 0:
            raise Failed(f"{words[7]} bytes are wrong: {' '.join(words)}")
    return lines


def read_both(text: str) -> dict[tuple[str, int], float]:
    """Read the table of `rigdriver -A`: microseconds of both collectives at once."""
    return {("both", int(words[0])): float(words[3]) * 1e3 for words in results(text)}


def read_alone(text: str) -> dict[tuple[str, int], float]:
    """Read the table of `rigdriver -c`: microseconds by collective and bytes of all ranks."""
    return {(words[1].replace("_", ""), int(words[0])): float(words[4]) for words in results(text)}


def read_tests(text: str) -> dict[int, float]:
    """Read the table of nccl-tests: microseconds, out of place, by the size that it prints."""
    times: dict[int, float] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 13 or not words[0].isdigit() or not words[1].isdigit():
            continue
        if words[8] != "0":
            raise Failed(f"{words[8]} elements are wrong at {words[0]} bytes")
        times[int(words[0])] = float(words[5])
    if not times:
        raise Failed(f"no line of results in {text[-500:]!r}")
    return times
