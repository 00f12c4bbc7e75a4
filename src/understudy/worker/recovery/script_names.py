"""Sets, on a newcomer, what the script has changed and did not register, where the newcomer passes on its way.

The values of a rank belong to the moment of the random streams in its copy: the vote, or a later point at which they were handed over
again. From there the newcomer runs on by itself, as it does with the streams, so no more values of its rank are set.

A copy may also have values that all ranks share, if it is older than the comparison that has shown this. Of these the donors know more: the
copy is of the vote, and lacks what the step has changed after it.

Known limits: what all ranks have in common is known as of the top of the iteration and as of the last commit. In an iteration that is
run once more, it is as of the commit from its top on.

Where the batch of an iteration that is over is drawn again, it is tried with the values of the set-up first, then with those after that
iteration. The digest of the batch shows which of them are right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from understudy.core.coverage import Replicas
from understudy.worker.encoding.messages import BuddyCopy, JobProgress
from understudy.worker.generation.donors import Donor
from understudy.worker.state.rank_local import kept_locally
from understudy.worker.state.registry import State
from understudy.worker.state.unregistered import is_unregistered


class ScriptNames:
    def __init__(self, state: State) -> None:
        self._state = state
        self.are_set = False  # as of the streams, and this newcomer has run on from there
        self.of_others: list[str] = []  # values from another rank, because its own had not handed them over
        self.again = False  # it has run the iteration in which its rank was lost once more, after the transaction

    def put(
        self,
        job: JobProgress,
        copy: BuddyCopy,
        rank: int,
        donors: Collection[Donor],
        alike: Mapping[str, bytes],
        own: Mapping[str, bytes],
    ) -> None:
        """Set the values that all `donors` have in common, as they had them at this place (`alike`), and those that the `rank` of the
        `copy` has handed over. `own`: where that was something else at this place; b"": as in the set-up.
        """
        local, shared = kept_locally(copy, rank, Replicas(job.replicas), [version for donor in donors for version in donor.versions]), set()
        for entry in sorted({entry for donor in donors for entry in donor.values if is_unregistered(entry)}):
            if len({donor.digests.get(entry) for donor in donors}) == 1 and len(set(job.replicas.get(entry, ()))) <= 1:
                self._load(entry, alike.get(entry, next(donor.values[entry] for donor in donors)))
                shared.add(entry)
        self.put_own(copy, own, shared - local)

    def put_own(self, copy: BuddyCopy, own: Mapping[str, bytes], shared: Collection[str] = ()) -> None:
        """Set what the rank of the `copy` has handed over, except what is `shared`."""
        if not self.are_set:
            for entry, data in {**copy.values, **own}.items():
                if is_unregistered(entry) and entry not in shared:
                    self._load(entry, data)

    def _load(self, entry: str, data: bytes) -> None:
        if data:
            self._state.load_value(entry, data)
