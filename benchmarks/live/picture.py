"""Draw what a terminal shows: mcast top --once | picture.py "mcast top --once" > top.svg."""

from __future__ import annotations

import sys
from xml.sax.saxutils import escape

# Pixels of a character and a line in monospaced type of 13, and of the margin.
WIDTH, HEIGHT, MARGIN = 7.8, 18, 16


def drawn(command: str, lines: list[str]) -> str:
    """Return an SVG of a command and the lines that it has printed."""
    shown = [f"$ {command}", *lines]
    width = max(map(len, shown)) * WIDTH + 2 * MARGIN
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + (i + 0.75) * HEIGHT:g}" textLength="{len(text) * WIDTH:g}">'
        f"{escape(text)}</text>"
        for i, text in enumerate(shown)
        if text
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {width:g} {len(shown) * HEIGHT + 2 * MARGIN}">\n'
        "<style>text {font: 13px monospace; fill: #e6e6e6; white-space: pre}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1b1f24"/>\n{rows}\n</svg>\n'
    )


if __name__ == "__main__":
    sys.stdout.write(drawn(sys.argv[1], sys.stdin.read().rstrip().splitlines()))
