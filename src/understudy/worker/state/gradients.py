"""Which gradients belong to the state: those that live on from one transaction to the next.

Most scripts drop their gradients in every step, so that none have to be copied. That is observed, not assumed.

While a script drops its gradients, a newcomer is not given those of the step before: it would drop them as well. Ranks that have them
keep them, and they belong to no state (`withheld`) until the script drops them. So all ranks, with them or without, have the same view
of what matters. A step that adds to them after all is refused, because a newcomer cannot do the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch

from understudy.messages import registered
from understudy.worker.errors import UsageError
from understudy.worker.state.tensors import changes

_Found = tuple[weakref.ref[torch.Tensor], int]  # a gradient, and how often it had been changed


class Gradients:
    def __init__(self, parameters: Callable[[], Sequence[torch.Tensor]]) -> None:
        self._parameters = parameters
        self.matter = True  # whether those that exist between two transactions are part of the state
        self.read_in_sections = True
        self.kept = 0  # steps seen that did not drop the gradients that they found
        self.dropped = 0  # steps seen that did
        self._found: dict[int, _Found] = {}  # at begin, by id of the parameter
        self._withheld: dict[int, _Found] = {}  # likewise, those that some ranks have and others do not

    def of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return the gradient of a parameter, unless it is withheld."""
        return None if self._withheld and self.is_withheld(parameter) else parameter.grad

    def _present(self) -> list[tuple[int, torch.Tensor]]:
        """Return the gradients that exist, by id of the parameter. Called up to three times in every step."""
        there = self._parameters()
        if self._withheld:
            there = [parameter for parameter in there if not self.is_withheld(parameter)]
        return [(id(parameter), gradient) for parameter in there if (gradient := parameter.grad) is not None]

    def begin(self) -> None:
        self._found = {parameter: (weakref.ref(gradient), changes(gradient)) for parameter, gradient in self._present()}

    def made(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return the gradient of a parameter, unless the transaction has only found it."""
        gradient, found = self.of(parameter), self._found.get(id(parameter))
        if gradient is None or found is None or found[0]() is not gradient or changes(gradient) != found[1]:
            return gradient
        return None

    def live_on(self) -> bool:
        """Return, at a vote, whether the step leaves the gradients that it found; the first step that does (`learn`)."""
        return not self.matter and bool(self._found) and self._have_stayed(self._present())

    def _have_stayed(self, present: list[tuple[int, torch.Tensor]]) -> bool:
        return any(_is(self._found.get(parameter), gradient) for parameter, gradient in present)

    def withhold(self, listed: bool) -> None:
        """Withhold gradients, on a rank that newcomers are to join: those that do not matter, or all if the copies of the last vote do not
        list them (`listed`). Newcomers get none of them.
        """
        if not (self.matter and listed):
            self._found = {}
            there = [(id(parameter), parameter.grad) for parameter in self._parameters()]
            self._withheld = {parameter: (weakref.ref(g), changes(g)) for parameter, g in there if g is not None}

    def are_withheld(self) -> bool:
        """Return whether any gradients are withheld."""
        return bool(self._withheld) and any(map(self.is_withheld, self._parameters()))

    def is_withheld(self, parameter: torch.Tensor) -> bool:
        """Return whether the gradient of `parameter` is withheld."""
        return _is(self._withheld.get(id(parameter)), parameter.grad)

    def settle(self) -> None:
        """Check, before a vote, the gradients that are withheld, and forget those that the attempt has dropped. Raises `UsageError` if it
        has changed one.
        """
        if not self._withheld:
            return
        there: dict[int, _Found] = {}
        for parameter in self._parameters():
            found, gradient = self._withheld.get(id(parameter)), parameter.grad
            if found is not None and gradient is not None and _is(found, gradient):
                if changes(gradient) != found[1]:
                    raise UsageError(registered.GRADIENTS_NOT_GIVEN())
                there[id(parameter)] = found
        self._withheld = there

    def left(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return, before a redo, the gradient with which the transaction began, or which is withheld, if the attempt has not changed it.

        Raises `UsageError` if the attempt has added to it: there is no copy.
        """
        gradient = parameter.grad
        for found in (self._found.get(id(parameter)), self._withheld.get(id(parameter))):
            if gradient is not None and found is not None and _is(found, gradient):
                if changes(gradient) != found[1]:
                    raise UsageError(registered.GRADIENTS_NOT_KEPT())
                return gradient
        return None

    def keep(self) -> None:
        """Count the gradients as state from now on: a section may read the gradients of the last step. Called before any rank joins a new
        generation there, because a rank that has lost its gradients in the meantime could not learn it any more.
        """
        if self.read_in_sections and self._present():
            self.kept += 1
            self.matter = True

    def learn(self, carried: bool) -> None:
        """Learn, at a step's commit, whether the gradients that exist now belong to the state of the job.

        They do if no optimizer was stepped (`carried`): a later transaction adds to them. After an optimizer step they usually do not,
        because the next step drops them first (`zero_grad`), or this one has dropped them itself. That is observed, not assumed: it
        counts once two steps have dropped all that they found or made, and no longer as soon as one has not.
        """
        if not self._found:
            self.dropped += self.dropped < 2 and not self._present()
        elif self._have_stayed(self._present()):
            self.kept += 1
        else:
            self.dropped += 1
        self.matter = carried or self.kept > 0 or self.dropped < 2


def _is(found: _Found | None, gradient: torch.Tensor | None) -> bool:
    return found is not None and gradient is not None and found[0]() is gradient
