"""A drill, on the rank: a spare computes the rank's next step in parallel with it, and both compare their results, bit by bit.

Replicas that agree prove nothing about a newcomer: an all-reduce gives an error of one of them to all. Only computing the same step
twice shows whether a spare that takes over would go on as the rank would have. The spare has run the script's set-up as the rank
(`core.preparation`); at the rank's next step

    begin   the rank reports where the job is and its state, as a donor does, and goes on; a thread sends the state, and what the
            step changes before its vote from the copy that begin has made for a redo
    step    the inputs of each collective are sent as digests, its outputs whole (`drill.step_replay`)
    vote    the vote waits until the state is out, because it changes now; the results of the attempt are sent as digests
    end     the same of everything after the step

Other ranks do not notice it. Whatever goes wrong, the rank goes on with its step, and reports it (`DrillBroken`): a spare that does not
reach its place in time, a connection that breaks, a generation that ends. The spare's side is `spare_drill`.

The rank waits for its spare for at most `Drill.patience` seconds in total, which is never more than half of the hang limit. A collective
waits only where too much data is on its way to a slow spare; then the drill is cancelled and the step goes on. A mark after the state shows
that it is complete. A parameter that the step changes before its vote for the first time may be sent in its new form; the rank notices that
at its vote, and the drill is cancelled.

Rank-local state and position come from the rank's own copy, not from a buddy: the bytes are the same, and no third worker is involved.
Rejected: to fork a spare for each rank when it is needed. The threads of a script's data or of BLAS, and a CUDA context, do not survive a
fork.

Known limits: one drill at a time, for all roles. Nothing is compared for moved objects that cannot be read.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import torch

from understudy.common.page_view import Activity
from understudy.core.commands import Drill, Recover
from understudy.core.events import DrillBroken
from understudy.messages import drilled_steps
from understudy.worker import hooks
from understudy.worker.drill.step_replay import StepRecorder
from understudy.worker.encoding.messages import DonorState, DrilledCollective, pack
from understudy.worker.errors import PeerLost, UnderstudyError
from understudy.worker.generation import transfer
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.donors import Donors
from understudy.worker.generation.members import Members
from understudy.worker.generation.membership import Membership
from understudy.worker.generation.plan import Plan
from understudy.worker.generation.step_copy import StepCopy
from understudy.worker.participant import Participant, Step
from understudy.worker.progress import Progress
from understudy.worker.recovery.agreed_state import AgreedState
from understudy.worker.state.rank_local import seal
from understudy.worker.state.tensors import local_tensor
from understudy.worker.transport.peers import Buffers, Peers, frame
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification import step_digests as moments
from understudy.worker.verification.verification import Verification

WINDOW = 256 << 20  # bytes of results that wait to be sent
BYTES = int(os.environ.get("UNDERSTUDY_DRILL_BYTES") or 8 << 30)  # of results that are sent in a drill at most
COLLECTIVE, MOMENT, WHOLE, OVER = b"c", b"m", b"w", b"o"  # first byte of an item: `WHOLE`, the state is out; `OVER`, nothing follows


class DrillMembers(Members):
    """The two members of a drill: the spare by the number of the rank, the rank itself as a leaver, a healthy donor whose rank is taken."""

    def __init__(self, drill: Drill, transaction: int, world_size: int) -> None:
        recovery = Recover(drill.worker, drill.generation, transaction, "drill", drill.store, (drill.rank,), (-1,), (drill.rank,))
        super().__init__(recovery, world_size)

    @property
    def donors(self) -> list[int]:
        return [self.world_size]


class StepWatch(Participant):
    """Watches a step while it runs, on a rank and on a spare."""

    alone = False  # without peers: there is no vote


class WatchSlot(Participant):
    """Keeps the watch of this worker's steps, if there is one."""

    def __init__(self, current: StepWatch) -> None:
        self.current = current

    def begin(self, step: Step) -> None:
        if step.kind == "step":
            self.current.begin(step)

    def before_vote(self, step: Step) -> None:
        self.current.before_vote(step)

    def failed(self, step: Step, error: BaseException) -> None:
        self.current.failed(step, error)

    def returned(self, step: Step) -> None:
        self.current.returned(step)


class Drills(StepWatch):
    """Runs, on a rank, the drills that are requested, one after the other."""

    def __init__(self, context: RankContext, copy: StepCopy, agreed: AgreedState, verification: Verification) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._agreed, self._comparison, self._order = agreed, verification.comparison, verification.order
        self._copy = copy
        self._known = -1  # number of the newest drill that was begun
        self._drill: Drill | None = None
        self._sender: _Sender | None = None
        self._recorder: StepRecorder | None = None
        self._over: StepRecorder | None = None  # of the last drill: C++ may still refer to one of its Works
        self._pause = 0.0

    def begin(self, step: Step) -> None:
        drill, progress = self._membership.control.drill, self._progress
        known = max(self._known, self._membership.control.drill_over)
        if drill is None or drill.number <= known or drill.rank != progress.rank or drill.generation != progress.generation:
            return
        self._known, self._drill, started = drill.number, drill, time.monotonic()
        hooks.fire("drill begin")
        try:
            meeting, plan = self._tell(drill)
            beginning = moments.at_begin(self._rank_state, step.arguments)
            sender = self._sender = _Sender(self._membership, meeting, self._as_of_begin(), plan, progress, drill.patience)
            sender.put(MOMENT + pack(beginning))
            self._recorder = StepRecorder(sender.collective, sender.fail)
            self._recorder.install()
            sender.start()
        except Exception as error:  # whatever it is: the rank goes on with its step
            self._broken(drilled_steps.COULD_NOT_BEGIN(error=error))
            return
        self._pause = time.monotonic() - started

    def _tell(self, drill: Drill) -> tuple[Rendezvous, Plan]:
        """Publish, as a donor does, where the job is and what state this rank has."""
        progress, rank_state = self._progress, self._rank_state
        membership, before = self._membership, self._progress.transaction - 1
        meeting = Rendezvous(
            drill.store, drill.generation, lambda: membership.superseded(drill.generation), membership.server.port, f"d{drill.number}"
        )
        copy, local = rank_state.copy_of(before), rank_state.local
        if why_not := rank_state.frameworks.not_drilled():
            raise UnderstudyError(drilled_steps.NOT_DRILLED(why=why_not))
        if rank_state.state.kept_gradients.are_withheld():
            raise UnderstudyError(drilled_steps.GRADIENTS_WITHHELD())
        if copy is None or local.replicas is None:
            raise UnderstudyError(drilled_steps.NO_VOTE_YET())
        tensors = rank_state.state.all_tensors()
        published = DonorState(
            progress.transaction,
            progress.step,
            rank_state.state.descriptions(tensors),
            self._comparison.summary(rank_state.state.digests(tensors)).message(),
            rank_state.state.encoded_values(),
            local.versions.get(before, []),
            membership.groups.describe(),
            self._order.began,
            rank_state.frameworks.described(),
        )
        meeting.put(f"copy/{progress.rank}/leaver", seal(copy))
        meeting.put(f"state/{progress.world_size}", pack(published))
        meeting.put("job", self._agreed.message())
        members = DrillMembers(drill, progress.transaction, progress.world_size)
        return meeting, Donors(members, meeting).plan_for(progress.rank, local.replicas)

    def _as_of_begin(self) -> dict[str, torch.Tensor]:
        """Return the state as of begin: what may change before the vote from the copies for a redo, all else from its own memory."""
        state, snapshot, before = self._rank_state.state, self._copy.snapshot, self._copy.before
        tensors = state.all_tensors()
        tensors |= {name: copy for name, (_, copy) in snapshot.tensors.items() if name in tensors}
        for name, parameter in state.parameters():
            kept = snapshot.gradients.get(id(parameter))
            if kept is not None:
                tensors[f"{name}/gradient"] = kept[1]
        return tensors | {entry: kept.content for entry, kept in before.kept.items()}

    def before_vote(self, step: Step) -> None:
        sender, drill, control = self._sender, self._drill, self._membership.control
        if sender is None or drill is None:
            return
        started = time.monotonic()
        if torn := self._changed_unforeseen():
            self._broken(drilled_steps.CHANGED_UNFORESEEN(entry=torn))
            return
        try:
            issued = self._recorder.issued() if self._recorder is not None else {}
            standing = replace(moments.at_vote(self._rank_state), issued=issued)
            sender.put(MOMENT + pack(replace(standing, sent=sender.sent, left_out=sender.left_out)))
        except Exception as error:  # as above
            self._broken(drilled_steps.NOT_DESCRIBED_AT_VOTE(error=error))
            return
        hooks.fire("drill vote")
        control.page.enter(Activity.RUNNING, self._progress.transaction)  # the hang watch counts from here: a rank that waits has gone on

        def settled() -> bool:
            return sender.settled or bool(sender.trouble) or control.drill_over >= drill.number or self._membership.aborted()

        control.wait_for(settled, sender.patience)
        if not sender.release():
            over = drilled_steps.DRILL_OVER() if control.drill_over >= drill.number else ""
            self._broken(sender.trouble or over or drilled_steps.SPARE_LATE(seconds=drill.patience))
        self._pause += time.monotonic() - started

    def _changed_unforeseen(self) -> str:
        """Return a parameter that this attempt has changed and that has no copy as of begin; or ""."""
        before = self._copy.before
        changed = self._rank_state.pre_vote.found_changes().get(before.function, [])
        return next((entry for entry in changed if entry not in before.kept), "")

    def returned(self, step: Step) -> None:
        sender = self._sender
        if sender is None:
            return
        hooks.fire("drill end")
        started = time.monotonic()
        try:
            ending = moments.at_end(self._rank_state, step.result)
            pause = self._pause + time.monotonic() - started
            sender.put(MOMENT + pack(replace(ending, sent=sender.sent, left_out=sender.left_out, pause=int(pause * 1e6))))
        except Exception as error:  # as above
            self._broken(drilled_steps.NOT_DESCRIBED_AT_END(error=error))
            return
        sender.put(OVER)
        self._stop()

    def failed(self, step: Step, error: BaseException) -> None:
        if self._sender is not None:
            self._broken(drilled_steps.INTERRUPTED(error=error))

    def _broken(self, why: str) -> None:
        control, drill = self._membership.control, self._drill
        if drill is not None:  # before the spare, which knows only that it receives nothing
            control.send(DrillBroken(control.worker, drill.number, why))
        if self._sender is not None:
            self._sender.give_up()
        self._stop()

    def _stop(self) -> None:
        if self._recorder is not None:
            self._recorder.remove()
        self._over = self._recorder
        self._recorder = self._sender = self._drill = None


class _Sender:
    """Sends the state and what follows, on its own thread."""

    def __init__(
        self,
        membership: Membership,
        meeting: Rendezvous,
        tensors: Mapping[str, torch.Tensor],
        plan: Plan,
        progress: Progress,
        patience: float,
    ) -> None:
        self._membership = membership
        self._meeting = meeting
        self._tensors = {entry: local_tensor(tensor) for entry, tensor in tensors.items()}
        self._plan = plan
        self._spare, self._member = progress.rank, progress.world_size
        self._peers = Peers(meeting, self._member)
        self._queue: deque[bytes] = deque()
        self._waiting = 0  # bytes in it
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="understudy-drill", daemon=True)
        self._released = False  # the state may change from now on
        self.patience = patience  # seconds that the step may still wait
        self.settled = False  # the state is out, or never will be
        self.trouble: str = ""
        self.sent, self.left_out, self._bytes = 0, 0, 0

    def start(self) -> None:
        self._thread.start()

    def put(self, data: bytes) -> None:
        with self._changed:
            self._queue.append(data)
            self._waiting += len(data)
            self._changed.notify_all()

    def collective(self, entry: DrilledCollective) -> None:
        """Queue a collective, on any thread of the step. Waits, up to a limit, while too much is on its way."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in entry.outputs)
        with self._changed:
            if self.left_out or self._bytes + size > BYTES:
                self.left_out += 1
                return
            self._bytes += size
            self.sent += 1
            if self._waiting >= WINDOW:
                began = time.monotonic()
                if not self._changed.wait_for(lambda: self._waiting < WINDOW or bool(self.trouble), self.patience):
                    self.trouble = drilled_steps.TOO_SLOW()
                self.patience = max(0.0, self.patience - (time.monotonic() - began))
            if self.trouble:
                return
        self.put(COLLECTIVE + pack(entry))

    def fail(self, error: Exception) -> None:
        """Note, on any thread of the step, that a collective could not be recorded."""
        with self._changed:
            self.trouble = self.trouble or drilled_steps.NOT_RECORDED(error=error)
            self._changed.notify_all()
        self._membership.control.wake()

    def release(self) -> bool:
        """Wait before the state changes. Return whether all of it is out."""
        with self._changed:
            self._released = True
            return self.settled and not self.trouble

    def give_up(self) -> None:
        with self._changed:
            self.trouble = self.trouble or drilled_steps.DRILL_OVER()
            self._changed.notify_all()
        self._meeting.close()

    def _run(self) -> None:
        try:
            self._peers.meet([self._spare])
            self._peers.exchange({self._spare: self._flow()}, {})
        except Exception as error:  # reported by the main thread; whatever it is, the step goes on
            self._end(f"{error}")
        finally:
            self._end("")
            with suppress(OSError):
                self._peers.close()
            self._meeting.close()

    def _end(self, trouble: str) -> None:
        with self._changed:
            self.trouble = self.trouble or trouble
            self.settled = True
            self._changed.notify_all()
        self._membership.control.wake()

    def _flow(self) -> Buffers:
        half = len(self._plan.messages) // 2
        for number, buffer in enumerate(transfer.outgoing(self._tensors, self._plan.messages)):
            if number == half:
                hooks.fire("drill state")
            if self._released:
                raise PeerLost(drilled_steps.STATE_CHANGED())
            yield buffer
        with self._changed:
            if self._released:
                raise PeerLost(drilled_steps.STATE_CHANGED())
            self.settled = True
        self._membership.control.wake()
        yield from frame(WHOLE)
        sent = False  # the first result of a collective is out
        while (data := self._next()) != OVER:
            yield from frame(data)
            if data[:1] == COLLECTIVE and not sent:
                sent = True
                hooks.fire("drill collective")
        yield from frame(OVER)

    def _next(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue) or bool(self.trouble))
            if self.trouble:
                raise PeerLost(self.trouble)
            data = self._queue.popleft()
            self._waiting -= len(data)
            self._changed.notify_all()
            return data
