"""A drill, on the spare: it takes over the rank's state as a newcomer does, computes the rank's next step twice, and compares.

It has no peers. Its collectives are answered with their results on the rank (`drill.step_replay`). The first attempt is broken off
right before its vote, the second one at a collective in the middle of the step, another one in each drill. Each time the step is run
again from the copy of its begin, as a survivor's is: so a redo is proven, too, without any risk. What a script does right before its
vote is seen after the second one only. Then come the optimizer and the rest after a vote, and in the end the verdict. The spare never
returns to the script, and takes no rank afterwards.

A difference at the begin (an attribute of a module that was never changed, an argument) is a cause and no verdict: many differences
mean nothing. The verdict depends on results: inputs of collectives, gradients, buffers, streams, and all state after the step.

Nothing is saved here: the rank is alive, and two processes would write over each other's file, the spare later than the rank and so
perhaps over a newer one. If the step calls `torch.save`, its drill ends, and what was compared until then counts.

Known limit: other files that a step writes are written here, too.
"""

from __future__ import annotations

import io
import itertools
import os
import random
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from understudy.core.commands import Drill
from understudy.core.events import Drilled
from understudy.core.model import DrillVerdict, VotePhase
from understudy.messages import drilled_steps
from understudy.messages.base import Text
from understudy.worker import hooks, patches
from understudy.worker.collectives.setup_record import SetUpReplayer
from understudy.worker.drill.drill import COLLECTIVE, MOMENT, OVER, WHOLE, DrillMembers, StepWatch
from understudy.worker.drill.step_replay import Beyond, StepReplayer, Unlike
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.encoding.messages import DrilledCollective, DrilledMoment, JobProgress, unpack
from understudy.worker.errors import GenerationAborted, PeerLost, StateMismatch
from understudy.worker.generation import transfer
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.plan import Plan
from understudy.worker.participant import Step
from understudy.worker.recovery.agreed_state import AgreedState
from understudy.worker.recovery.arrival import Arrival
from understudy.worker.recovery.takeover import Takeover
from understudy.worker.transport.peers import Buffers, Peers, read_frame
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification import step_digests as moments
from understudy.worker.verification.comparison import Comparison
from understudy.worker.verification.state_listing import changing


class Rehearsed(GenerationAborted):
    """Raised when the first attempt has reached its vote."""


class Saves(GenerationAborted):
    """Raised when the step is about to save something."""


def _save(stock: Callable[..., None], thing: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(f, io.BytesIO):  # a copy in memory
        return stock(thing, f, *args, **kwargs)
    raise Saves(drilled_steps.SAVES())


class SpareDrill(StepWatch, Takeover):
    alone = True

    def __init__(self, drill: Drill, context: RankContext, agreed: AgreedState, comparison: Comparison, arrival: Arrival) -> None:
        self._drill = drill
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._agreed, self._comparison, self._arrival = agreed, comparison, arrival
        self._replay = StepReplayer(drill.rank)
        self._here: dict[str, list[DrilledMoment]] = {}  # of each moment: one for each attempt
        self._there: dict[str, DrilledMoment] = {}
        self._stale: dict[str, int] = {}  # streams that only the rank has, as of its begin: nothing had used them
        self._compared = 0  # of the state that was taken over
        self._bytes = 0
        self._lost: str = ""  # why nothing more comes from the rank
        self._whole = False  # its state is here
        self.meeting = Rendezvous(
            drill.store,
            drill.generation,
            lambda: context.membership.control.released is not None,
            context.membership.server.port,
            f"d{drill.number}",
        )

    def members(self, transaction: int) -> DrillMembers:
        return DrillMembers(self._drill, transaction, self._progress.world_size)

    # -- the way to the step -----------------------------------------------------------------------------------------------

    def arrive(self, job: JobProgress, streams_set: bool, replayer: SetUpReplayer) -> None:
        """Take over the rank's state as of the begin of its step. Does not return if that is impossible, or if the state differs."""
        replayer.remove()
        try:
            peers = Peers(self.meeting, self._drill.rank)
        except (GenerationAborted, PeerLost) as error:  # the rank with the drill's store is lost
            self.tell(DrillVerdict.BROKEN, str(error))
        try:
            plan, copy, _ = self._arrival.take_over(
                job, self.members(job.transaction), self.meeting, False, streams_set, lambda plan: self._receive(peers, plan)
            )
        except StateMismatch as error:
            self._hear_more(peers)
            self.tell(DrillVerdict.DIFFERENT, drilled_steps.OTHER_STATE(error=error))
        except (GenerationAborted, PeerLost) as error:
            self.tell(DrillVerdict.BROKEN, str(error))
        self._compared = len(plan.expected) + len(plan.local) + len(copy.streams)
        self._bytes = plan.size
        self._agreed.adopt_habits(job)
        lacking = filter(self._rank_state.state.randomness.lacks, copy.unused)
        self._stale = {moments.stream(name): digest_bytes(copy.streams[name]) for name in lacking}
        self._rank_state.local.adopt(copy)
        self._progress.phase, self._progress.generation = VotePhase.IDLE, self._drill.generation
        self._comparison.recovered(())
        self._replay.install()
        self._listen(peers)

    def _hear_more(self, peers: Peers) -> None:
        """Handle that the state is not as the rank has reported. That counts if the rank's step has changed nothing of it while it was
        sent, which the rank knows at its vote. If it has, the drill breaks off.
        """
        if not self._whole:
            return
        self._listen(peers)
        control = self._membership.control
        control.wait_for(lambda: moments.VOTE in self._there or bool(self._lost) or control.released is not None)
        if self._lost:
            self.tell(DrillVerdict.BROKEN, self._lost)

    def _listen(self, peers: Peers) -> None:
        threading.Thread(target=self._read, args=(peers,), name="understudy-drill", daemon=True).start()

    def _receive(self, peers: Peers, plan: Plan) -> None:
        member, found = self._progress.world_size, dict[int, bytes]()
        tensors = self._rank_state.state.all_tensors()
        hooks.fire("rehearsal state")
        peers.exchange({}, {member: itertools.chain(transfer.incoming(tensors, plan.messages), read_frame(found, member))})
        if found[member] != WHOLE:
            raise PeerLost("the rank has sent something else after its state")
        self._whole = True

    def _read(self, peers: Peers) -> None:
        """Read, on a thread, what the rank sends while it runs the step."""
        try:
            peers.exchange({}, {self._progress.world_size: self._frames()})
        except Exception as error:  # reported by the main thread, which is waiting for this
            self._lose(drilled_steps.BROKEN_OFF(rank=self._drill.rank, error=error))

    def _frames(self) -> Buffers:
        member, found = self._progress.world_size, dict[int, bytes]()
        while True:
            yield from read_frame(found, member)
            data = found.pop(member)
            kind, body = data[:1], data[1:]
            self._bytes += len(data)
            if kind == COLLECTIVE:
                self._replay.put(unpack(DrilledCollective, body))
            elif kind == MOMENT:
                self._hear(unpack(DrilledMoment, body))
            elif kind == OVER:
                self._replay.close("")
                return
            else:
                raise PeerLost(f"a message of unknown kind {kind!r}")

    def _hear(self, moment: DrilledMoment) -> None:
        self._there[moment.moment] = moment
        if moment.moment != moments.BEGIN:
            self._replay.complete(moment.issued, moment.left_out)
        self._membership.control.wake()

    def _lose(self, why: str) -> None:
        self._lost = why
        self._replay.close(why)
        self._membership.control.wake()

    # -- the step ----------------------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        self._here[moments.BEGIN] = [moments.at_begin(self._rank_state, step.arguments)]
        patches.wrap(torch, "save", _save, "the spare of a drill saves nothing")  # for good: this worker ends with the step

    def before_vote(self, step: Step) -> None:
        attempts = self._here.setdefault(moments.VOTE, [])
        attempts.append(moments.at_vote(self._rank_state))
        if len(attempts) == 1:
            hooks.fire("rehearsal first")
            self._end_attempt()
            if self._replay.compared:
                self._replay.break_off(random.Random(self._drill.number).randrange(self._replay.compared), self._end_attempt)
            raise Rehearsed("the first attempt of a drill ends before its vote")
        hooks.fire("rehearsal redo")

    def _end_attempt(self) -> None:
        """End the attempt. It is redone, even if the script catches the exception."""
        self._progress.must_redo = True

    def failed(self, step: Step, error: BaseException) -> None:
        if isinstance(error, Beyond | Saves):
            self._conclude(str(error) if isinstance(error, Saves) else "")
        if self._lost:
            self.tell(DrillVerdict.BROKEN, self._lost)
        if isinstance(error, Unlike):
            self.tell(DrillVerdict.DIFFERENT, self._with_causes([*self._replay.different, str(error)]))
        if not self._progress.must_redo:
            self.tell(DrillVerdict.DIFFERENT, self._with_causes([drilled_steps.RAISES(kind=type(error).__name__, error=error)]))
        self._replay.again()
        return None

    def returned(self, step: Step) -> None:
        self._here[moments.END] = [moments.at_end(self._rank_state, step.result)]
        self._conclude()

    # -- the verdict -------------------------------------------------------------------------------------------------------

    def _conclude(self, until: str = "") -> NoReturn:
        """Report the verdict. `until`: why no more of the step was run."""
        last = moments.END if moments.END in self._here else moments.VOTE
        self._membership.control.wait_for(lambda: last in self._there or bool(self._lost))
        if last not in self._there:
            self.tell(DrillVerdict.BROKEN, self._lost)
        attempts, there = self._here.get(moments.VOTE, []), self._there.get(moments.VOTE)
        at_vote = [self._differences(one, there) for one in attempts] if there is not None else []
        found = [*self._replay.different, *itertools.chain(*at_vote)]
        quiet: list[str] = []
        if moments.END in self._here:
            if missing := self._replay.missing():
                found.append(missing)
            at_end = self._differences(self._here[moments.END][0], self._there[moments.END])
            found += [text for text in at_end if not moments.is_result(text)]
            quiet = [
                f"{text} (if the script depends on it, register the values that it is computed from)"
                for text in at_end
                if moments.is_result(text)
            ]
        if len(attempts) > 1 and (unlike := [*self._replay.unlike_itself, *moments.differences(attempts[1], attempts[0])]):
            if at_vote[0] or self._replay.unlike_before:
                unsteady = drilled_steps.VALUES_UNSTEADY if all(map(moments.is_value, unlike)) else drilled_steps.UNSTEADY
                reason = unsteady(causes=self._causes_first(), what=moments.joined(unlike))
                self.tell(DrillVerdict.NOT_REPRODUCIBLE, reason)
            self.tell(DrillVerdict.DIFFERENT, drilled_steps.REDO_DIFFERS(what=moments.joined(unlike)))
        if found:
            self.tell(DrillVerdict.DIFFERENT, self._with_causes(found))
        quiet += self._causes()
        aside = drilled_steps.OF_NO_CONSEQUENCE(what=moments.joined(quiet)) if quiet else ""
        detail = ". ".join(text for text in (until, aside) if text)
        self.tell(DrillVerdict.SAME if moments.END in self._here else DrillVerdict.PARTLY, detail)

    def _differences(self, here: DrilledMoment, there: DrilledMoment) -> list[str]:
        return moments.differences(here, there, without=[name for name, as_of in self._stale.items() if there.digests.get(name) == as_of])

    def _causes(self) -> list[str]:
        here, there = self._here.get(moments.BEGIN), self._there.get(moments.BEGIN)
        found = moments.differences(here[0], there) if here and there is not None else []
        attempts, at_vote = self._here.get(moments.VOTE), self._there.get(moments.VOTE)
        return found + (moments.aside(attempts[0], at_vote) if attempts and at_vote is not None else [])

    def _causes_first(self) -> str:
        """Return the differences at the begin, to print before those that follow from them."""
        causes = self._causes()
        return f"{moments.joined(causes)}; the first that follows: " if causes else ""

    def _with_causes(self, found: list[str]) -> Text:
        causes = self._causes_first()
        unique = list(dict.fromkeys(found))
        only_values = not causes and all(map(moments.is_value, unique))
        what = f"{causes}{unique[0]}" if causes else moments.joined(unique)
        return (drilled_steps.VALUES if only_values else drilled_steps.FEEDS)(what=what)

    def tell(self, verdict: DrillVerdict, detail: str) -> NoReturn:
        """Report the result, and wait until this worker is ended."""
        control, progress = self._membership.control, self._progress
        if verdict in (DrillVerdict.DIFFERENT, DrillVerdict.NOT_REPRODUCIBLE):
            detail = self._arrival.opened.explained(detail)
        ending = self._there.get(moments.END) or self._there.get(moments.VOTE)
        compared = self._compared + sum(len(one.digests) for many in self._here.values() for one in many) + self._replay.compared
        control.send(
            Drilled(
                control.worker,
                self._drill.number,
                self._drill.rank,
                verdict,
                progress.step,
                detail,
                compared,
                self._replay.compared,
                ending.left_out if ending is not None else 0,
                self._bytes,
                ending.pause / 1e6 if ending is not None else 0.0,
                changing(self._rank_state.state),
            )
        )
        hooks.fire("rehearsal over")
        control.wait_for(lambda: control.released is not None)
        assert control.released is not None
        os._exit(control.released.exit_code)  # not through the script's exit handlers: it has never been the rank
