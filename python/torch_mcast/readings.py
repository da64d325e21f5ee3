"""Common to all sets of counters: subtract an earlier reading, and print the counters worth reading."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    ReadingsT = TypeVar("ReadingsT", bound="Readings")

_SCALES = {
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us")),
}


class Readings:
    """The base of a dataclass with fields that are whole numbers and only grow."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    units: ClassVar[dict[str, dict[str, str]]]  # of each counter, by group

    def __sub__(self: ReadingsT, earlier: ReadingsT) -> ReadingsT:
        """Return what was counted since an earlier reading."""
        return type(self)(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))

    def __str__(self) -> str:
        """Return the counters that are not 0 with their units, one a line, by group."""
        width = max(len(f.name) for f in fields(self))
        lines: list[str] = []
        for group, units in self.units.items():
            found = [(name, n, unit) for name, unit in units.items() if (n := getattr(self, name))]
            if found:
                lines.append(group)
                lines += [f"  {name:<{width}}  {_amount(n, unit)}" for name, n, unit in found]
        return "\n".join(lines) or "all counters are 0"


def _amount(n: int, unit: str) -> str:
    for scale, name in _SCALES.get(unit, ()):
        rounded = float(f"{n / scale:.3g}")  # three digits may make it 1 of a scale, or 1000
        if abs(rounded) >= 1:
            return f"{rounded:,.3g} {name}" if abs(rounded) < 1000 else f"{n / scale:,.0f} {name}"
    return f"{n:,} {unit.removesuffix('s') if n == 1 and unit != 'ns' else unit}"
