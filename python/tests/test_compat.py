"""The table of torch's versions in the results is that of the rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "packaging/check/compat.py"


def test_the_table_is_of_the_rows() -> None:
    spec = importlib.util.spec_from_file_location("compat", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    compat = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compat)
    assert compat.BEGIN + compat.table(compat.read()) + compat.END in compat.DOCUMENT.read_text()
