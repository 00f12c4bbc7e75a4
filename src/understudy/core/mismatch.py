"""Survivors that crash right after a recovery: a newcomer that does something else than they do.

Where a newcomer's collective does not fit (another layout of buckets, another branch of the script), the library below does not always
raise: Gloo ends the process of the survivor that hears it (`preamble.length`), by SIGABRT or worse. Each of these healthy survivors looks
like a loss, and its newcomer is one more that does not fit: spares burn until all ranks are newcomers, which agree with each other about
wrong state, and the job "ends well".

So crashes (signals of a process's own making) are counted of those that were survivors of the last recovery, from that on until every
rank has committed the transaction at which it went on. The first one may be a chance fault, and is a loss like any other. The second at
the same transaction, in that recovery or the next that goes on there, ends the job. Those that are killed from outside, newcomers that
crash themselves, and recoveries without a newcomer do not count.

Workers compare what they are about to issue in the first transaction after a recovery, and name a difference before it does harm. This is
for what they do not see: where a drill has passed and a newcomer computes something else all the same, or where that was given up.

Where only one survivor is left, its first crash ends the job: another newcomer would meet the one before it, the two would agree, and
nobody could tell a chance fault from wrong state any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from understudy.core.model import LossCause
from understudy.messages import losses

ENOUGH = 2  # survivors that crashed at one transaction


@dataclass
class Crashes:
    """At the transaction at which the last recovery went on, and that not every rank has committed since."""

    transaction: int
    newcomers: dict[str, int] = field(default_factory=dict)  # worker -> rank: of all recoveries that went on there
    survivors: int = ENOUGH  # of the last of these recoveries
    told: list[str] = field(default_factory=list)  # the crashes, in words

    @staticmethod
    def resumed(before: Crashes | None, transaction: int, newcomers: dict[str, int], survivors: int) -> Crashes | None:
        """A recovery goes on at `transaction`, with these newcomers, and so many that were there before."""
        if before is None or before.transaction != transaction:
            return Crashes(transaction, newcomers, survivors) if newcomers else None
        return Crashes(transaction, {**before.newcomers, **newcomers}, survivors, before.told)

    def count(self, worker: str, cause: LossCause, what: str) -> None:
        """`worker` holds a rank and is lost; `what` says so."""
        if cause is LossCause.CRASHED and worker not in self.newcomers:
            self.told.append(what)

    def verdict(self) -> str:
        """Why the job ends; empty if it does not."""
        if len(self.told) < min(ENOUGH, max(self.survivors, 1)):
            return ""
        new = ", ".join(f"rank {rank} on {worker}" for worker, rank in self.newcomers.items())
        return losses.SURVIVORS_CRASH(crashes="; ".join(self.told), transaction=self.transaction, newcomers=new)
