"""NCCL's own test programs in the GPU kit: their MPI, and how their output is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))

import nccl_tests

from .limits import LIMIT_S
from .ranks import run_ranks

pytestmark = pytest.mark.more

MPI = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "mpi"
RANKS = 3
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "mpi.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "rank %d: not so: %s\n", rank, #x); return 1; } } while (0)

int main(int argc, char **argv) {
	int rank, size, color;
	MPI_Comm all;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	CHECK(size == 3);
	MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &all);
	MPI_Comm_size(all, &size);
	CHECK(size == 3);
	for (int turn = 0; turn < 200; turn++) {
		double d[2] = {rank + 0.5, turn};
		MPI_Allreduce(MPI_IN_PLACE, d, 2, MPI_DOUBLE, MPI_SUM, all);
		CHECK(d[0] == 4.5 && d[1] == 3.0 * turn);
		long least = turn - rank, most;
		MPI_Allreduce(&least, &most, 1, MPI_LONG, MPI_MAX, all);
		MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_LONG, MPI_MIN, all);
		CHECK(least == turn - 2 && most == turn);
		char text[8] = "";
		if (rank == turn % 3) snprintf(text, sizeof text, "%d", turn);
		MPI_Bcast(text, sizeof text, MPI_BYTE, turn % 3, all);
		char want[8] = "";
		snprintf(want, sizeof want, "%d", turn);
		CHECK(!strcmp(text, want));
		int64_t each[3] = {0};
		each[rank] = rank * turn;
		MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, each, 1, MPI_INT64_T, all);
		CHECK(each[0] == 0 && each[1] == turn && each[2] == 2 * turn);
		int mine = rank + turn, of[3] = {-1, -1, -1};
		MPI_Gather(&mine, 1, MPI_INT, of, 1, MPI_INT, 1, all);
		for (color = 0; color < 3; color++) CHECK(of[color] == (rank == 1 ? color + turn : -1));
	}
	MPI_Comm_free(&all);
	return MPI_Finalize();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("a C compiler (cc) is not installed")
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "main.c").write_text(PROGRAM)
    strict = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{MPI}"]
    built = folder / "program"
    subprocess.run(["cc", *strict, MPI / "mpi.c", folder / "main.c", "-o", built], check=True)
    return built


def test_collectives_of_its_mpi(program: Path, tmp_path: Path) -> None:
    env = {**os.environ, "WORLD_SIZE": str(RANKS), "MPI_FILE": str(tmp_path / "job")}
    assert run_ranks([program], env, RANKS) == ([0] * RANKS, [""] * RANKS)


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ({"RANK": "x"}, "RANK=x is not allowed: want 0 to 64"),
        ({"RANK": "3"}, "RANK is not below WORLD_SIZE"),
        ({"MPI_FILE": "/nowhere/job"}, "MPI_FILE names no file that can be written"),
    ],
)
def test_wrong_settings_of_its_mpi(program: Path, tmp_path: Path, of: dict[str, str], says: str) -> None:
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "3", "MPI_FILE": str(tmp_path / "job"), **of}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, f"mpi: {says}")


def test_lines_of_nccl_tests() -> None:
    text = """# nThread 1 nGpus 1 minBytes 8 maxBytes 67108864
#   size    count   type  redop  root    time  algbw  busbw #wrong    time  algbw  busbw #wrong
#    (B) (elements)                      (us) (GB/s) (GB/s)           (us) (GB/s) (GB/s)
       8        1  float   none    -1   12.34   0.00   0.00      0   11.20   0.00   0.00    N/A
 1048576   131072  float   none    -1  250.10   4.19   2.10      2  249.00   4.21   2.11      0
# Out of bounds values : 1 FAILED
"""
    found = nccl_tests.lines(text)
    assert [(r["bytes"], r["place"], r["time_us"], r["wrong"]) for r in found] == [
        (8, "out of place", 12.34, 0),
        (8, "in place", 11.2, None),
        (1048576, "out of place", 250.1, 2),
        (1048576, "in place", 249.0, 0),
    ]
