"""How the ranks of a group learn of each other."""

from __future__ import annotations

import time
from datetime import timedelta

from torch._C._distributed_c10d import Store

from . import errors


def exchange(store: Store, rank: int, size: int, blob: bytes, timeout: timedelta) -> list[bytes]:
    """Give every rank the blobs of all, in rank order, through torch's store.

    The store may outlive a group (torchrun keeps one over many
    init_process_group), so keys carry how often this rank has come here.
    """
    turn = store.add(f"mcast/turn/{rank}", 1)
    store.set(f"mcast/{turn}/{rank}", blob)  # type: ignore[arg-type]  # torch takes bytes, too
    keys = [f"mcast/{turn}/{r}" for r in range(size)]
    deadline = time.monotonic() + timeout.total_seconds()
    for key in keys:
        left = max(deadline - time.monotonic(), 0.001)
        try:
            store.wait([key], timedelta(seconds=left))
        except RuntimeError as e:
            missing = [r for r, k in enumerate(keys) if not store.check([k])]
            raise errors.WaitTimeoutError(
                f"{len(missing)} of {size} ranks have not come to the rendezvous after "
                f"{timeout.total_seconds():g} s: {missing[:16]}"
            ) from e
    return [bytes(value) for value in store.multi_get(keys)]
