"""MCAST_* settings of one group."""

from __future__ import annotations

from torch._C._distributed_c10d import Backend

NAME = "mcast"


class Options(Backend.Options):
    """MCAST_* settings of one group, for `pg_options` of init_process_group and new_group.

    They override the environment: `Options(fabric="shm", timeout="5s")` is
    MCAST_FABRIC=shm and MCAST_TIMEOUT=5s; docs/ENVIRONMENT.md lists the names. A
    name that is a word of Python takes an underscore: `class_="background"`.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(NAME)
        self.settings = {f"MCAST_{name.rstrip('_').upper()}": str(value) for name, value in settings.items()}

    def lines(self) -> str:
        """Return the settings as the library takes them."""
        return "\n".join(f"{name}={value}" for name, value in self.settings.items())
