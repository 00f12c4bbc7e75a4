"""Detects whether a transaction changes its arguments in place: it could not be redone with the same ones.

Tensors count their changes, and are checked in every transaction. Arrays, containers and objects do not: their content is read in the
first transactions of each function and in those whose number is a power of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from understudy.messages import script
from understudy.worker.encoding.contents import content_of
from understudy.worker.errors import UsageError
from understudy.worker.participant import Participant, Step
from understudy.worker.state.tensors import changes

_LEAVES = {int, float, bool, str, bytes, type(None)}  # the types of most values that are no tensors


class Arguments:
    """The arguments of one transaction. `closely`: their content counts, too."""

    def __init__(self, function: str, things: Any, closely: bool) -> None:
        self._function, self._things = function, things
        self._versions = versions(things)
        self._content = content_of(things) if closely else None

    def check(self, redone: bool) -> str:
        """Return a warning about objects among them, or "". Raises `UsageError` if tensors, arrays or containers have changed."""
        changed = versions(self._things) != self._versions
        content = content_of(self._things) if self._content is not None and not changed else None
        if changed or (content is not None and self._content is not None and content.data != self._content.data):
            if redone:
                raise UsageError(script.ARGUMENTS_CHANGED_IN_REDO(function=self._function))
            raise UsageError(script.ARGUMENTS_CHANGED(function=self._function))
        if content is not None and self._content is not None and content.objects != self._content.objects:
            return script.ARGUMENT_OBJECT_CHANGED(function=self._function)
        return ""

    def begin_again(self) -> None:
        """Count changes from now on: since the check of the last attempt, registered tensors among them have been restored."""
        self._versions = versions(self._things)


class ArgumentsGuard(Participant):
    """Checks the arguments of the running transaction."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell`: called with warnings for the user."""
        self._tell = tell
        self._arguments: Arguments | None = None

    def begin(self, step: Step) -> None:
        self._arguments = None  # those of a transaction whose error the script has caught

    def attempt(self, step: Step) -> None:
        if self._arguments is None:  # whether to check closely is known by now; an earlier attempt may have failed before this point
            self._arguments = Arguments(step.function, step.arguments, step.closely)
        else:
            self._arguments.begin_again()

    def rollback(self, step: Step) -> None:
        if self._arguments is not None:
            self._arguments.check(redone=True)

    def returned(self, step: Step) -> None:
        if self._arguments is not None and (news := self._arguments.check(redone=False)):
            self._tell(news)
        self._arguments = None


def versions(thing: Any) -> list[int]:
    """Return how often each tensor in `thing`, in nested containers too, was changed in place. Inference tensors do not count it."""
    found: list[int] = []
    _collect(thing, found)
    return found


def _collect(thing: Any, found: list[int]) -> None:
    kind = type(thing)
    if kind is tuple or kind is list:
        for part in thing:
            _collect(part, found)
    elif kind is dict:
        for part in thing.values():
            _collect(part, found)
    elif isinstance(thing, torch.Tensor):
        if not thing.is_inference():
            found.append(changes(thing))
    elif kind not in _LEAVES:
        parts = torch.utils._pytree.tree_leaves(thing)
        if not (len(parts) == 1 and parts[0] is thing):
            _collect(parts, found)
