"""Which gradients belong to the state: those that live on from one transaction to the next.

Most scripts drop theirs in every step, and then nothing of them has to be copied. That is not assumed but watched.

While they drop theirs, a newcomer is not given the gradients of the step before: it would drop them as well. Ranks that have them keep
them, and they are nobody's state (`withheld`) until the script drops them. So all ranks, with them or without, come to the same view of
what matters. Should a step add to them after all, it is refused, because a newcomer cannot do the same.
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
        self.kept = 0  # how often a step was seen that did not drop those that it found
        self.dropped = 0  # how often one that did
        self._found: dict[int, _Found] = {}  # at begin, by id of the parameter
        self._withheld: dict[int, _Found] = {}  # what some ranks have and others do not, likewise

    def of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Its gradient, unless that is withheld."""
        return None if self._withheld and self.is_withheld(parameter) else parameter.grad

    def _present(self) -> list[tuple[int, torch.Tensor]]:
        """By id of the parameter. Called up to three times in every step."""
        there = self._parameters()
        if self._withheld:
            there = [parameter for parameter in there if not self.is_withheld(parameter)]
        return [(id(parameter), gradient) for parameter in there if (gradient := parameter.grad) is not None]

    def begin(self) -> None:
        self._found = {parameter: (weakref.ref(gradient), changes(gradient)) for parameter, gradient in self._present()}

    def made(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Its gradient, unless the transaction has only found it."""
        gradient, found = self.of(parameter), self._found.get(id(parameter))
        if gradient is None or found is None or found[0]() is not gradient or changes(gradient) != found[1]:
            return gradient
        return None

    def live_on(self) -> bool:
        """At a vote: whether the step leaves what it has found, the first one that does (`learn`)."""
        return not self.matter and bool(self._found) and self._have_stayed(self._present())

    def _have_stayed(self, present: list[tuple[int, torch.Tensor]]) -> bool:
        return any(_is(self._found.get(parameter), gradient) for parameter, gradient in present)

    def withhold(self, told: bool) -> None:
        """On a rank that newcomers are to join: they get none of the gradients that do not matter, or of which the copies of the last vote
        have not `told`."""
        if not (self.matter and told):
            self._found = {}
            there = [(id(parameter), parameter.grad) for parameter in self._parameters()]
            self._withheld = {parameter: (weakref.ref(g), changes(g)) for parameter, g in there if g is not None}

    def are_withheld(self) -> bool:
        """Whether any are."""
        return bool(self._withheld) and any(map(self.is_withheld, self._parameters()))

    def is_withheld(self, parameter: torch.Tensor) -> bool:
        """Whether its gradient is."""
        return _is(self._withheld.get(id(parameter)), parameter.grad)

    def settle(self) -> None:
        """In front of a vote. Raises `UsageError` if the attempt has changed what is withheld; forgets what it has dropped of that."""
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
        """In front of a redo: the gradient with which the transaction began, or which is withheld, if the attempt has left that alone.

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
        """Before a section, which may read the gradients of the last step: from now on they belong to the state. This is before anybody
        joins a new generation there, because a rank that has lost its gradients in the meantime could not learn it any more.
        """
        if self._present():
            self.kept += 1
            self.matter = True

    def learn(self, carried: bool) -> None:
        """At a step's commit: whether the gradients that exist now belong to the state of the job.

        They do if no optimizer was stepped (`carried`): a later transaction adds to them. After an optimizer step they usually do
        not, because the next step drops them first (`zero_grad`), or this one has dropped them itself. That is not assumed but watched:
        it counts once two steps have dropped all that they found or made, and no longer as soon as one has not.
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
