"""What the site (mkdocs.yml) has beside docs: pages that lie elsewhere or are made, pictures, links."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that are files elsewhere.
ELSEWHERE = {
    "index.md": "README.md",
    "documents.md": "docs/README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
}
PYTHON = """# Python

`import torch_mcast`. What `torch.distributed` does by it is in [PyTorch](torch.md).

::: torch_mcast
    options:
      show_root_heading: false
      show_if_no_docstring: false
      filters: ["!^_"]

::: torch_mcast.fsdp
    options: {members: [enable, Handle]}

::: torch_mcast.launcher
    options: {members: [place, Place]}
"""
_EXPLAINED = ("index.md", "start/", "how-to/", "explain/")  # pages for people who are new here
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures."""
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "reference/python.md", content=PYTHON))
    files.append(File.generated(config, "reference/manual.md", content=manual()))
    files.append(File.generated(config, "llms.txt", content=llms(config["repo_url"])))
    for picture in (ROOT / "benchmarks" / "results").rglob("*.svg"):
        where = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, where, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Make links lead, on the site, to the same target as in the repository."""
    uri = page.file.src_uri
    here = PurePosixPath(ELSEWHERE.get(uri, f"docs/{uri}")).parent
    pages = {source: page for page, source in ELSEWHERE.items()}

    def rewritten(link: re.Match[str]) -> str:
        target, anchor = (*link[2].split("#", 1), "")[:2]
        if not target or ":" in target:
            return link[0]
        path = os.path.normpath(here / target)
        inside = pages.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(inside) is None and (ROOT / path / "README.md").is_file():
            inside = f"{inside}/README.md"
        if files.get_file_from_path(inside) is not None:
            to = os.path.relpath(inside, PurePosixPath(uri).parent)
        elif (ROOT / path).exists():
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            to = f"{config['repo_url']}/{kind}/main/{path}"
        else:
            raise PluginError(f"{here / uri}: {link[2]} leads nowhere")
        return f"{link[1]}{to}{'#' + anchor if anchor else ''}{link[3]}"

    parts = _FENCE.split(markdown)
    written = "".join(part if part.startswith("```") else _LINK.sub(rewritten, part) for part in parts)
    return written + glossary() if uri.startswith(_EXPLAINED) else written


def glossary() -> str:
    """Return the words for users as abbreviations: the site shows a meaning where its word is used."""
    text = (ROOT / "docs/reference/glossary.md").read_text()
    rows = re.findall(r"^\| ([A-Za-z][^|]*) \| ([^|]+) \|$", text.split("\n## ")[1], re.MULTILINE)
    meanings = [(word, re.sub(r"[*`]|\]\([^)]*\)|\[", "", meaning)) for word, meaning in rows[1:]]
    forms = [(form, meaning) for word, meaning in meanings for form in (word, f"{word}s", word.capitalize())]
    return "\n\n" + "\n".join(f"*[{form}]: {meaning}" for form, meaning in forms) + "\n"


def llms(repository: str) -> str:
    """Return llms.txt with links that lead to the repository."""
    text = (ROOT / "llms.txt").read_text()
    return re.sub(r"\]\((?![a-z]+:)", f"]({repository}/blob/main/", text)


def manual() -> str:
    """Return the manual pages, which the programs write for man(1), as a page of the site."""
    pages = (f"## {name}\n\n{_manual(name)}" for name in ("mcast", "mcast-lab"))
    return "# Command line\n\n" + "\n".join(pages)


def _manual(name: str) -> str:
    program = ROOT / "bin" / name
    if not program.exists():
        raise PluginError(f"{program} is missing, which writes the manual: make build")
    written = subprocess.run([program, "--man"], capture_output=True, text=True, check=True).stdout
    lines, depth, term = [], 0, False
    for line in written.splitlines():
        macro, _, rest = line.partition(" ")
        text = re.sub(r"\\f.|\\&", "", line).replace("\\-", "-")
        match macro:
            case ".TH":
                continue
            case ".SH":
                lines += ["", rest, ""]
            case ".RS":
                depth += 4
            case ".RE":
                depth -= 4
            case ".TP":
                term = True
            case _:
                term = term or line.startswith("\\fB")  # the first below .RS has no .TP
                lines.append(" " * (depth + (0 if term else 4)) + text)
                term = False
    return "```text\n" + "\n".join(lines) + "\n```\n"
