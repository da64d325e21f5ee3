"""torchft with DDP: each rank is a replica, and rank 0 has the lighthouse. docs/how-to/launch.md loses one."""

import os
from datetime import timedelta
from typing import Any

import torch
from common import BACKEND, STEPS, inputs, loss_of, model, optimizer_of, report
from torch._C._distributed_c10d import ProcessGroup, TCPStore
from torch.distributed.rendezvous import rendezvous
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.ddp import DistributedDataParallel
from torchft.optim import OptimizerWrapper
from torchft.process_group import ProcessGroupWrapper

from torch_mcast.backend import MulticastBackend


class ProcessGroupMcast(ProcessGroupWrapper):
    """torchft's process group over torch-mcast."""

    def _create_pg(self, store: Any, rank: int, world_size: int) -> ProcessGroup:
        self.ours = MulticastBackend(store, rank, world_size, self._timeout)
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, self.ours)
        return group

    def getBackendName(self) -> str:
        """Return the name that torchft shows."""
        return "torchft-mcast"


store, rank, size = next(rendezvous("env://"))
if rank == 0:
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=size, join_timeout_ms=60000)
    store.set("lighthouse", lighthouse.address())
os.environ["TORCHFT_LIGHTHOUSE"] = store.get("lighthouse").decode()

group = {"gloo": ProcessGroupGloo, "mcast": ProcessGroupMcast}[BACKEND](timeout=timedelta(seconds=60))
replica = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
module = model()
manager = Manager(
    pg=group,
    load_state_dict=module.load_state_dict,
    state_dict=module.state_dict,
    min_replica_size=size,
    init_sync=False,  # all begin with the same weights
    rank=0,
    world_size=1,
    store_addr="localhost",
    store_port=replica.port,
    replica_id=f"replica{rank}",
)
trained = DistributedDataParallel(manager, module)
optimizer = OptimizerWrapper(manager, optimizer_of(module))
losses = []
for step in range(STEPS):
    optimizer.zero_grad()
    loss = loss_of(trained, inputs(step, rank))
    loss.backward()
    optimizer.step()
    assert manager.errored() is None
    losses.append(loss.item())
ran_on = group.ours.info().fabric if BACKEND == "mcast" else BACKEND
report(losses, module.parameters(), ran_on=ran_on)
if store.add("done", 1) == size:
    store.set("all are done", "")
store.wait(["all are done"])  # the lighthouse is rank 0's
manager.shutdown()
