"""What memory a rank holds in a training step: its own, and its share of what its host's ranks share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from model import Block

_ROLLUP = Path("/proc/self/smaps_rollup")
_KINDS = {"Pss_Anon:": "own", "Pss_Shmem:": "shared"}


def held() -> dict[str, int]:
    """Return the resident bytes of this process, each page divided by the processes that map it.

    "own" is anonymous memory, "shared" is memory of memfds and the like. Files, such as torch's code, are
    left out: they are shared with any other process on the machine that runs torch.
    """
    words = (line.split() for line in _ROLLUP.read_text().splitlines()[1:])
    return {_KINDS[w[0]]: int(w[1]) * 1024 for w in words if w[0] in _KINDS}


class Memory:
    """Looks at it where blocks' parameters are gathered, forward and backward, and keeps the most."""

    def __init__(self) -> None:
        """Note the memory held before any step."""
        self.begin = held()
        self.most = self.begin

    def watch(self, blocks: Iterable[Block]) -> None:
        """Look in each step from now on."""
        for block in blocks:
            block.mlp.register_forward_hook(self.look)
            block.qkv.register_full_backward_hook(self.look)

    def look(self, *_: Any) -> None:
        """Look now."""
        now = held()
        if sum(now.values()) > sum(self.most.values()):
            self.most = now
