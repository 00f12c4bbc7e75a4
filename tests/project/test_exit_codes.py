"""The table of exit codes against the sources: every code that a command ends with is in it."""

from __future__ import annotations

import ast

import typer
from tests.pages import ROOT

from understudy.cli import app, drill_command, exit_codes
from understudy.cli.check import verdict
from understudy.core import drill


def test_numbers_in_the_sources_have_their_common_meaning() -> None:
    """Codes that only one command has are named there by a constant of `cli.exit_codes`."""
    for path in (ROOT / "src" / "understudy" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Exit":
                numbers = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, int)]
                assert set(numbers) <= exit_codes.COMMON.keys(), f"{path}:{node.lineno}"


def test_codes_of_verdicts_are_in_the_table() -> None:
    assert set(verdict.EXIT.values()) <= exit_codes.OF["run --check"].keys()
    assert set(drill_command.EXIT.values()) <= exit_codes.OF["drill --wait"].keys()
    assert drill.NOT_SURVIVABLE == exit_codes.NOT_SURVIVABLE


def test_entries_are_of_commands_and_their_options() -> None:
    for entry in exit_codes.OF:
        words, _, option = entry.partition(" --")
        command = typer.main.get_command(app)
        for word in words.split():
            command = getattr(command, "commands")[word]  # noqa: B009  # typer brings its own click
        assert not option or f"--{option}" in {name for parameter in command.params for name in parameter.opts}


def test_help_shows_the_codes() -> None:
    command = getattr(typer.main.get_command(app), "commands")["drill"]  # noqa: B009
    assert command.epilog == exit_codes.epilog("drill --wait")
    assert "(the step is not reproducible on this device)" in command.epilog
