"""MCAST_* settings of one group."""

from __future__ import annotations

from datetime import timedelta

from torch._C._distributed_c10d import Backend

NAME = "mcast"


def _text(value: object) -> str:
    """Return a value as a variable has it."""
    if isinstance(value, timedelta):
        return f"{value / timedelta(microseconds=1):.0f}us"
    return str(value)


class Options(Backend.Options):
    """MCAST_* settings of one group, for `pg_options` of init_process_group and new_group.

    They override the environment: `Options(fabric="shm", timeout="5s")` is
    MCAST_FABRIC=shm and MCAST_TIMEOUT=5s; docs/reference/settings.md lists the names. A
    name that is a word of Python takes an underscore: `class_="background"`. A
    duration may be a number of seconds, or a timedelta.
    """

    def __init__(self, **settings: object) -> None:
        self.settings = {
            f"MCAST_{name.rstrip('_').upper()}": _text(value) for name, value in settings.items()
        }
        # torch copies the options of a group that it splits, and of a copy only
        # the fields of torch's own class are left: the name carries our settings.
        super().__init__("\n".join([NAME, *self._lines()]))

    @classmethod
    def of(cls, options: Backend.Options | None) -> Options:
        """Return new options like others, which may be torch's copy of such options."""
        lines = options.backend.split("\n")[1:] if options is not None else []
        pairs = (line.split("=", 1) for line in lines)
        return cls(**{name.removeprefix("MCAST_").lower(): value for name, value in pairs})

    def __deepcopy__(self, _memo: object) -> Options:
        """Copy the options, as torch before 2.14 does for a group that it splits."""
        copied = Options.of(self)
        copied._timeout = self._timeout
        return copied

    def lines(self) -> str:
        """Return the settings as the library takes them."""
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.settings.items()]
