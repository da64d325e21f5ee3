"""Train one replica of a torchft job; torch-mcast averages the gradients of all replicas.

    TORCHFT_LIGHTHOUSE=http://host0:29510 python examples/torchft/train.py --replica 0

Each replica is a process with a copy of the model. In each step the replicas that take part divide one and
the same batch. So any number of them come to the weights of one process that trains on whole batches, and
this script compares with these at the end. The job ends after --steps steps in which all replicas took part.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._C._distributed_c10d import ProcessGroup, Store, TCPStore
from torchft import Manager
from torchft.ddp import DistributedDataParallel
from torchft.optim import OptimizerWrapper
from torchft.process_group import ProcessGroupWrapper

from torch_mcast.backend import MulticastBackend

WIDTH, BATCH = 64, 24  # the batch is shared evenly by 1, 2, 3 and 4 replicas


class ProcessGroupMcast(ProcessGroupWrapper):
    """torchft's process group over torch-mcast: made anew whenever a replica is lost or joins."""

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        backend = MulticastBackend(store, rank, world_size, self._timeout)
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, backend)
        return group

    def getBackendName(self) -> str:
        """Return the name that torchft shows."""
        return "torchft-mcast"

    def shutdown(self) -> None:
        """Leave the group."""
        if self._pg is not None:
            self._pg.shutdown()
        super().shutdown()


def model() -> nn.Sequential:
    """Return the model, with the same weights in every process."""
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)))


def optimizer_of(trained: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer that has a state, which a replica that joins must be given as well."""
    return torch.optim.SGD(trained.parameters(), lr=0.3, momentum=0.5)


def loss_of(trained: nn.Module, step: int, part: int, parts: int) -> torch.Tensor:
    """Return the loss of one part of the batch of a step."""
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))[part::parts]
    return F.mse_loss(trained(inputs), inputs.roll(1, dims=1))


def say(what: str) -> None:
    """Print a line at once, however this process ends."""
    print(what, flush=True)


class Replica:
    """A replica's model and optimizer, and the state that it gives to a replica that joins."""

    def __init__(self, number: int) -> None:
        self.module = model()
        self.optimizer = optimizer_of(self.module)
        self.full_steps = 0  # in which all took part
        # torchft's manager meets the ranks of its replica here; a replica has one.
        self.store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.group = ProcessGroupMcast(timeout=timedelta(seconds=60))
        self.manager = Manager(
            pg=self.group,
            load_state_dict=self.load,
            state_dict=self.state,
            min_replica_size=2,
            init_sync=False,  # all begin with the same weights
            rank=0,
            world_size=1,
            store_addr="localhost",
            store_port=self.store.port,
            replica_id=f"replica{number}",
        )

    def state(self) -> dict[str, Any]:
        """Return what a replica that joins needs."""
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "full_steps": self.full_steps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned in another replica."""
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.full_steps = state["full_steps"]
        say(f"step {self.manager.current_step()}: has taken over the others' state")

    def ran_on(self) -> str:
        """Return what this replica's group runs on."""
        backend = self.group.parent._get_backend(torch.device("cpu"))
        assert isinstance(backend, MulticastBackend)
        return f"{self.group.size()} ranks, fabric {backend.info().fabric}"


def train(replica: Replica, replicas: int, steps: int, lose_after: int | None) -> None:
    """Train until all replicas have taken part in `steps` steps."""
    manager = replica.manager
    module = DistributedDataParallel(manager, replica.module)
    optimizer = OptimizerWrapper(manager, replica.optimizer)
    while replica.full_steps < steps:
        optimizer.zero_grad()  # meets the others
        step, size = manager.current_step(), manager.num_participants()
        part = manager.participating_rank() or 0  # None before it takes over a state: not averaged
        loss = loss_of(module, step, part, size)
        if replica.full_steps == lose_after:
            say(f"step {step}: process {os.getpid()}: killing this replica")
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()  # averages the gradients
        optimizer.step()  # unless an average failed
        if error := manager.errored():
            why = error.original_exception
            say(f"step {step} is repeated: {type(why).__name__}: {why}")
            continue
        # One that took over a state has done the others' step.
        say(f"step {manager.current_step() - 1}: {size} of {replicas} took part, {replica.ran_on()}")
        if size == replicas:
            replica.full_steps += 1
        else:
            time.sleep(0.5)  # the lost one is about to be started again


def check(replica: Replica) -> None:
    """Hold the weights to those of one process, and say their digest."""
    alone = model()
    optimizer = optimizer_of(alone)
    for step in range(replica.manager.current_step()):
        optimizer.zero_grad()
        loss_of(alone, step, 0, 1).backward()
        optimizer.step()
    pairs = zip(replica.module.parameters(), alone.parameters(), strict=True)
    furthest = max((ours - theirs).abs().max().item() for ours, theirs in pairs)
    if not furthest <= 1e-5:  # nor a NaN
        sys.exit(f"weights differ from one process's by {furthest:g}, more than 1e-5")
    digest = hashlib.sha256()
    for parameter in replica.module.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    say(f"{replica.manager.current_step()} steps: weights are one process's to {furthest:.1g}")
    say(f"digest {digest.hexdigest()[:16]}")


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replica", type=int, required=True, help="this one's number")
    parser.add_argument("--replicas", type=int, default=3, choices=(2, 3, 4), help="how many there are")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--lose-after", type=int, metavar="STEPS", help="kill this process in the step thereafter"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)  # replicas share cores

    replica = Replica(args.replica)
    train(replica, args.replicas, args.steps, args.lose_after)
    check(replica)
    replica.group.shutdown()
    replica.manager.shutdown()


if __name__ == "__main__":
    main()
