#!/usr/bin/env python3
"""Count the instructions that the receive kernel takes for a completion, under an emulator.

The kernel (internal/receive/kernel.c) and a NIC for it (nic.c) are compiled for a processor and run in the
unicorn engine, which counts the instructions of the kernel while it receives 8 MiB in chunks of 4 KiB.
Prints the table of docs/project/reproduction.md; --out writes the rows to a file.
"""

import argparse
import importlib.metadata
import json
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import unicorn
from unicorn import riscv_const, x86_const

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "fsdp"))
from machine import commit  # noqa: E402

SOURCES = ("internal/receive/kernel.c", "benchmarks/receive/nic.c")
FLAGS = "-std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-stack-protector -fno-pie"
LINK = "-nostdlib -static -no-pie -Wl,--no-relax,--entry=run,-z,separate-code"
BUFFER, CHUNK = 8 << 20, 4096
BATCHES = (1, 64)  # completions that are there when the kernel is called
PAGE = 4096
STACK, STACK_BYTES, RETURN = 0x70000000, 1 << 20, 0x7F000000
LIMIT_US = 600_000_000  # for one run


@dataclass(frozen=True)
class Processor:
    """A processor to compile for, and how a function is called on it."""

    name: str
    compiler: str
    package: str  # of Debian, that has the compiler
    flags: str
    engine: tuple[int, int]
    arguments: tuple[int, int, int]
    result: int
    stack: int
    link: int | None  # the register of the return address; None: it is on the stack

    def version(self) -> str | None:
        """Return the first line of what the compiler says of itself, None if there is no such compiler."""
        return output(self.compiler, "--version").splitlines()[0] if shutil.which(self.compiler) else None


PROCESSORS = (
    Processor(
        name="riscv64",
        compiler="riscv64-linux-gnu-gcc",
        package="gcc-riscv64-linux-gnu",
        flags="-march=rv64imac -mabi=lp64 -mcmodel=medany",
        engine=(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64),
        arguments=(riscv_const.UC_RISCV_REG_A0, riscv_const.UC_RISCV_REG_A1, riscv_const.UC_RISCV_REG_A2),
        result=riscv_const.UC_RISCV_REG_A0,
        stack=riscv_const.UC_RISCV_REG_SP,
        link=riscv_const.UC_RISCV_REG_RA,
    ),
    Processor(
        name="x86-64",
        compiler="x86_64-linux-gnu-gcc",
        package="gcc",
        flags="-march=x86-64 -fcf-protection=none",
        engine=(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64),
        arguments=(x86_const.UC_X86_REG_RDI, x86_const.UC_X86_REG_RSI, x86_const.UC_X86_REG_RDX),
        result=x86_const.UC_X86_REG_RAX,
        stack=x86_const.UC_X86_REG_RSP,
        link=None,
    ),
)


def output(*command: str | Path) -> str:
    """Return what a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclass(frozen=True)
class Program:
    """The kernel and its NIC, compiled and linked."""

    elf: bytes
    entry: int
    kernel: tuple[int, int]  # addresses of its first byte and its last


def build(processor: Processor) -> Program:
    """Compile the kernel and its NIC for a processor."""
    flags = shlex.split(f"{FLAGS} {processor.flags}")
    with tempfile.TemporaryDirectory() as directory:
        objects = [Path(directory, Path(source).stem + ".o") for source in SOURCES]
        for source, target in zip(SOURCES, objects, strict=True):
            output(processor.compiler, *flags, "-c", ROOT / source, "-o", target)
        linked = Path(directory, "receive")
        output(processor.compiler, *flags, *shlex.split(LINK), *objects, "-o", linked)
        # The kernel's code lies in one piece. Its static functions may have namesakes in the NIC.
        tools = processor.compiler.removesuffix("gcc")
        at = symbols(output(tools + "nm", linked))
        base = {at[name] - offset for name, offset in symbols(output(tools + "nm", objects[0])).items()}
        sizes = [line.split() for line in output(tools + "size", "-A", objects[0]).splitlines()]
        text = next(int(size[1]) for size in sizes if size and size[0] == ".text")
        if len(base) != 1:
            raise RuntimeError(f"{processor.compiler} has not left the kernel in one piece")
        kernel = min(base), min(base) + text - 1
        elf = linked.read_bytes()
        return Program(elf, struct.unpack_from("<Q", elf, 24)[0], kernel)


def symbols(listing: str) -> dict[str, int]:
    """Return the addresses of global functions in what nm prints."""
    lines = [line.split() for line in listing.splitlines()]
    return {line[2]: int(line[0], 16) for line in lines if len(line) == 3 and line[1] == "T"}


def segments(elf: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield address, size in memory and content of the parts of a program that are loaded."""
    (table,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<HH", elf, 54)
    for i in range(count):
        header = struct.unpack_from("<IIQQQQQ", elf, table + i * size)
        kind, _, offset, address, _, in_file, in_memory = header
        if kind == 1:  # PT_LOAD
            yield address, in_memory, elf[offset : offset + in_file]


def count(processor: Processor, program: Program, datapath: str, batch: int) -> int:
    """Return how many instructions of the kernel are executed while a buffer is received."""
    machine = unicorn.Uc(*processor.engine)
    pages: set[int] = set()
    for address, size, _ in segments(program.elf):
        pages.update(range(address // PAGE, (address + size + PAGE - 1) // PAGE))
    for page in pages:
        if page - 1 not in pages:
            end = next(p for p in range(page, max(pages) + 2) if p not in pages)
            machine.mem_map(page * PAGE, (end - page) * PAGE)
    for address, _, content in segments(program.elf):
        machine.mem_write(address, content)
    machine.mem_map(STACK - STACK_BYTES, STACK_BYTES)
    machine.mem_map(RETURN, PAGE)

    for register, value in zip(processor.arguments, (int(datapath == "UC"), batch, CHUNK), strict=True):
        machine.reg_write(register, value)
    top = STACK - 64
    if processor.link is None:
        top -= 8
        machine.mem_write(top, struct.pack("<Q", RETURN))
    else:
        machine.reg_write(processor.link, RETURN)
    machine.reg_write(processor.stack, top)

    executed = 0

    def instruction(*_: object) -> None:
        nonlocal executed
        executed += 1

    machine.hook_add(unicorn.UC_HOOK_CODE, instruction, begin=program.kernel[0], end=program.kernel[1])
    machine.emu_start(program.entry, RETURN, timeout=LIMIT_US)
    if machine.query(unicorn.UC_QUERY_TIMEOUT):
        raise RuntimeError(f"{datapath} on {processor.name}: not done after {LIMIT_US / 1e6:.0f} seconds")
    wrong = machine.reg_read(processor.result)
    if wrong:
        what = "what was received is not what was sent"
        raise RuntimeError(f"{datapath} on {processor.name}: {what} (nic.c returns {wrong})")
    return executed


def rows(processor: Processor) -> list[dict[str, Any]]:
    """Count all ways on a processor, for which a compiler must be installed."""
    program = build(processor)
    completions = BUFFER // CHUNK
    result = []
    for datapath in ("UC", "UD"):
        for batch in BATCHES:
            executed = count(processor, program, datapath, batch)
            result.append(
                {
                    "processor": processor.name,
                    "datapath": datapath,
                    "batch": batch,
                    "bytes": BUFFER,
                    "chunk": CHUNK,
                    "instructions": executed,
                    "per_completion": round(executed / completions, 2),
                    "compiler": processor.version(),
                    "flags": f"{FLAGS} {processor.flags}",
                }
            )
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as the table of docs/project/reproduction.md: instructions a completion, beside table I."""
    paper = {"UC": "66", "UD": "113"}
    lines = [
        "| datapath | completions a call | table I, DPA | here, riscv64 | here, x86-64 |",
        "|---|---|---|---|---|",
    ]
    counted = {(row["datapath"], row["batch"], row["processor"]): row["per_completion"] for row in rows}
    for datapath in ("UC", "UD"):
        for batch in sorted(BATCHES, reverse=True):
            cells = [f"{counted[datapath, batch, name]:.1f}" for name in ("riscv64", "x86-64")]
            beside = paper[datapath] if batch == max(BATCHES) else ""
            lines.append(f"| {datapath} | {batch} | {beside} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Count on every processor for which a compiler is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the rows there, NDJSON")
    arguments = parser.parse_args()
    origin = {
        "emulator": f"unicorn {importlib.metadata.version('unicorn')}",
        "command": "python benchmarks/receive/count.py --out benchmarks/results/receive.ndjson",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit(),
    }
    counted = []
    for processor in PROCESSORS:
        if processor.version() is None:
            print(f"no {processor.compiler} (Debian: apt-get install {processor.package})", file=sys.stderr)
            return 1
        counted += [row | origin for row in rows(processor)]
    print(table(counted))
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in counted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
