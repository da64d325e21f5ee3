"""Tensors on their way to the library: which are allowed, and staging for those not contiguous."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import errors

# Copies from staging to outputs, once an operation is done; None: there is nothing to copy.
Finish = Callable[[], None] | None


def only(items: Sequence[Any], operation: str) -> Any:
    """Return the one item of a list of one, as torch passes a tensor."""
    if len(items) != 1:
        raise errors.ArgumentError(f"{operation}: {len(items)} tensors a call, one is allowed")
    return items[0]


def require_dense(*tensors: torch.Tensor) -> None:
    """Raise ArgumentError unless all tensors are dense, and all on the CPU or all on one CUDA device."""
    for tensor in tensors:
        if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
            raise errors.ArgumentError(
                f"a {tensor.layout} tensor on {tensor.device}: only dense tensors on the CPU or on a CUDA "
                "device are supported"
            )
        if tensor.device != tensors[0].device:
            raise errors.ArgumentError(
                f"tensors on {tensors[0].device} and {tensor.device}: tensors of a call must be on one device"
            )


def require_writable(operation: str, *outputs: torch.Tensor) -> None:
    """Raise ArgumentError if elements of an output share memory, as those of an expanded tensor do."""
    for output in outputs:
        if _shares_elements(output):
            raise errors.ArgumentError(
                f"{operation}: elements of an output of shape {list(output.shape)} and stride "
                f"{list(output.stride())} share memory, as after expand(): give a tensor with a place for "
                "each, such as its clone()"
            )


def _shares_elements(tensor: torch.Tensor) -> bool:
    if tensor.is_contiguous() or tensor.numel() < 2:
        return False
    shape = zip(tensor.stride(), tensor.shape, strict=True)
    dims = sorted((stride, size) for stride, size in shape if size > 1)
    reach = 0  # of the dimensions with smaller strides
    for stride, size in dims:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if dims[0][0] == 0:
        return True
    places = torch.zeros(1, dtype=torch.int64)
    for stride, size in dims:
        places = (places[:, None] + stride * torch.arange(size, device="cpu")).reshape(-1)
    return len(places.unique()) < len(places)


def plain(tensor: torch.Tensor) -> bool:
    """Say whether the memory of a tensor is its elements, one after another."""
    return tensor.is_contiguous() and not _lazy(tensor)


def _lazy(tensor: torch.Tensor) -> bool:
    """Say whether elements are other than their memory: conjugated or negated ones, or zeros without any."""
    return bool(tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())


def sending(tensor: torch.Tensor) -> torch.Tensor:
    """Return contiguous memory with the elements of a tensor: its own if they lie so."""
    if plain(tensor):
        return tensor
    with torch.no_grad():
        return torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)


def receiving(output: torch.Tensor) -> tuple[torch.Tensor, Finish]:
    """Return contiguous memory to receive into, and the copy to do afterwards, if any."""
    if plain(output):
        return output, None
    memory = torch.empty_like(output, memory_format=torch.contiguous_format)
    return memory, functools.partial(write, output, memory)


def write(output: torch.Tensor, source: torch.Tensor) -> None:
    """Copy elements to an output on any thread, with any setting of gradients and inference there."""
    with torch.inference_mode() if output.is_inference() else torch.no_grad():
        output.copy_(source.reshape(output.shape))


def fill_behind(memory: torch.Tensor, nbytes: int, output: torch.Tensor) -> None:
    """Take what comes behind the first bytes of memory from the elements of the output that it is copied to."""
    with torch.cuda.stream(torch.cuda.Stream(output.device) if output.is_cuda else None):
        whole = output.detach().resolve_conj().resolve_neg().reshape(-1).cpu()
    memory.reshape(-1).view(torch.uint8)[nbytes:] = whole.view(torch.uint8)[nbytes:]


def scatter_into(outputs: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> None:
    """Copy each part to its output, as write() does; many small ones in one call."""
    if any(_lazy(output) or output.is_inference() for output in outputs):
        for output, part in zip(outputs, parts, strict=True):
            write(output, part)
        return
    with torch.no_grad():
        shaped = [part.reshape(output.shape) for output, part in zip(outputs, parts, strict=True)]
        torch._foreach_copy_(list(outputs), shaped)


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether memory of two contiguous tensors is the same in places."""
    a, b = one.data_ptr(), other.data_ptr()
    return a < b + other.nbytes and b < a + one.nbytes


def shares(memory: torch.Tensor, output: torch.Tensor) -> bool:
    """Say whether contiguous memory may hold elements of an output."""
    if plain(output):
        return overlap(memory, output)
    return memory.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()


def misplaced(part: torch.Tensor, whole: torch.Tensor, rank: int) -> bool:
    """Say whether `part` lies in `whole`, but not at the rank's own place there."""
    return overlap(part, whole) and part.data_ptr() != whole.data_ptr() + rank * part.nbytes


def flat_view(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    """Return one tensor over tensors of one type that lie one after another, or None."""
    first, elements = tensors[0], 0
    for t in tensors:
        if (
            not plain(t)
            or t.dtype != first.dtype
            or t.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
            or t.storage_offset() != first.storage_offset() + elements
        ):
            return None
        elements += t.numel()
    with torch.no_grad():
        return first.as_strided((elements,), (1,), first.storage_offset())
