"""Detect survivors that crash right after a recovery because a newcomer issues different collectives.

If a newcomer's collective does not match (another layout of buckets, another branch of the script), the library does not always raise: Gloo
ends the process of the survivor that receives it (`preamble.length`), by SIGABRT or worse. Each of these healthy survivors looks like a
loss, and its newcomer does not match either. Spares are used up until all ranks are newcomers, which agree with each other about wrong
state, and the job ends with exit code 0.

So crashes (signals that a process raised itself) of survivors of the last recovery are counted, from the recovery until every rank has
committed the transaction at which it resumed. The first one may be a chance fault, and is a loss like any other. The second at the same
transaction, in that recovery or the next one that resumes there, ends the job. Workers that are killed from outside, newcomers that crash,
and recoveries without a newcomer do not count.

In the first transaction after a recovery, workers compare the calls that they are about to issue, and name a difference before it does
harm. This module is for cases that they do not detect: a drill has passed and a newcomer computes something else nevertheless, or the
comparison was given up.

If only one survivor is left, its first crash ends the job: another newcomer would meet the one before it, the two would agree, and a chance
fault could not be distinguished from wrong state any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from understudy.core.model import LossCause
from understudy.messages import losses

ENOUGH = 2  # survivors that crashed at one transaction


@dataclass
class Crashes:
    """The crashes at the transaction at which the last recovery resumed, until every rank has committed it."""

    transaction: int
    newcomers: dict[str, int] = field(default_factory=dict)  # worker -> rank: of all recoveries that went on there
    survivors: int = ENOUGH  # number of survivors of the last of these recoveries
    descriptions: list[str] = field(default_factory=list)  # descriptions of the crashes

    @staticmethod
    def resumed(before: Crashes | None, transaction: int, newcomers: dict[str, int], survivors: int) -> Crashes | None:
        """Return the record for a recovery that resumes at `transaction` with these newcomers and this number of survivors."""
        if before is None or before.transaction != transaction:
            return Crashes(transaction, newcomers, survivors) if newcomers else None
        return Crashes(transaction, {**before.newcomers, **newcomers}, survivors, before.descriptions)

    def count(self, worker: str, cause: LossCause, what: str) -> None:
        """Count the loss of `worker`, which holds a rank; `what` describes it."""
        if cause is LossCause.CRASHED and worker not in self.newcomers:
            self.descriptions.append(what)

    def verdict(self) -> str:
        """Return why the job ends; empty if it does not."""
        if len(self.descriptions) < min(ENOUGH, max(self.survivors, 1)):
            return ""
        new = ", ".join(f"rank {rank} on {worker}" for worker, rank in self.newcomers.items())
        return losses.SURVIVORS_CRASH(crashes="; ".join(self.descriptions), transaction=self.transaction, newcomers=new)
