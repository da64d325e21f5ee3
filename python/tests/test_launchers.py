"""What ranks make of a launcher's variables, and the examples under the launchers that cost little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.rendezvous import rendezvous

from torch_mcast import errors, launcher
from torch_mcast.launcher import Place, place

from .limits import LIMIT_S
from .ports import held

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "70",
}
SRUN = {
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[007-008]-ib",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
}
AT = {"MASTER_ADDR": "host0", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        (OPENMPI | AT, Place(1, 4, "host0", 29500)),
        (OPENMPI, Place(1, 4, "127.0.0.1", 16999)),
        (OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"} | AT, Place(1, 4, "host0", 29500)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"} | AT, Place(0, 2, "host0", 29500)),
        (SRUN, Place(2, 4, "gpu007-ib", 29217)),
        (SRUN | {"MASTER_ADDR": "gpu8"}, Place(2, 4, "gpu8", 29217)),
        (SRUN | {"SLURM_TASKS_PER_NODE": "4"}, Place(2, 4, "127.0.0.1", 29217)),
        (OPENMPI | SRUN | AT, Place(1, 4, "host0", 29500)),  # srun has started mpirun's daemons
    ],
)
def test_where_a_launcher_puts_this_process(environ: dict[str, str], want: Place) -> None:
    assert place(environ) == want


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({}, r"no launcher .* RANK and WORLD_SIZE"),
        ({k: v for k, v in SRUN.items() if k != "SLURM_STEP_ID"} | AT, "no launcher"),  # a batch script
        (OPENMPI | {"OMPI_COMM_WORLD_RANK": "4"} | AT, r"OMPI_COMM_WORLD_RANK='4' .* from 0 to 3"),
        (SRUN | {"SLURM_NTASKS": "many"}, r"SLURM_NTASKS='many' .* from 1 to"),
        (OPENMPI | AT | {"MASTER_PORT": "70000"}, r"MASTER_PORT='70000' .* from 1 to 65535"),
        (OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, r"where rank 0 is.*-x MASTER_ADDR=HOST"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MASTER_ADDR": "a"}, r"PMI_JOBID.*want MASTER_PORT"),
    ],
)
def test_variables_that_are_not_usable(environ: dict[str, str], want: str) -> None:
    with pytest.raises(errors.ArgumentError, match=want):
        place(environ)


def test_the_first_of_slurms_nodes() -> None:
    for nodes, want in {
        "a": "a",
        "a,b": "a",
        "gpu[007-009,012]-ib,login1": "gpu007-ib",
        "x,gpu[1-2]": "x",
        "n[3,5]": "n3",
    }.items():
        assert launcher.first_node(nodes) == want


@pytest.mark.parametrize(
    "environ", [SRUN | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, SRUN | {"RANK": "0", "WORLD_SIZE": "1"}]
)
def test_the_store(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """A rank that is alone, which srun has started, or torchrun under srun."""
    with held() as port:
        for name, value in (environ | {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}).items():
            monkeypatch.setenv(name, value)
        store, rank, size = next(rendezvous("launcher://"))
        assert (rank, size) == (0, 1)
        store.set("key", "value")
        assert store.get("key") == b"value"


def example(name: str, *args: str) -> str:
    """Run an example, and return its output."""
    ran = subprocess.run(
        [EXAMPLES / name / "run", *args],
        env=os.environ | {"PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return ran.stdout


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes network namespaces")


@pytest.mark.more
@needs_root
def test_torchrun_starts_again_from_the_checkpoint() -> None:
    said = example("torchrun", "restart")
    assert "[1] rank 1, process " in said
    assert "killing this rank" in said
    assert "rank 1 is lost" in said
    assert said.count("[0] 2 ranks, fabric udp, Allgather by multicast") == 2
    assert "[0] 2 steps were done before" in said
    assert "weights are gloo's" in said


@pytest.mark.more
@needs_root
def test_mpirun_on_two_hosts() -> None:
    said = example("mpirun", "hosts")
    assert "4 ranks, fabric udp, Allgather by multicast" in said
    assert "weights are gloo's" in said


@pytest.mark.more
def test_manifests_are_as_their_schemas_say(tmp_path: Path) -> None:
    said = example("kubernetes")
    for kind in ("PyTorchJob", "TrainJob", "TrainingRuntime", "JobSet"):
        assert said.count(f": {kind} ") == 1
    broken = tmp_path / "broken.yaml"
    jobset = (EXAMPLES / "kubernetes" / "jobset.yaml").read_text()
    broken.write_text(jobset.replace("completionMode", "completionMood"))
    run = EXAMPLES / "kubernetes" / "run"
    ran = subprocess.run([run, broken], capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 1
    assert "completionMood" in ran.stderr
