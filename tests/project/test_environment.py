"""The table of environment variables: every variable that the sources name is in it, and every entry is used."""

from __future__ import annotations

import ast
import re

from tests.pages import ROOT

from understudy.common.environment import VARIABLES, Use

TABLE = ROOT / "src" / "understudy" / "common" / "environment.py"


def named() -> dict[str, str]:
    """Every variable that is a string in the sources, and a place where."""
    found = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path != TABLE else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"UNDERSTUDY_[A-Z_]+", node.value):
                found[node.value] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def test_every_variable_that_the_sources_name_is_in_the_table() -> None:
    listed = {variable.name for variable in VARIABLES}
    missing = {name: place for name, place in named().items() if name not in listed}
    assert not missing, "describe it in understudy.common.environment, or mark it as Use.INTERNAL"


def test_every_entry_of_the_table_is_used() -> None:
    ours = {variable.name for variable in VARIABLES if variable.name.startswith("UNDERSTUDY_")}
    assert ours <= named().keys()


def test_entries_have_a_meaning_unless_an_option_gives_it() -> None:
    for variable in VARIABLES:
        assert bool(variable.meaning) == (variable.use not in (Use.OPTION, Use.INTERNAL)), variable.name
    assert len({variable.name for variable in VARIABLES}) == len(VARIABLES)
