"""cli.md: every command with its help, options and exit codes, as typer knows them.

typer's own `typer utils docs` leaves out the panels of `--help`, repeats for each command the options that many have in common, and cuts
the first sentence of a command. So this walks the same objects itself. It reads nothing that differs between versions of typer.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from scripts.reference.markdown import anchor, code, escape, paragraphs, sentence, table

from understudy.cli import app
from understudy.cli.exit_codes import OF

COMMON = 4  # commands from which on an option is listed once, as a common one
METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
NOT_OURS = {"--help", "--install-completion", "--show-completion"}
_BOLD = re.compile(r"\[bold\](.*?)\[/bold\]", re.DOTALL)
_Option = tuple[tuple[str, ...], str]  # names, help


@dataclass(frozen=True)
class Command:
    name: str  # without `understudy`
    what: Any  # typer brings its own click, whose types are not ours to import
    group: str = ""  # the help of its group

    @property
    def title(self) -> str:
        return f"understudy {self.name}"

    @property
    def help(self) -> str:
        return inspect.cleandoc(self.what.help or "")

    @property
    def types(self) -> dict[str, Any]:
        """Of the parameters, by name."""
        return get_type_hints(self.what.callback)

    def parameters(self, kind: str) -> list[Any]:
        return [one for one in self.what.params if one.param_type_name == kind and not NOT_OURS & set(one.opts)]


def commands() -> list[Command]:
    """All commands, those of groups after the others, in the order of `--help`."""
    return list(_walk(typer.main.get_command(app), "", ""))


def _walk(what: Any, name: str, group: str) -> Iterator[Command]:
    inner = getattr(what, "commands", None)
    if inner is None:
        yield Command(name, what, group)
    for key, one in (inner or {}).items():
        if not one.hidden:
            yield from _walk(one, f"{name} {key}".strip(), what.help if name else "")


def pages() -> dict[str, str]:
    found = commands()
    counts = Counter(_key(option) for command in found for option in command.parameters("option"))
    common = {option for option, count in counts.items() if count >= COMMON}
    lines = [
        "# Commands",
        "",
        "All commands of `understudy`, with their options and exit codes. `understudy COMMAND --help` shows the same. A *service* is an",
        "orchestrator that was started with `understudy orchestrator`, not by `understudy run`.",
        "",
        *table(["command", "purpose"], ([f"[{code(one.title)}](#{anchor(one.title)})", escape(_first(one))] for one in found)),
        "",
        "## Common options",
        "",
        "Several commands have these options. Each command below lists those that it has.",
        "",
    ]
    shared = {_key(one): (one, command.types[one.name]) for command in found for one in command.parameters("option") if _key(one) in common}
    lines += _options(list(shared.values()))
    for command in found:
        lines += ["", *_section(command, common)]
    return {"cli.md": "\n".join(lines)}


def _section(command: Command, common: set[_Option]) -> Iterator[str]:
    arguments = command.parameters("argument")
    options = command.parameters("option")
    yield from (f"## {command.title}", "", *prose(command.help))
    if arguments:
        yield from (
            "",
            *table(["argument", "meaning"], ([code(one.metavar or one.name.upper()), escape(one.help or "")] for one in arguments)),
        )
    panels = dict.fromkeys(one.rich_help_panel or "" for one in options if _key(one) not in common)
    for panel in panels:
        own = [(one, command.types[one.name]) for one in options if _key(one) not in common and (one.rich_help_panel or "") == panel]
        yield from ("", *([f"{panel}:", ""] if panel else []), *_options(own))
    if shared := [code(_names(one)[0]) for one in options if _key(one) in common]:
        yield from ("", f"[Common options](#common-options): {', '.join(shared)}.")
    for entry in (one for one in OF if one == command.name or one.startswith(f"{command.name} --")):
        option = entry.partition(" --")[2]
        shown = "; ".join(f"{code(str(number))} {text}" for number, text in OF[entry].items())
        yield from ("", *paragraphs(f"[Exit codes](exit-codes.md){f' with `--{option}`' if option else ''}: {shown}."))


def _options(options: list[tuple[Any, Any]]) -> list[str]:
    rows = []
    for option, kind in options:
        text, _, default = (option.help or "").partition("Default: ")
        known = option.default
        if not default and known not in (None, "") and not isinstance(known, bool) and not callable(known):
            default = code(str(getattr(known, "value", known)))
        default = "required" if option.required else default
        variable = option.envvar if isinstance(option.envvar, str) else ""
        rows.append(
            [
                ", ".join(code(f"{name}{_value(option, kind)}") for name in _names(option)),
                default.rstrip(".") if default.startswith("`") else escape(default.rstrip(".")),
                code(variable) if variable else "",
                escape(text.strip()) + _choices(kind),
            ]
        )
    return table(["option", "default", "variable", "meaning"], rows)


def _names(option: Any) -> list[str]:
    return sorted(option.opts, key=len, reverse=True)


def _value(option: Any, kind: Any) -> str:
    """What follows the option on the command line. `kind`: the type of the parameter."""
    if kind is bool:
        return ""
    if option.metavar:
        return f" {option.metavar}"
    return " " + next((METAVARS[one] for one in _flat(kind) if one in METAVARS), "VALUE")


def _choices(kind: Any) -> str:
    """The values of an option that has a few."""
    found = next((one for one in _flat(kind) if isinstance(one, type) and issubclass(one, Enum)), ())
    return f" One of {', '.join(code(str(one.value)) for one in found)}." if found else ""


def _flat(kind: Any) -> list[Any]:
    """Of `list[str] | None`: the types in it."""
    inner = get_args(kind)
    return [one for part in inner for one in _flat(part)] if inner else [kind]


def _key(option: Any) -> _Option:
    return tuple(option.opts), option.help or ""


def _first(command: Command) -> str:
    return _BOLD.sub(r"\1", sentence(command.help.partition("\n\n")[0]))


def prose(text: str) -> list[str]:
    """A command's help in Markdown: examples become a list, and indented text becomes a block of code."""
    lines: list[str] = []
    block: list[str] = []
    for paragraph in [*text.split("\n\n"), ""]:
        rows = [row for row in paragraph.splitlines() if row.strip()]
        if rows and all(row.startswith("  ") for row in rows):
            block.append("\n".join(rows))
            continue
        if block:
            lines += [*_block("\n\n".join(block)), ""]
            block = []
        if rows and rows[0].startswith("[bold]") and rows[0].endswith("[/bold]"):
            if lines and lines[-1] == "" and len(lines) > 1 and lines[-2].startswith("- "):
                lines.pop()
            lines += [*_examples(rows), ""]
        elif rows:
            lines += [
                *paragraphs(_inline(" ".join(row.strip() for row in rows))),
                "",
            ]
    return lines[:-1]


def _examples(rows: list[str]) -> Iterator[str]:
    told = [row.strip() for row in rows if not row.startswith("[bold]")]
    wanted = [code(_plain(_BOLD.sub(r"\1", row))) for row in rows if row.startswith("[bold]")]
    for one in wanted[:-1]:
        yield f"- {one}"
    yield f"- {wanted[-1]}{':' * bool(told)}"
    yield from (f"  {line}" for line in paragraphs(_inline(" ".join(told))))


def _block(text: str) -> list[str]:
    text = _plain(textwrap.dedent(text))
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ["```", *text.splitlines(), "```"]
    return ["```toml", *text.splitlines(), "```"]


def _inline(text: str) -> str:
    return "".join(code(_plain(part)) if index % 2 else escape(_plain(part)) for index, part in enumerate(_BOLD.split(text)))


def _plain(text: str) -> str:
    """Without rich's escapes."""
    return text.replace("\\[", "[")
