"""The secret that the ranks of a group share through torch's store: MCAST_SECRET=store."""

from __future__ import annotations

import os
import re
import secrets

from torch._C._distributed_c10d import Store

from . import errors
from .options import Options

_IN_STORE = "store"  # shorter than a secret may be
_KEY = "mcast/secret"
_BYTES = 32


def settings(options: Options, store: Store) -> str:
    """Return a group's settings as the library takes them, with the secret of its store if they ask for it.

    Args:
        options: of the group, which override the environment. They are left as they are: torch shows them.
        store: a store of this group alone.

    Raises:
        ArgumentError: a switch is named as well, which has no part in the store.
        UnavailableError: the store cannot be reached, or has no compare_set.
    """
    lines = options.lines()
    if _value(options, "MCAST_SECRET") != _IN_STORE:
        return lines
    if switch := _value(options, "MCAST_SWITCH"):
        raise errors.ArgumentError(
            f"MCAST_SECRET=store with MCAST_SWITCH={switch} is not allowed: a switch has no part in torch's "
            "store. Give it and all ranks a secret of `mcast secret`, or leave MCAST_SWITCH empty"
        )
    return f"{lines}\nMCAST_SECRET={_shared(store)}"


def _shared(store: Store) -> str:
    """Return the secret of a store. The first rank that comes puts one there.

    So the secret is the same for a group that meets in a store where others have met before, such as the
    store that torchrun keeps over its restarts. Keys come from random bits of the group's ranks as well.
    """
    try:
        found = store.compare_set(_KEY, "", secrets.token_hex(_BYTES)).decode(errors="replace")
    except RuntimeError as e:
        raise errors.UnavailableError(
            "MCAST_SECRET=store: no secret is to be had from torch's store, which must have compare_set, as "
            f"TCPStore and FileStore do: {str(e).splitlines()[0]}"
        ) from e
    if not re.fullmatch(f"[0-9a-f]{{{2 * _BYTES}}}", found):  # the library would take an empty one for none
        raise errors.ArgumentError(
            f"what torch's store has as {_KEY} is no secret of torch_mcast, which has {2 * _BYTES} "
            "hexadecimal digits"
        )
    return found


def _value(options: Options, name: str) -> str:
    """Return a setting as the library will read it."""
    return options.settings.get(name) or os.environ.get(name, "")
