#!/usr/bin/env python3
"""Count the instructions that the receive kernel takes for a completion, under an emulator.

The kernel (internal/receive/kernel.c) and a NIC for it (nic.c) are compiled for a processor and run in the unicorn
engine, which counts what is executed of the kernel. Prints a row of JSON for each way to receive 8 MiB in chunks of
4 KiB; --out writes them to a file.
"""

import argparse
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
SOURCES = ("internal/receive/kernel.c", "benchmarks/receive/nic.c")
FLAGS = "-std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-stack-protector -fno-pie"
LINK = "-nostdlib -static -no-pie -Wl,--no-relax,--entry=run"
BUFFER, CHUNK = 8 << 20, 4096
BATCHES = (1, 64)  # completions that are there when the kernel is called
PAGE = 4096
STACK, STACK_BYTES, RETURN = 0x70000000, 1 << 20, 0x7F000000
MINUTE = 60_000_000  # in microseconds


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
        nm = processor.compiler.removesuffix("gcc") + "nm"
        functions = {line.split()[-1] for line in output(nm, objects[0]).splitlines() if line.split()[-2] in "tT"}
        spans = [line.split() for line in output(nm, "--print-size", "--defined-only", linked).splitlines()]
        own = [(int(s[0], 16), int(s[1], 16)) for s in spans if len(s) == 4 and s[3] in functions]
        kernel = min(at for at, _ in own), max(at + size for at, size in own) - 1
        elf = linked.read_bytes()
        return Program(elf, struct.unpack_from("<Q", elf, 24)[0], kernel)


def segments(elf: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield address, size in memory and content of the parts of a program that are loaded."""
    (table,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<HH", elf, 54)
    for i in range(count):
        kind, _, offset, address, _, in_file, in_memory = struct.unpack_from("<IIQQQQQ", elf, table + i * size)
        if kind == 1:  # PT_LOAD
            yield address, in_memory, elf[offset : offset + in_file]


def count(processor: Processor, program: Program, datapath: str, batch: int) -> int:
    """Return how many instructions of the kernel are executed while a buffer is received."""
    machine = unicorn.Uc(*processor.engine)
    pages = set()
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
    machine.emu_start(program.entry, RETURN, timeout=MINUTE)
    wrong = machine.reg_read(processor.result)
    if wrong:
        raise RuntimeError(f"{datapath} on {processor.name}: nic.c says {wrong}, what it received is not what was sent")
    return executed


def rows(processor: Processor) -> list[dict[str, Any]]:
    """Count all ways on a processor, whose compiler is there."""
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


def main() -> int:
    """Count on every processor whose compiler is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the rows there, beside printing them")
    arguments = parser.parse_args()
    origin = {
        "emulator": f"unicorn {unicorn.__version__}",
        "command": "python benchmarks/receive/count.py",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": output("git", "-C", ROOT, "describe", "--always", "--dirty").strip(),
    }
    lines = []
    for processor in PROCESSORS:
        if processor.version() is None:
            print(f"no {processor.compiler} (Debian: apt-get install {processor.package})", file=sys.stderr)
            return 1
        lines += [json.dumps(row | origin) for row in rows(processor)]
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
