"""Compares all state among all ranks, by digests: which ranks are replicas, and whether they still are.

Two ways, at moments that are the same on all ranks:

- *In full* (`run`), between two transactions: every rank sends all others the digest of each of its entries. Before the first
  transaction, before those with a power of two as number, one transaction after a recovery, at the end, and when the other way has
  found something. Replicas are found in this way, and lost: ranks that differ in an entry are not replicas in it any more.
- *In the background* (`watch`), every `every` committed steps: parameters, moments and settings do not change between the begin of a
  step and its vote, so a thread reads them meanwhile. With the vote goes one number for each set of entries that the same ranks share;
  it costs the others nothing but these numbers. A finding is kept until the next begin, where its details are compared.

A difference that cannot be a chance is reported (`core/judgement.py`): the generation ends, and the odd rank is replaced or the job is
paused. With `every` 0 that is so in recoveries only: for scripts whose replicas diverge on purpose.

Known limits: between a corruption and the vote that finds it, at most `every` steps, gradients of the corrupt rank were added to all
others'. Buffers, the user's values and gradients are compared in full only, and never judged: they may differ from rank to rank.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import torch

from understudy.core.coverage import Replicas, refine
from understudy.core.events import GroupsListed, RankGroup, StateListed
from understudy.core.judgement import is_training_state
from understudy.messages import coverage as texts
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.encoding.messages import Compared, pack, unpack
from understudy.worker.errors import UnderstudyError, UsageError
from understudy.worker.frameworks.base import brief, disagreement, without
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.group_listing import groups_of
from understudy.worker.generation.rank_state import StateSummary
from understudy.worker.generation.step_copy import SHARED, StepCopy
from understudy.worker.participant import Participant, Reduce, Step, VoteField, VoteResult
from understudy.worker.state.rank_local import CLASSIFIED
from understudy.worker.state.registry import State
from understudy.worker.verification.coverage_report import coverage
from understudy.worker.verification.issued import IssuedCollectives
from understudy.worker.verification.post_vote_changes import PostVoteChanges
from understudy.worker.verification.role_reports import RoleReports
from understudy.worker.verification.state_listing import adopted, items_of, that_fit
from understudy.worker.verification.verdicts import Judge

EVERY = 100  # steps between two comparisons in the background


class _DigestThread(threading.Thread):
    """Computes digests of tensors on a thread, while they do not change."""

    def __init__(self, state: State, tensors: dict[str, torch.Tensor], values: dict[str, bytes]) -> None:
        super().__init__(name="understudy-compare", daemon=True)
        self._state, self._tensors, self._values = state, tensors, values
        self._found: dict[str, int] = {}
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._state.digests_of(self._tensors, self._values)
        except BaseException as error:  # handed to the main thread
            self._error = error

    def result(self) -> dict[str, int]:
        self.join()
        if self._error is not None:
            raise self._error
        return self._found


class Comparison(Participant):
    def __init__(self, context: RankContext, copy: StepCopy, post_vote: PostVoteChanges, judge: Judge, issued: IssuedCollectives) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._notices = context.notices
        self._copy, self._post_vote = copy, post_vote
        self._judges, self._issued = judge, issued
        self.every = int(os.environ.get("UNDERSTUDY_COMPARE_EVERY") or EVERY)  # rank 0's counts; 0: never in the background
        self.moved: set[str] = set()  # entries that have changed and were, before and after, the same on all replicas of this rank
        self.came: set[int] = set()  # ranks that newcomers have taken
        self._last = 0  # the transaction before which states were compared in full last
        self._proof = -1  # the transaction before which a recovery is proven
        self._again = -1  # ... and one before which all ranks compare because a newcomer had committed no step at the last comparison
        self._seen: dict[str, int] = {}  # digests of the last comparison, of entries that were the same on all replicas of this rank
        self._groups: tuple[RankGroup, ...] = ()  # on rank 0: as last reported
        # On rank 0: the facts that steer collectives on all ranks, and a digest of the collectives that each issues, as of the last full
        # comparison.
        self._roles = RoleReports(context)  # on rank 0
        self._parted = False  # the last vote has shown that what all ranks had in common is not the same any more
        self._reading: _DigestThread | None = None
        self._doubt: dict[str, int] | None = None  # this rank's digests of a background comparison that has found a difference
        self._shared: tuple[Replicas | None, list[_Share]] = None, []

    def recovered(self, newcomers: tuple[int, ...]) -> None:
        """Note a recovery: the present state has just been compared with the donors'; values computed from it are compared next."""
        number = self._progress.transaction
        self._last, self._proof = max(number, 0), number + 1
        self._reading = self._doubt = None
        self._parted = False
        self.came |= set(newcomers)

    # -- in the background -------------------------------------------------------------------------------------------------

    def attempt(self, step: Step) -> None:
        """Start to read, if this step's vote is to report it."""
        if self._reading is None and self._compares():
            self._read()

    def _compares(self) -> bool:
        """Return whether the next vote reports a comparison. The same on every rank."""
        progress = self._progress
        step = progress.kind == "step" and progress.step > 0
        return step and self.every > 0 and progress.step % self.every == 0

    def _read(self) -> None:
        state = self._rank_state.state
        mine = {entry for share in self._shares() if share.mine for entry in share.entries} - self._rank_state.pre_vote.entries
        tensors = {entry: tensor for entry, tensor in state.all_tensors().items() if entry in mine}
        self._reading = _DigestThread(state, tensors, state.encoded_values(mine))

    def _shares(self) -> list[_Share]:
        """Return the sets of entries that the same ranks share, for all ranks in the same order."""
        known = self._rank_state.local.replicas
        if self._shared[0] is not known and known is not None:
            entries: dict[tuple[int, ...], list[str]] = {}
            for entry in filter(is_training_state, sorted(known.classes)):
                entries.setdefault(known.classes[entry], []).append(entry)
            shares = [
                _Share(entries[row], row[self._progress.rank] == number)
                for row in sorted(entries)
                for number, count in sorted(Counter(row).items())
                if number >= 0 and count > 1
            ]
            self._shared = known, shares
        return self._shared[1]

    def vote_fields(self) -> Sequence[VoteField]:
        """Return the digest of each share, of the ranks that have it."""
        if not self._compares():
            return ()
        if self._reading is None:  # a newcomer's first step
            self._read()
        assert self._reading is not None
        found, left_out = self._reading.result(), self._rank_state.pre_vote.entries
        return [
            VoteField(_name(number), Reduce.EQUAL, share.digest(found, left_out) if share.mine else None)
            for number, share in enumerate(self._shares())
        ]

    def voted(self, result: VoteResult) -> None:
        if result[SHARED] is None:  # buffers and values that all ranks had in common, and that are therefore not in their copies
            self._parted = True
        if not self._compares() or self._reading is None:
            return
        found, self._reading = self._reading.result(), None
        if self._copy.found:  # a rank has found that what was read changes before the vote
            return
        if all(result[_name(number)] is not None for number in range(len(self._shares()))):
            self._learn(found)
        else:
            self._doubt = self._unmoved(found)

    def _unmoved(self, found: dict[str, int]) -> dict[str, int]:
        """Return, still in the vote, the digests that are still valid. The script changed the other tensors while they were read, which no
        counter has shown, so their digests mean nothing.
        """
        state = self._rank_state.state
        tensors = {entry: tensor for entry, tensor in state.all_tensors().items() if entry in found}
        now = state.digests_of(tensors, {})
        changed = {entry for entry in found if entry in tensors and now[entry] != found[entry]}
        if changed:
            self._rank_state.pre_vote.add(self._progress.function, changed)
        return {entry: value for entry, value in found.items() if entry not in changed}

    def _learn(self, same: dict[str, int]) -> None:
        """Note that these entries are the same on all replicas of this rank."""
        self.moved |= {entry for entry, value in same.items() if self._seen.get(entry, value) != value}
        self._seen = same

    @property
    def doubtful(self) -> bool:
        """Return whether the last vote has shown that replicas differ, and the details are not compared yet. The same on every rank."""
        return self._doubt is not None

    # -- in full -----------------------------------------------------------------------------------------------------------

    def _at_end(self, number: int) -> bool:
        return self._progress.finished and self._last < number

    def due(self) -> bool:
        number = self._progress.transaction
        regular = number & (number - 1) == 0 or number in (self._proof, self._again)
        return (
            self.doubtful
            or self._parted
            or self._rank_state.pre_vote.unequal
            or self._at_end(number)
            or (number > 0 and regular and self._last < number)
        )

    def run(self) -> None:
        """Compare once, on all ranks together, and refine which ranks are replicas. Raises `RuntimeError` on a failure of a peer, and
        `GenerationAborted` when replicas differ and the generation has ended for that.
        """
        local, number = self._rank_state.local, self._progress.transaction
        if self._doubt is not None:
            doubt, self._doubt = self._doubt, None
            self._judge(self._gather(doubt), aside=True)
        self._last = max(number, 0)  # one attempt: after a failure all ranks go on with the same knowledge
        before = local.replicas
        if self._parted:
            self._parted = False
            self._part()
            self._post_vote.hand_over()
        summaries = self._gather(self._rank_state.digests())
        tables, rank = [there.digests for there in summaries], self._progress.rank
        if before is not None and self.every:
            self._judge(summaries)
        local.replicas = refine(local.replicas, tables)
        local.comparisons += 1
        self._learn({e: value for e, value in tables[rank].items() if is_training_state(e) and local.replicas.of(e, rank)})
        parted = before.parted(local.replicas) if before is not None and local.comparisons > 2 else []
        parted = [entry for entry in parted if is_training_state(entry)]
        if parted and number == self._proof:
            self._refuse(parted[0], len(parted))
        if parted:
            self._notices.tell(texts.PARTED(entry=parted[0], count=len(parted)))
        if local.comparisons >= CLASSIFIED:  # the first one knows no moments
            if rank == 0:
                self._roles.report(local.replicas)
            self._tell_state(local.replicas)
        if local.comparisons == CLASSIFIED + 2 and (text := adopted(self._rank_state.state, local.replicas)):
            # Entries that differ from rank to rank and are left alone for that have been seen by now.
            self._notices.tell(text, everyone=False)
        if local.comparisons <= CLASSIFIED:
            channel = self._membership.channel
            assert channel is not None
            text, covered = coverage(local.replicas, self._rank_state.state, channel.places)
            if local.comparisons == CLASSIFIED or not covered:  # at the first one, moments and what was freshly zeroed are not known yet
                self._notices.tell(text, everyone=False)

    def _tell_groups(self, groups: tuple[RankGroup, ...]) -> None:
        if groups != self._groups and not self._progress.finished:
            self._groups = groups
            control = self._membership.control
            control.send(GroupsListed(control.worker, self._progress.step, groups))

    def _tell_state(self, replicas: Replicas) -> None:
        progress, control = self._progress, self._membership.control
        if progress.rank == 0 and not progress.finished:  # nothing is left of a script that has ended
            items = items_of(self._rank_state.state, replicas)
            fit = that_fit(items)
            control.send(StateListed(control.worker, progress.step, fit, len(items) - len(fit)))

    def _part(self) -> None:
        """Learn which buffers and values were different at the last vote, even if they are the same now.

        Copies contain neither parameters nor moments. If these differ now, too, as with a newcomer's own learning rate, that is judged.
        """
        local = self._rank_state.local
        copy = local.sealed[self._progress.transaction - 1]
        table = self._rank_state.digests() | copy.digests.tensors | copy.digests.values
        known = local.replicas.classes if local.replicas is not None else {}
        found = refine(local.replicas, [there.digests for there in self._gather(table)]).classes
        local.replicas = Replicas({entry: known.get(entry, row) if _is_never_copied(entry) else row for entry, row in found.items()})

    def _gather(self, table: dict[str, int]) -> list[StateSummary]:
        """Return what every rank reports; `table` has this one's digests. All use rank 0's interval between comparisons."""
        channel, frameworks = self._membership.channel, self._rank_state.frameworks
        assert channel is not None
        mine = Compared(
            *(self.every, self.summary(table).message(), brief(frameworks.described())),
            *(self._membership.groups.named(self._progress.rank), self._issued.sequence),
        )
        heard = [unpack(Compared, data) for data in channel.gather(pack(mine))]
        self.every = heard[0].every
        sequences = [there.sequence for there in heard]
        if 0 in sequences and any(sequences):
            self._again = self._progress.transaction + 1
        if self._progress.rank == 0:
            self._roles.heard([without(frameworks.passing, there.frameworks) for there in heard], sequences)
            self._tell_groups(groups_of(there.groups for there in heard))
        if different := disagreement({rank: there.frameworks for rank, there in enumerate(heard)}):
            raise UsageError(texts.LAYOUTS_DIFFER(transaction=self._progress.transaction, different=different))
        summaries = [StateSummary.of(there.state) for there in heard]
        for there in summaries:
            self._rank_state.pre_vote.adopt(there.pre_vote)
        return summaries

    def summary(self, table: dict[str, int]) -> StateSummary:
        return StateSummary(table, self.moved, self._rank_state.state.owners(), self._rank_state.pre_vote.found_changes())

    def _judge(self, summaries: list[StateSummary], aside: bool = False) -> None:
        """Raise `GenerationAborted` if replicas differ and that is not a chance. `aside`: of what was read while a step ran."""
        if aside:
            summaries = [replace(there, moved=there.moved - self._rank_state.pre_vote.entries) for there in summaries]
        found = self._judges.differences(dict(enumerate(summaries)))
        if not found:
            return
        accused = {rank for one in found for rank in (one.odd or [r for side in one.sides for r in side])}
        replicas = self._rank_state.local.replicas
        assert replicas is not None
        several = 2 * len({one.entry for one in found}) > len(list(filter(is_training_state, replicas.classes)))
        if accused & self.came and (self._progress.transaction == self._proof or (several and accused <= self.came)):
            self._refuse(found[0].entry, len(found))
        self._judges.end_generation(self._progress.generation, found, {rank: there.digests for rank, there in enumerate(summaries)})

    def _refuse(self, entry: str, count: int) -> None:
        raise UnderstudyError(texts.NO_LONGER_SAME(rank=self._progress.rank, entry=entry, count=count))


def _is_never_copied(entry: str) -> bool:
    return is_training_state(entry) and not entry.endswith("/settings")


def _name(share: int) -> str:
    return f"share {share}"


class _Share:
    """Entries that the same ranks share, and whether this rank is one of them."""

    def __init__(self, entries: list[str], mine: bool) -> None:
        self.entries, self.mine = entries, mine

    def digest(self, found: Mapping[str, int], without: Container[str]) -> int:
        """Return 63 bits of the digests of all entries but those `without`; a missing one counts as 0."""
        return digest_bytes(b"".join(found.get(entry, 0).to_bytes(8, "little") for entry in self.entries if entry not in without)) >> 1
