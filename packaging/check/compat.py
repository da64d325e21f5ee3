"""What of the Python package works with one version of torch: rows of packaging/compat.ndjson, and their table.

    compat.py 2.11.0    test it, and put its row in the place of an older one of that version
    compat.py --table   write the table of all rows

torch lies in a folder of its own, build/compat/torch-VERSION, and everything else is the environment's. FILES are
the tests of the backend and of training over it, some minutes; other tests are of the library and of what is around.
CUDA_RIG, as for scripts/python-tests, adds the tests of CUDA tensors where that stand-in for CUDA 13 serves the torch.
"""

import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "packaging/compat.ndjson"
DOCUMENT = ROOT / "benchmarks/results/live/README.md"
BEGIN, END = "<!-- BEGIN compat: written by packaging/check/compat.py -->\n", "<!-- END compat -->\n"
FUNCTIONS = "tests/test_entries.py"
FILES = [
    FUNCTIONS,
    *(f"tests/test_{name}.py" for name in ("backend", "process_groups", "allreduce", "layouts", "futures", "ending")),
    *(f"tests/test_{name}.py" for name in ("messages", "reductions", "sparse", "replace")),
    *(f"tests/test_{name}.py" for name in ("failure", "fsdp", "fsdp_moe", "hsdp", "torch_around", "observability")),
]
CUDA_FILES = ["tests/test_device.py", "tests/test_fsdp_device.py"]
ON_CUDA = "import torch; assert torch.ones(3, device='cuda').sum().item() == 3"


def key(version: str) -> list[int]:
    """Return a version as numbers, which sort."""
    return [int(part) for part in version.split(".")]


def put(version: str) -> Path:
    """Put a version of torch into a folder, unless the environment has it, and return the folder."""
    folder = ROOT / "build/compat" / f"torch-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    if version != metadata.version("torch").partition("+")[0]:
        subprocess.run([sys.executable, ROOT / "packaging/check/torch_folder.py", version, folder], check=True)
    asked = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    found = subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout.split("+")[0].strip()
    if found != version:
        raise SystemExit(f"{folder} has torch {found}, not {version}: remove it")
    return folder


def stand_in(folder: Path) -> tuple[dict[str, str], str]:
    """Return the environment in which a torch has CUDA tensors without a GPU, or why it has none."""
    if not (rig := os.environ.get("CUDA_RIG")):
        return {}, "not tried"
    subprocess.run([ROOT / "scripts/cuda-rig"], check=True, stdout=subprocess.DEVNULL)
    runner = Path(rig).resolve() / "torchrig.py"
    env = {"MCAST_TORCH_CUDA": str(runner), "FAKE_CUDA_BUILD": str(ROOT / "build/cuda-rig")}
    script = folder.with_name("on_cuda.py")
    script.write_text(ON_CUDA)
    command = [sys.executable, runner, script]
    tried = subprocess.run(
        command, env={**os.environ, **env, "PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    return (env, "") if tried.returncode == 0 else ({}, tried.stderr.strip().splitlines()[-1])


def outcomes(folder: Path, files: list[str], name: str, *options: str, **env: str) -> list[dict[str, str]]:
    """Run tests over the torch of a folder; return the file, the name, the outcome and the reason of each."""
    log = folder.with_name(f"{name}.jsonl")
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, *options, f"--report-log={log}", *files],
        cwd=ROOT / "python",
        env={**os.environ, **env, "PYTHONPATH": str(folder)},
        stdout=log.with_suffix(".txt").open("w"),
        stderr=subprocess.STDOUT,
    )
    if ended.returncode not in (0, 1):  # of pytest: 1 says that tests failed
        raise SystemExit(f"pytest ended with {ended.returncode}: see {log.with_suffix('.txt')}")
    found = {}
    for line in log.read_text().splitlines():
        report = json.loads(line)
        if report["$report_type"] == "CollectReport" and report["outcome"] == "failed":
            raise SystemExit(f"{report['nodeid']} cannot be collected: see {log.with_suffix('.txt')}")
        if report["$report_type"] != "TestReport":
            continue
        # Of setup, call and teardown, what is not well counts.
        if report["when"] == "call" or report["outcome"] != "passed":
            file, _, name = report["nodeid"].partition("::")
            why = report["longrepr"][2] if report["outcome"] == "skipped" else ""
            found[report["nodeid"]] = {"file": file, "name": name, "outcome": report["outcome"], "why": why}
    return list(found.values())


def count(tests: list[dict[str, str]]) -> dict[str, object]:
    """Return how many passed, the names of what failed, and how often each reason to skip was given."""
    why = Counter(test["why"].removeprefix("Skipped: ") for test in tests if test["outcome"] == "skipped")
    return {
        "passed": sum(test["outcome"] == "passed" for test in tests),
        "failed": [test["name"] for test in tests if test["outcome"] == "failed"],
        "skipped": dict(sorted(why.items())),
    }


def table(rows: list[dict]) -> str:
    """Return the table of the rows."""
    lines = [
        "| torch | functions: passed, failed, not in that torch | other tests: passed, failed, skipped "
        "| CUDA tensors, on a stand-in | failed |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        counts = [row["functions"], row["tests"], row["cuda"]]
        numbers = [c.get("why") or f"{c['passed']}, {len(c['failed'])}, {sum(c['skipped'].values())}" for c in counts]
        failed = ", ".join(f"`{name}`" for c in counts for name in c.get("failed", []))
        lines.append(f"| {row['torch']} | {' | '.join(numbers)} | {failed} |")
    return "\n".join(lines) + "\n"


def read() -> list[dict]:
    """Return the rows that there are."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def main() -> None:
    """Test the version that is named, if one is, and write the table."""
    failed = 0
    if (version := sys.argv[1]) != "--table":
        folder = put(version)
        tests = outcomes(folder, FILES, f"log-{version}", "-m", "not more")
        functions = [test for test in tests if test["file"] == FUNCTIONS]
        env, why = stand_in(folder)
        row = {
            "torch": version,
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "python": sys.version.split()[0],
            "functions": count(functions),
            "tests": count([test for test in tests if test["file"] != FUNCTIONS]),
            "cuda": count(outcomes(folder, CUDA_FILES, f"log-{version}-cuda", **env)) if env else {"why": why},
        }
        before = next((r for r in read() if r["torch"] == version), row)
        if why == "not tried":
            row["cuda"] = before["cuda"]
        if before | {"date": ""} == row | {"date": ""}:
            row = before  # a run with the same results changes nothing
        rows = sorted([*(r for r in read() if r["torch"] != version), row], key=lambda r: key(r["torch"]))
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
        failed = sum(len(row[part].get("failed", [])) for part in ("functions", "tests", "cuda"))
        print(table([row]), end="")
    rows = read()
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2])
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
