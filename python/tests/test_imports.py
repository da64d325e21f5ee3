"""The modules of torch_mcast import each other from above to below."""

import ast
from collections.abc import Mapping
from pathlib import Path

import torch_mcast

FOLDER = Path(torch_mcast.__file__).parent


def imported(module: Path) -> set[str]:
    """Return the modules of the package that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} if node.module else {name.name for name in node.names}
    found = {name.removeprefix("torch_mcast.") for name in found}
    return {name for name in found if (FOLDER / f"{name}.py").exists()}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the modules that are in a circle, or above one that is."""
    left = dict(imports)
    while free := [name for name, below in left.items() if not below & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = {path.stem: imported(path) for path in FOLDER.glob("*.py")}
    assert "recorder" in imports["work"]
    assert "debug_page" in imports["debug"], "an import inside a function counts"
    assert circle(imports) == []


def test_circle() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"e"}, "e": {"d", "a"}}) == ["d", "e"]
