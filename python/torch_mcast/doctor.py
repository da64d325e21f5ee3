"""torchrun ... -m torch_mcast.doctor: find faults of the hosts of a job and of the paths between them.

It becomes the program mcast, as `mcast doctor` with the same arguments (`--help` lists them). That finds
the other hosts by torchrun's variables; one rank a host takes part, the others end at once. Rank 0 prints
the report, and ends with 0 if all is well, 1 for warnings, 2 for faults, 3 if it could not look.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from . import _lib, errors


def program() -> Path:
    """Return the path of mcast: beside the library, in the repository's bin/, or on PATH.

    Raises LibraryError where there is none.
    """
    library = _lib.find().resolve()
    places = [library.parent / "mcast", library.parents[1] / "bin" / "mcast"]
    for path in places:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("mcast")
    if found:
        return Path(found)
    raise errors.LibraryError(
        f"mcast was not found in {' or '.join(str(p.parent) for p in places)}, nor on PATH: "
        "run `make build` in the repository, or set MCAST_LIBRARY to its library, "
        "or put the folder of pip's scripts on PATH"
    )


def main() -> NoReturn:
    """Replace this process by `mcast doctor`."""
    try:
        path = program()
    except errors.LibraryError as e:
        sys.exit(f"torch_mcast.doctor: {e}")
    os.execv(path, [str(path), "doctor", *sys.argv[1:]])


if __name__ == "__main__":
    main()
