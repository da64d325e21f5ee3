"""Faults that enable() had, put back by a patch, for the random programs to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import torch_mcast.fsdp

_fsdp: Any = torch_mcast.fsdp


def not_enabled() -> AbstractContextManager[Any]:
    """No fault: run without enable() both times, which says that the programs themselves are right."""
    return mock.patch.object(_fsdp, "enable", return_value=None)


FAULTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "not enabled": not_enabled,
}


@contextmanager
def planted(fault: str) -> Iterator[None]:
    """Have the fault of this name while within; "" is none."""
    if not fault:
        yield
        return
    with FAULTS[fault]():
        yield
