"""Several collectives as one: small tensors of a type travel in one piece of memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from . import errors, reduction
from .capabilities import collective
from .collectives import Collectives
from .tensor import scatter_into
from .work import AnyWork, JoinedWork

# A tensor of so many bytes or more travels by itself: to copy it takes more than an operation's start.
ALONE_BYTES = 1 << 20


class Coalesced(Collectives):
    """Collectives on several tensors as well."""

    @collective
    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do all_gather_single for each pair, as one work."""
        _require_pairs(outputs, inputs, "all_gather_coalesced")
        for output, tensor in zip(outputs, inputs, strict=True):
            self._check_gather(output, tensor)
        works: list[AnyWork] = []
        for bucket in _buckets(inputs):
            o, i = [outputs[n] for n in bucket], [inputs[n] for n in bucket]
            works.append(self._gather_bucket(o, i, opts))
        return JoinedWork(works, outputs)

    def _gather_bucket(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> AnyWork:
        if len(inputs) == 1:
            return self._gather_single(outputs[0], inputs[0], opts)
        with torch.no_grad():
            send = torch.cat([t.reshape(-1) for t in inputs])
            recv = send.new_empty(self.size(), send.numel())
            parts = recv.split([t.numel() for t in inputs], dim=1)
        finish = functools.partial(scatter_into, outputs, parts)
        return self._gather_flat(recv, send, inputs, outputs, finish, opts)

    @collective
    def allgather_coalesced(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do allgather for each input, as one work; output_lists[rank][i] is rank's i-th tensor."""
        if any(len(outputs) != len(inputs) for outputs in output_lists):
            raise errors.ArgumentError(
                "all_gather_coalesced: every rank's list must be as long as the inputs"
            )
        calls = [([outputs[i] for outputs in output_lists], tensor) for i, tensor in enumerate(inputs)]
        for outputs, tensor in calls:
            self._check_gather_list(outputs, tensor)
        return JoinedWork([self._gather_list(outputs, tensor, opts) for outputs, tensor in calls])

    @collective
    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> JoinedWork:
        """Do reduce_scatter_single for each pair, as one work."""
        _require_pairs(outputs, inputs, "reduce_scatter_coalesced")
        for output, tensor in zip(outputs, inputs, strict=True):
            self._check_reduce(output, tensor, opts)
        works: list[AnyWork] = []
        for bucket in _buckets(inputs):
            o, i = [outputs[n] for n in bucket], [inputs[n] for n in bucket]
            if len(bucket) == 1:
                works.append(self._reduce_single(o[0], i[0], opts))
            else:
                works.append(self._reduce_bucket(o, i, opts))
        return JoinedWork(works, outputs)

    def _reduce_bucket(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> AnyWork:
        known = reduction.find("reduce_scatter", inputs[0].dtype, opts.reduceOp)
        with torch.no_grad():
            send = torch.cat([t.reshape(self.size(), -1) for t in inputs], dim=1)
            recv = send.new_empty(send.shape[1])
            parts = recv.split([t.numel() for t in outputs])
        finish = functools.partial(scatter_into, outputs, parts)
        return self._reduce_into(recv, send, inputs, outputs, known, finish, opts)

    @collective
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> JoinedWork:
        """Do allreduce for each tensor, as one work."""
        self._check_allreduce(tensors, opts)
        works: list[AnyWork] = []
        for bucket in _buckets(tensors):
            together = [tensors[n] for n in bucket]
            if len(together) == 1:
                works.append(self._allreduce(together[0], opts))
            else:
                works.append(self._allreduce_bucket(together, opts))
        return JoinedWork(works, tensors)

    def _allreduce_bucket(self, tensors: list[torch.Tensor], opts: Any) -> AnyWork:
        with torch.no_grad():
            flat = torch.cat([t.reshape(-1) for t in tensors])
            parts = flat.split([t.numel() for t in tensors])
        return self._allreduce_flat(flat, tensors, functools.partial(scatter_into, tensors, parts), opts)

    # Names of torch before the summer of 2026.
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _require_pairs(outputs: Sequence[Any], inputs: Sequence[Any], operation: str) -> None:
    if len(outputs) != len(inputs):
        raise errors.ArgumentError(f"{operation}: {len(outputs)} outputs for {len(inputs)} inputs")


def _buckets(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return the numbers of tensors that travel together, alike on all ranks; large ones travel alone."""
    buckets: dict[Any, list[int]] = {}
    for n, tensor in enumerate(tensors):
        alone = tensor.layout != torch.strided or tensor.nbytes >= ALONE_BYTES
        buckets.setdefault(n if alone else (tensor.dtype, tensor.device), []).append(n)
    return list(buckets.values())
