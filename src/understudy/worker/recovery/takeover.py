"""The part of a newcomer that a spare's drill replaces, so that the way through the script is the same for both (`newcomer`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

from understudy.core.model import DrillVerdict
from understudy.worker.collectives.setup_record import SetUpReplayer
from understudy.worker.encoding.messages import JobProgress
from understudy.worker.generation.members import Members
from understudy.worker.transport.rendezvous import Rendezvous


class Takeover(ABC):
    """The state of a rank that is alive, taken over to compute one step in parallel with it. `meeting`: where the rank describes it."""

    meeting: Rendezvous

    @abstractmethod
    def members(self, transaction: int) -> Members:
        """Return the members that give the state as of the begin of `transaction`."""

    @abstractmethod
    def arrive(self, job: JobProgress, streams_set: bool, replayer: SetUpReplayer) -> None:
        """Take over the state. Does not return if that is impossible, or if the state differs."""

    @abstractmethod
    def tell(self, verdict: DrillVerdict, detail: str) -> NoReturn:
        """Report the result, and wait until this worker is ended."""
