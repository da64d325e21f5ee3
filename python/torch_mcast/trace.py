"""What the groups of this process have done last, for Perfetto."""

from __future__ import annotations

import os

from ._lib import library


def dump(path: str | os.PathLike[str]) -> None:
    """Write a trace of what the groups of this process have done last.

    It holds the newest 512 operations of each lane, with the causes of their waits, and repairs.
    ui.perfetto.dev and chrome://tracing show it. It is on the clock of torch.profiler: `mcast trace merge OUT
    FILES` joins it with the file of torch.profiler's export_chrome_trace. Operations go on meanwhile.
    Groups that are closed, or have MCAST_TRACE=off, are not in it.

    Args:
        path: the file to write; a regular one that is there is replaced.

    Raises:
        ArgumentError: it cannot be there: no such directory, no permission, a directory or device.
        UnavailableError: the file system is full or fails. No part of the file stays.
    """
    library().trace(os.fspath(path))
