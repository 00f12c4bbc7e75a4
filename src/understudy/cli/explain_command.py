"""`understudy explain CODE`: explain what a message means, why it appears, and what to do."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from understudy.messages import command_line
from understudy.messages.base import CODE, Message
from understudy.messages.registry import AREAS, registry

CODES = Annotated[list[str] | None, typer.Argument(metavar="[CODE]...", help="Codes, such as US1203. Default: list all messages.")]

AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def explain(codes: CODES = None, as_json: AS_JSON = False) -> None:
    """Explain messages by their codes.

    Every message of Understudy begins with a code. The code stays the same when the wording changes, so that scripts and alerts can rely
    on it.
    """
    known = registry()
    wanted = [code.strip().upper().rstrip(":") for code in codes or known]
    for code in wanted:
        if code not in known:
            near = [other for other in known if CODE.fullmatch(code) and other[:4] == code[:4]]
            raise typer.BadParameter(command_line.NO_SUCH_CODE(code=code, near=", ".join(near) or ", ".join(AREAS)))
    messages = [known[code] for code in wanted]
    if as_json:
        print(json.dumps([vars(message) for message in messages], indent=1))
    elif codes:
        for message in messages:
            _explain(message)
    else:
        _list(messages)


def _explain(message: Message) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{message.code}[/]: {escape(message.template)}\n\nCause: {escape(message.cause)}")
    console.print(f"\nWhat to do: {escape(message.remedy or 'nothing; this is information.')}\n")


def _list(messages: list[Message]) -> None:
    console = Console(highlight=False)
    area = ""
    for message in messages:
        if message.code[:3] != area:
            area = message.code[:3]
            console.print(f"\n[bold]{area}xxx  {AREAS[area]}[/]")
        console.print(f"{message.code}  {escape(message.template)}", overflow="ellipsis", no_wrap=True)
