"""Collectives that a script starts and does not wait for in the same transaction.

A vote says that this rank's collectives are done. A Work that outlives its transaction breaks that: a peer may be gone before it is done,
a redo cannot start it again, and a newcomer has never had it. So in the first transactions of each function, and in those whose number
is a power of two, every Work is noted (by a kernel of the same kind as the set-up's, `record`), and one that the script still holds
behind the transaction without having waited for it is told about. Such a function is watched from then on, and its Works are waited for
before each vote, so that at least nobody passes a vote with a collective under way.

Known limits: a Work that the script drops without waiting is not told about; it is waited for in watched transactions only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import Work

from understudy.worker.record import Kernels

_OWN = 2  # references to a Work that nobody else holds: of the list, and of the call that counts


class Works:
    def __init__(self) -> None:
        self._kernels: _Noting | None = None
        self._leaving: set[str] = set()  # functions that leave Works behind
        self._waited: set[int] = set()
        self._wait: Callable[..., Any] = Work.wait

    def begin(self, function: str, closely: bool) -> None:
        """Notes what follows, if it is to be noted."""
        self.end()
        if closely or function in self._leaving:
            self._kernels = _Noting()
            self._kernels.install()
            wait, waited = self._wait, self._waited

            def noted(work: Work, *args: Any, **kwargs: Any) -> Any:
                waited.add(id(work))
                return wait(work, *args, **kwargs)

            Work.wait = noted  # type: ignore[assignment,method-assign]

    def settle(self) -> None:
        """Before a vote: waits for all that is noted. Raises what the collectives raise."""
        for work in self._kernels.works if self._kernels is not None else ():
            if not work.is_completed():
                self._wait(work)

    def left(self, function: str) -> str:
        """Behind the function: what is to be told of Works that it leaves, or ""."""
        kernels, found = self._kernels, list[str]()
        for number in range(len(kernels.works) if kernels is not None else 0):
            assert kernels is not None
            if sys.getrefcount(kernels.works[number]) > _OWN and id(kernels.works[number]) not in self._waited:
                found.append(kernels.names[number])
        self.end()
        if not found:
            return ""
        self._leaving.add(function)
        return (
            f"{function} starts {found[0]} and keeps its Work without waiting for it: a step that is redone could not start it "
            f"again, and a "
            "newcomer does not have it, so the result after a loss would be another one. Wait for it inside the transaction"
        )

    def end(self) -> None:
        """Notes nothing more."""
        if self._kernels is not None:
            self._kernels.remove()
            self._kernels = None
            Work.wait = self._wait  # type: ignore[method-assign]
            self._waited.clear()


class _Noting(Kernels):
    def __init__(self) -> None:
        super().__init__()
        self.works: list[Work] = []  # held, so that the script gets the same objects
        self.names: list[str] = []

    def call(self, name: str, group: str, outputs: Any, operate: Callable[[], Any]) -> Any:
        result = operate()
        work = result[-1] if isinstance(result, tuple) else result
        if isinstance(work, torch.ScriptObject):
            self.works.append(Work.unbox(work))
            self.names.append(f"{name.strip('_')} on group {group!r}")
        return result
