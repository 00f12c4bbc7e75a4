"""End a command with the reason if an orchestrator does not answer or refuses a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from understudy.cli.client import Denied, NoAnswer
from understudy.common.console import say


@contextmanager
def errors_printed() -> Iterator[None]:
    try:
        yield
    except (NoAnswer, Denied) as error:
        say(str(error))
        raise typer.Exit(1) from error
