"""An orchestrator that does not answer, or says no, ends a command with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from understudy.cli.client import Denied, NoAnswer
from understudy.common.console import say


@contextmanager
def errors_told() -> Iterator[None]:
    try:
        yield
    except (NoAnswer, Denied) as error:
        say(str(error))
        raise typer.Exit(1) from error
