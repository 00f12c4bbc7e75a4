"""Make a command's options from the fields of a dataclass: each is declared there, with its help and default, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Turn a function of one `kind` into a command. The fields of `kind` are annotated as typer expects parameters; typer reads the
    signature made here.
    """

    def as_command(function: Callable[[T], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            function(kind(**values))

        hints = get_type_hints(kind, include_extras=True)
        parameters = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)  # type: ignore[arg-type]  # there is no type for dataclasses
        ]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = hints
        del command.__wrapped__  # else typer would find the function's own signature through it
        return command

    return as_command
