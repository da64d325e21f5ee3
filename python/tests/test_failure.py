"""A rank that dies, stops or never comes: the others are told which."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import torch_mcast

from .limits import LIMIT_S, until
from .ports import held
from .world import World


def own_pid() -> int:
    return os.getpid()


def gather_until_it_fails(scratch: str) -> tuple[str, int | None, str]:
    """Return the kind of the first error, the rank that it names and its text."""
    n = 1 << 20
    out, mine = torch.zeros(n * dist.get_world_size()), torch.ones(n)
    while True:
        try:
            dist.all_gather_into_tensor(out, mine)
        except torch_mcast.McastError as e:
            return type(e).__name__, getattr(e, "rank", None), str(e)
        Path(scratch, f"gathers{dist.get_rank()}").touch()


def survivors_of(how: signal.Signals, world: World) -> list[tuple[str, int | None, str]]:
    """Return what two ranks are told when the third gets a signal while all gather."""
    pids = world.run(own_pid)
    try:
        world.start(gather_until_it_fails, world.scratch)
        until(lambda: len(list(Path(world.scratch).glob("gathers?"))) == 3, "all ranks gather")
        os.kill(pids[1], how)
        return world.collect([0, 2])
    finally:
        world.processes[1].kill()  # it was reaped if it is dead
        world.close()


def test_survivors_name_the_rank_that_is_killed(fabric: str) -> None:
    for kind, rank, text in survivors_of(signal.SIGKILL, World(3, MCAST_FABRIC=fabric)):
        assert (kind, rank) == ("RankError", 1)
        assert "its connection closed without a farewell" in text


@pytest.mark.more
def test_survivors_name_the_rank_that_stops(fabric: str) -> None:
    # Nobody proves its death, so MCAST_TIMEOUT must pass. Nothing else may take as long meanwhile.
    for kind, rank, _ in survivors_of(signal.SIGSTOP, World(3, MCAST_FABRIC=fabric, MCAST_TIMEOUT="30s")):
        assert (kind, rank) == ("RankError", 1)


def sleeps(process: subprocess.Popen[str]) -> bool:
    """Say whether the main thread of a process sleeps, as it does in a wait."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].startswith("S")


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        textwrap.dedent("""
        import signal, sys, torch.distributed as dist
        import torch_mcast
        from torch._C._distributed_c10d import FileStore
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored after a shell's &
        rank = int(sys.argv[1])
        dist.init_process_group("mcast", store=FileStore(sys.argv[2], 2), rank=rank, world_size=2)
        dist.barrier()
        print("ready", flush=True)
        if rank == 1:
            sys.stdin.read()
        try:
            dist.barrier()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MCAST_FABRIC": "shm"},
        )
        for rank in (0, 1)
    ]
    try:
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        until(lambda: sleeps(ranks[0]), "rank 0 waits in the barrier")
        ranks[0].send_signal(signal.SIGINT)
        assert ranks[0].stdout is not None
        assert ranks[0].stdout.readline() == "interrupted\n"
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        from datetime import timedelta
        import torch_mcast
        from torch._C._distributed_c10d import FileStore
        from torch_mcast.rendezvous import exchange
        try:
            exchange(FileStore({str(tmp_path / "store")!r}, 3), 0, 3, b"blob", timedelta(seconds=1))
        except torch_mcast.WaitTimeoutError as e:
            print(e)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert "2 of 3 ranks have not come to the rendezvous after 1 s: [1, 2]" in done.stdout, done.stderr


@contextmanager
def started(size: int, script: str, *args: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start ranks over shm that run a script with their rank and the arguments; kill the remaining ones."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(rank), *args],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MCAST_FABRIC": "shm", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(size)
    ]
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(1)",
        pytest.param("dist.destroy_process_group()", marks=pytest.mark.more),
        pytest.param("group.abort()", marks=pytest.mark.more),
    ],
)
def test_a_rank_that_ends_ends_messages_with_it(ending: str) -> None:
    script = """
        import sys, torch, torch.distributed as dist, torch_mcast.group
        torch_mcast.group.LINGER_S = 0.5
        rank = int(sys.argv[1])
        dist.init_process_group("mcast", init_method=sys.argv[2], rank=rank, world_size=2)
        group = dist.distributed_c10d._get_default_group()
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        if rank == 1:
            store.wait(["posted"])
            pending = dist.isend(torch.ones(4), 0, tag=7)  # which nothing receives
            exec(sys.argv[3])
            sys.exit(1)
        received = dist.irecv(torch.ones(4), 1)
        store.set("posted", "")
        try:
            received.wait()
        except RuntimeError as e:
            print(e)
    """
    with held() as port, started(2, script, f"tcp://127.0.0.1:{port}", ending) as ranks:
        said, _ = ranks[0].communicate(timeout=LIMIT_S)
        assert re.search(r"recv of 16 bytes from rank 1 with tag 0: rank 1 (aborted|has left)", said), said
        assert ranks[1].wait(timeout=LIMIT_S) == 1


def test_a_rank_that_dies_ends_messages_of_the_others(tmp_path: Path) -> None:
    script = """
        import os, signal, sys, torch, torch.distributed as dist, torch_mcast.group
        from torch._C._distributed_c10d import FileStore
        torch_mcast.group.LINGER_S = 0.5
        rank = int(sys.argv[1])
        store = FileStore(sys.argv[2], 3)
        dist.init_process_group("mcast", store=store, rank=rank, world_size=3)
        pair = dist.new_group([0, 1])
        dist.barrier()
        if rank == 2:
            store.wait(["posted 0", "posted 1"])
            os.kill(os.getpid(), signal.SIGKILL)
        work = dist.all_reduce(torch.ones(4), async_op=True) if rank == 0 else dist.irecv(torch.ones(4), 0)
        store.set(f"posted {rank}", "")
        try:
            work.wait()
        except RuntimeError as e:
            print(e)
        if rank == 0:
            sys.exit(1)
    """
    with started(3, script, str(tmp_path / "store")) as ranks:
        said, _ = ranks[1].communicate(timeout=LIMIT_S)
        assert "recv of 16 bytes from rank 0 with tag 0: rank 2 is lost" in said
        assert ranks[0].wait(timeout=LIMIT_S) == 1
