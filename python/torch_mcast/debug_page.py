"""The page itself; see debug.py. Its class is the module's own, since torch may pickle it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

from torch.distributed.debug._debug_handlers import FlightRecorderHandler, default_handlers
from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all

from .arrivals import Arrival, arrivals
from .options import NAME

_LAST = 50  # collectives on the page

_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}mcast{% endblock %}</h1>{% endblock %}
{% block content %}<pre>{{ text | safe }}</pre>{% endblock %}
"""


class Page(FlightRecorderHandler):
    """The pages /mcast and /mcast_trace."""

    def routes(self) -> list[Route]:
        """Return which pages there are."""
        return [Route("/mcast", self._groups), Route("/mcast_trace", self._trace)]

    def nav_links(self) -> list[NavLink]:
        """Return the links to them."""
        return [NavLink("/mcast", NAME), NavLink("/mcast_trace", "(FlightRecorder)")]

    def templates(self) -> dict[str, str]:
        """Return the template of /mcast; torch has the template of the other page."""
        return {"mcast.html": _TEMPLATE}

    def _trace(self, request: Any) -> bytes:
        addresses, answers = fetch_all("mcast_trace", timeout=self.fetch_timeout)
        return self._render_tables(request.frontend, addresses, list(answers))

    def _groups(self, request: Any) -> bytes:
        page: bytes = request.frontend.render_template("mcast.html", text=html.escape(self.dump()))
        return page

    def dump(self) -> str:
        """Return the page /mcast as text, which the server also writes to its dump_dir."""
        _, traces = fetch_all("mcast_trace", timeout=self.fetch_timeout)
        addresses, found = fetch_all("mcast_groups", timeout=self.fetch_timeout)
        known = {rank: t.json() for rank, t in enumerate(traces) if t.status_code == 200}
        lines = ["Collectives, the newest first:", *_collectives(arrivals(known)[: -_LAST - 1 : -1]), ""]
        for rank, (address, answer) in enumerate(zip(addresses, found, strict=True)):
            lines.append(f"Rank {rank}, {address}:")
            if answer.status_code != 200:
                lines.append(f"  no answer ({answer.status_code}): {answer.text}")
                continue
            lines += [json.dumps(one, indent=1) for one in answer.json()]
        return "\n".join(lines)

    def dump_filename(self) -> str:
        """Return how the file in dump_dir begins."""
        return NAME


def handlers() -> list[DebugHandler]:
    """Return torch's pages and ours."""
    return [*default_handlers(), Page()]


def _collectives(found: Iterable[Arrival]) -> list[str]:
    lines = []
    for one in found:
        state = f"not done on ranks {one.unfinished}" if one.unfinished else "done"
        missing = f", no sign of ranks {one.missing}" if one.missing else ""
        lines.append(
            f"  group {one.group} #{one.number} {one.operation}: {state}{missing}; "
            f"rank {one.last} came last, {one.apart_ms:.3f} ms after rank {one.first}"
        )
    return lines
