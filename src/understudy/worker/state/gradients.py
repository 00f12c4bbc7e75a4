"""Which gradients belong to the state: those that live on from one transaction to the next.

Most scripts drop theirs in every step, and then nothing of them has to be copied. That is not assumed but watched.
"""

from __future__ import annotations

import weakref

import torch
from torch.optim import Optimizer

from understudy.worker.errors import Misuse
from understudy.worker.state.optimizers import ends_of, parameters_of
from understudy.worker.state.tensors import changes


class Gradients:
    def __init__(self, optimizers: dict[str, Optimizer]) -> None:
        self._optimizers = optimizers
        self.matter = True  # whether those that exist between two transactions are part of the state
        self.kept = 0  # how often a step was seen that did not drop those that it found
        self.dropped = 0  # how often one that did
        self._found: list[tuple[weakref.ref[torch.Tensor], int]] = []  # at begin, and how often they had been changed

    def begin(self) -> None:
        self._found = [(weakref.ref(p.grad), changes(p.grad)) for p in self._watched() if p.grad is not None]

    def refuse_additions(self) -> None:
        """Raises `Misuse` if those found at begin, which are dropped as a rule, have been added to: there is no copy of them."""
        present = {id(p.grad) for p in self._watched() if p.grad is not None}
        there = [v == changes(g) for r, v in self._found if (g := r()) is not None and id(g) in present]
        if not all(there):
            raise Misuse(
                "this step adds to gradients of an earlier step, which all steps so far had dropped, and was interrupted: it cannot be "
                "redone. Accumulate gradients inside one @job.step"
            )

    def untouched(self) -> bool:
        """In front of a redo that drops those found at begin: whether the attempt has neither dropped nor changed them itself."""
        if self.matter:
            return False
        present = {id(p.grad) for p in self._watched() if p.grad is not None}
        there = [(reference(), before) for reference, before in self._found]
        return bool(there) and all(g is not None and id(g) in present and changes(g) == before for g, before in there)

    def _watched(self) -> list[torch.Tensor]:
        """Parameters whose gradients are watched: all at first, then two of each group, because whoever drops one drops all."""
        if self.matter:
            return [parameter for optimizer in self._optimizers.values() for parameter in parameters_of(optimizer)]
        return [parameter for optimizer in self._optimizers.values() for parameter in ends_of(optimizer)]

    def keep(self) -> None:
        """Before a section, which may read the gradients of the last step: from now on they belong to the state. This is before anybody
        joins a new generation there, because a rank that has lost its gradients in the meantime could not learn it any more.
        """
        if any(p.grad is not None for p in self._watched()):
            self.kept += 1
            self.matter = True

    def learn(self, carried: bool) -> None:
        """At a step's commit: whether the gradients that exist now belong to the state of the job.

        They do if no optimizer was stepped (`carried`): a later transaction adds to them. After an optimizer step they usually do
        not, because the next step drops them first (`zero_grad`), or this one has dropped them itself. That is not assumed but watched:
        it counts once two steps have dropped all that they found or made, and no longer as soon as one has not.
        """
        if not self._found:
            self.dropped += all(p.grad is None for p in self._watched())
        else:
            present = {id(p.grad) for p in self._watched() if p.grad is not None}
            alive = [gradient for reference, _ in self._found if (gradient := reference()) is not None]
            if any(id(gradient) in present for gradient in alive):
                self.kept += 1
            else:
                self.dropped += 1
        self.matter = carried or self.kept > 0 or self.dropped < 2
