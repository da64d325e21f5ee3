"""Our page in torch's debug server (torch.distributed.debug, torch 2.15).

The server asks a handler of every rank, which answers from a thread of its own even while the
program hangs:

    from torch.distributed.debug import start_debug_server
    start_debug_server(handlers=torch_mcast.debug.handlers())

/mcast shows what each group of each rank runs on, its counters, and when each rank came to the last
collectives; /mcast_trace is torch's page of the Flight Recorder, which tells finished entries from others.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch._C import _distributed_c10d as c10d

from . import backend, errors, recorder

if TYPE_CHECKING:
    from torch.distributed.debug._frontend import DebugHandler


def groups() -> list[dict[str, Any]]:
    """Return what each mcast group of this process runs on and has counted."""
    return [
        {"group": one.group_name, "info": asdict(one.info()), "stats": asdict(one.stats())}
        for one in backend.alive()
    ]


# torch keeps handlers until the interpreter is gone, when it may no longer free a function: these two
# belong to the module as well, and are not freed.
def _answer_groups(_: Any, response: Any) -> None:
    _respond(response, groups())


def _answer_trace(_: Any, response: Any) -> None:
    _respond(response, recorder.trace(stacks=False))


def _respond(response: Any, answer: object) -> None:
    response.set_content(json.dumps(answer, default=str).encode(), "application/json")
    response.set_status(200)


def _register() -> None:
    """Have this process answer the server's questions. A second call does nothing."""
    if "mcast_groups" not in c10d._get_handler_names():  # type: ignore[attr-defined]
        c10d._register_handler("mcast_groups", _answer_groups)
        c10d._register_handler("mcast_trace", _answer_trace)


def handlers() -> list[DebugHandler]:
    """Return torch's pages and ours, for start_debug_server(handlers=...), and have this rank answer them.

    Each rank calls it.

    Raises:
        UnsupportedError: this torch has no debug server, or a package that it needs is not installed.
    """
    try:
        from . import debug_page
    except ImportError as e:
        raise errors.UnsupportedError(
            f"torch's debug server needs torch 2.15, jinja2, tabulate, and requests or aiohttp: {e}"
        ) from e
    _register()
    return debug_page.handlers()
