"""Run the trainings beside it over gloo and over torch-mcast; compare, print a table, and write rows.

examples/frameworks/run calls it, with a Python that has the frameworks.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "frameworks" / "frameworks.ndjson"
FABRICS = ("shm", "udp")
REPLACE = "MCAST_REPLACE=gloo"
LIMIT_S = 300.0


@dataclass(frozen=True)
class Row:
    """A framework, the program that trains with it, and the line that has it use torch-mcast."""

    framework: str
    package: str
    program: str
    line: str
    ranks: int = 2  # 0: the program starts its ranks

    @property
    def replaces(self) -> bool:
        """Say whether the program goes on to say gloo."""
        return REPLACE in self.line


INIT = 'dist.init_process_group("mcast")'
ROWS = (
    Row("HF Trainer, DDP", "transformers", "transformers_ddp", f'{REPLACE}, with `ddp_backend="gloo"`'),
    Row("HF models, FSDP2", "transformers", "transformers_fsdp2", f"`{INIT}`"),
    Row("Accelerate, DDP", "accelerate", "accelerate_ddp", f"{REPLACE}"),
    Row("Accelerate, FSDP2", "accelerate", "accelerate_fsdp2", '`InitProcessGroupKwargs(backend="mcast")`'),
    Row("TRL, SFTTrainer", "trl", "trl_sft", f'{REPLACE}, with `ddp_backend="gloo"`'),
    Row("Lightning Trainer", "lightning", "lightning_trainer", '`DDPStrategy(process_group_backend="mcast")`'),
    Row("Lightning Fabric", "lightning", "lightning_fabric", '`DDPStrategy(process_group_backend="mcast")`'),
    Row("Ray Train", "ray", "ray_train", '`TorchConfig(backend="mcast")`', ranks=0),
    Row("DeepSpeed, ZeRO-1, 2 and 3", "deepspeed", "deepspeed_zero", '`init_distributed(dist_backend="mcast")`'),
    Row("torchtitan, Llama", "torchtitan", "torchtitan_llama", REPLACE),
    Row("torchft, DDP", "torchft-nightly", "torchft_ddp", "a class of 8 lines"),
    Row("torchao, float8 under FSDP2", "torchao", "torchao_float8", f"`{INIT}`"),
    Row("checkpoints (DCP), sync and async", "torch", "checkpoints", f"`{INIT}`"),
    Row("pipelines: GPipe, 1F1B", "torch", "pipelines", f"`{INIT}`"),
    Row("tensor parallel in FSDP2, 2-D mesh", "torch", "tensor_parallel", f"`{INIT}`", ranks=4),
    Row("torch.compile, FSDP2 and DDP", "torch", "compiled", f"`{INIT}`"),
)


def run(row: Row, over: str, scratch: Path) -> dict[str, Any]:
    """Train once, over gloo or over a fabric, and return what rank 0 reported, or why it did not."""
    result = scratch / f"{row.program}.{over}.json"
    backend = "gloo" if over == "gloo" or row.replaces else "mcast"
    environment = os.environ | {"MCAST_FABRIC": over if over in FABRICS else "auto"}
    environment.pop("MCAST_REPLACE", None)
    if row.replaces and over != "gloo":
        environment["MCAST_REPLACE"] = "gloo"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(row.ranks)]
    program = [str(HERE / f"{row.program}.py"), backend, str(result)]
    began = time.monotonic()
    log = scratch / f"{row.program}.{over}.log"
    started = subprocess.Popen(
        [sys.executable, *(torchrun if row.ranks else []), *program],
        env=environment,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        code: int | str = started.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        started.terminate()  # torchrun ends its ranks then, which are in sessions of their own
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(60)
        started.kill()
        code = f"none after {LIMIT_S:g} s"
    said = log.read_text()
    if code or not result.exists():
        print(said[-3000:], file=sys.stderr)
        return {"ran_on": "", "failed": f"exit status {code}"}
    return json.loads(result.read_text()) | {"seconds": round(time.monotonic() - began, 1)}


def verdict(runs: dict[str, dict[str, Any]]) -> str:
    """Say how the runs of a row compare."""
    failed = [over for over, run in runs.items() if run["ran_on"] != over]
    if failed:
        return f"failed over {', '.join(failed)}"
    same = all((run["losses"], run["weights"]) == (runs["gloo"]["losses"], runs["gloo"]["weights"])
               for run in runs.values())  # fmt: skip
    return "same" if same else "other bits"


def main() -> None:
    """Run rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(r.program for r in ROWS)}")
    parser.add_argument("--scratch", type=Path, required=True)
    args = parser.parse_args()
    if unknown := set(args.names) - {row.program for row in ROWS}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    version = importlib.metadata.version
    results = []
    for row in [row for row in ROWS if row.program in args.names or not args.names]:
        runs = {over: run(row, over, args.scratch) for over in ("gloo", *FABRICS)}
        results.append(
            {
                "row": row.program,
                "framework": row.framework,
                "version": version(row.package),
                "line": row.line,
                "result": verdict(runs),
                "runs": runs,
                "command": f"examples/frameworks/run {row.program}",
                "date": datetime.now(timezone.utc).date().isoformat(),
                "torch": version("torch"),
                "torch_mcast": version("torch-mcast"),
            }
        )
        print(f"{row.framework} {results[-1]['version']}: {results[-1]['result']}", flush=True)
    print("\n| framework | version | what you write | result |\n|---|---|---|---|")
    for each in results:
        print(f"| {each['framework']} | {each['version']} | {each['line']} | {each['result']} |")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    before = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = {row["row"]: row for row in (*map(json.loads, before), *results)}
    RESULTS.write_text("".join(f"{json.dumps(rows[r.program])}\n" for r in ROWS if r.program in rows))
    if bad := [each["row"] for each in results if each["result"] != "same"]:
        sys.exit(f"not as over gloo: {', '.join(bad)}")


if __name__ == "__main__":
    main()
