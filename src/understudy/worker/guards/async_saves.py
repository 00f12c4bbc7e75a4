"""Waits for distributed checkpoints that are saved while the script goes on (`async_save`).

A thread of torch's then issues collectives, in whatever transaction the script is by that time: if a rank is lost meanwhile they cannot
be redone, and a newcomer has no such thread. So a save is waited for before the vote of the transaction that begins it, and a warning
is printed. If that is redone, a save of an attempt that does not count is over: the script may still refer to it, but does not learn
how it ended.

Known limits: a save that is begun between two transactions, or after a vote, is waited for before the next one. One by another process
(`AsyncCheckpointerType.PROCESS`) has its own groups, and is not waited for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Any

from understudy.messages import script
from understudy.worker import patches
from understudy.worker.errors import GenerationAborted
from understudy.worker.participant import Participant, Step

_EXECUTOR = "torch.distributed.checkpoint._async_thread_executor"  # imported by the script only, if at all


class _Save(Future[Any]):
    """The future that the script gets in place of the executor's."""

    void = False  # its attempt does not count

    def result(self, timeout: float | None = None) -> Any:
        return None if self.void else super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return None if self.void else super().exception(timeout)

    def follow(self, save: Future[Any]) -> None:
        error = CancelledError() if save.cancelled() else save.exception()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(save.result())


class AsyncSaves(Participant):
    def __init__(self, is_lost: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """`is_lost`: whether a peer is lost. `tell`: called with warnings for the user."""
        self._is_lost, self._tell = is_lost, tell
        self._under_way: list[_Save] = []
        self._earlier: list[_Save] = []  # of transactions that count: the script learns how these ended
        self._watched = False

    def attempt(self, step: Step) -> None:
        """Note saves from now on. The function may import what saves, so this may come one transaction late."""
        self._earlier = list(self._under_way)
        if not self._watched and (module := sys.modules.get(_EXECUTOR)) is not None:
            self._watched = True
            owner = module._ThreadBasedAsyncCheckpointExecutor
            patches.wrap(owner, "execute_save", self._noted, "saves in the background are waited for")

    def _noted(self, stock: Callable[..., Future[Any]], *args: Any, **kwargs: Any) -> Future[Any]:
        save = _Save()
        save.set_running_or_notify_cancel()  # as torch's own, it cannot be cancelled any more
        stock(*args, **kwargs).add_done_callback(save.follow)
        self._under_way.append(save)
        return save

    def before_vote(self, step: Step) -> None:
        """Wait for the saves. Raises `GenerationAborted` if a loss has ended one. Any other result goes to the script."""
        failed = [save for save in self._under_way if save.exception() is not None]
        if self._under_way:
            self._tell(script.SAVE_WAITED_FOR(function=step.function))
        if failed and self._is_lost():
            raise GenerationAborted("a checkpoint was not saved, because a rank was lost")

    def passed(self, step: Step) -> None:
        self._under_way.clear()

    def rollback(self, step: Step) -> None:
        """Wait for the saves of the attempt. Their groups are broken by now, so they end soon: no other save may begin before that."""
        wait(self._under_way)
        for save in self._under_way:
            save.void = not any(save is earlier for earlier in self._earlier)
        self._under_way.clear()
