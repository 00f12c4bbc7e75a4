"""Waits for collectives that a script starts and does not wait for in the same transaction.

A vote means that this rank's collectives are done. A Work that outlives its transaction breaks that: a peer may be gone before it is
done, a redo cannot start it again, and a newcomer has never had it. So in the first transactions of each function, and in those whose
number is a power of two, every Work is noted (by a kernel like the set-up's, `collectives.interception`), and a warning is printed
about one that the script still refers to after the transaction without having waited for it. Such a function is watched from then on,
and its Works are waited for before each vote, so that no rank passes a vote with a collective under way.

Functional collectives have no Work: their result is a tensor that waits when it is first read. Those that have not been read are waited
for before every vote, and the script reads them later as it likes.

Known limits: no warning is printed about a Work that the script drops without waiting; it is waited for in watched transactions only.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import Work
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from understudy.messages import script
from understudy.worker import patches
from understudy.worker.collectives.interception import Collective, Kernels, wait_unseen, work_of
from understudy.worker.participant import Participant, Step

_OWN = 2  # references to a Work that no other code has: of the list, and of the call that counts


class Works(Participant):
    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell`: called with warnings for the user."""
        self._tell = tell
        self._kernels: _Noting | None = None
        self._leaving: set[str] = set()  # functions that leave Works behind
        self._waited: set[int] = set()  # ids of those for which the script has waited
        self._settled: set[int] = set()  # numbers of those for which this guard has waited
        self._unread = Unread()
        self._unread.install()

    def attempt(self, step: Step) -> None:
        """Note the Works that follow, if this attempt is watched."""
        self.end()
        self._unread.forget()
        if step.closely or step.function in self._leaving:
            self._kernels = _Noting(self._waited)
            self._kernels.install()

    def before_vote(self, step: Step) -> None:
        """Wait for the Works that the script refers to and has not waited for. Raises what the collectives raise.

        Never a second time: some Works copy their result in a wait, and the result may be another one by then.
        """
        if (kernels := self._kernels) is not None:
            for number in self._pending():
                wait_unseen(kernels.works[number])
                self._settled.add(number)
        self._unread.settle()

    def _pending(self) -> list[int]:
        """Return Works that are still referenced and not waited for, by number."""
        works = self._kernels.works if self._kernels is not None else []
        held = [number for number in range(len(works)) if sys.getrefcount(works[number]) > _OWN + _kept(works[number])]
        return [number for number in held if not self._is_waited(works[number]) and number not in self._settled]

    def _is_waited(self, work: Work) -> bool:
        return id(work) in self._waited or getattr(work, "waited", False)

    def returned(self, step: Step) -> None:
        """Warn about Works that the function leaves."""
        if self._kernels is None:
            return
        works = self._kernels.works
        still = [n for n in sorted(self._settled) if sys.getrefcount(works[n]) > _OWN + _kept(works[n]) and not self._is_waited(works[n])]
        found = [self._kernels.names[number] for number in [*still, *self._pending()]]
        self.end()
        if found:
            self._leaving.add(step.function)
            self._tell(script.WORK_KEPT(function=step.function, call=found[0]))

    def failed(self, step: Step, error: BaseException) -> None:
        self.end()

    def end(self) -> None:
        """Stop noting Works."""
        if self._kernels is not None:
            self._kernels.remove()
            self._kernels = None
            self._waited.clear()
            self._settled.clear()


def _kept(work: Work) -> int:
    """Return the number of references from our other clients of collectives (`step_replay`)."""
    return int(getattr(work, "kept", 0))


class Unread:
    """The results of functional collectives that have not been waited for."""

    def __init__(self) -> None:
        self._results: list[weakref.ref[AsyncCollectiveTensor]] = []
        self._patch: patches.Patch | None = None

    def install(self) -> None:
        """Note them from now on."""
        make, results = AsyncCollectiveTensor.__new__, self._results

        def noted(cls: type[AsyncCollectiveTensor], elem: torch.Tensor) -> AsyncCollectiveTensor:
            result: AsyncCollectiveTensor = make(cls, elem)
            results.append(weakref.ref(result))
            return result

        self._patch = patches.put(AsyncCollectiveTensor, "__new__", staticmethod(noted), "results that are not read yet are waited for")

    def remove(self) -> None:
        if self._patch is not None:
            self._patch.remove()

    def forget(self) -> None:
        """Drop the results of a failed attempt."""
        self._results.clear()

    def settle(self) -> None:
        """Wait for them before a vote. Raises what the collectives raise."""
        for reference in self._results:
            result = reference()
            if result is not None:
                result.trigger_wait()  # type: ignore[no-untyped-call]
        self._results.clear()


class _Noting(Kernels):
    def __init__(self, waited: set[int]) -> None:
        """`waited`: gets the ids of the Works for which the script has waited."""
        self._waited = waited
        self.works: list[Work] = []  # referenced, so that the script gets the same objects
        self.names: list[str] = []

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        result = operate()
        if (work := work_of(result)) is not None:
            self.works.append(work)
            self.names.append(f"{collective.operator.strip('_')} on group {collective.group.group_name!r}")
        return result

    def wait(self, work: Work, wait: Callable[[], Any]) -> Any:
        self._waited.add(id(work))
        return wait()
