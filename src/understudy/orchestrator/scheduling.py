"""Exchange state with a job's scheduler: its findings about the job's nodes become evidence, and the job's state is recorded there.

Only the orchestrator that leads does this, once a second, in a thread. A scheduler that does not answer blocks nothing: its records are
written when it answers again. A new leader starts from the scheduler's current state, and repeats the records of its predecessor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from understudy.core import floating
from understudy.core.drain import ranks_on, releasable
from understudy.core.events import ClaimEnded, Event, NodeLabelled, NodeReleased, StopAsked
from understudy.core.state import Claim, JobState
from understudy.core.topology import meanings
from understudy.core.transitions import WorkerState
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.messages import service_jobs
from understudy.orchestrator.scheduler_access import SchedulerAccess
from understudy.policy.rules import Back
from understudy.schedulers.base import TAKEN, Allocation, JobSummary, NodeSeen, SchedulerAway, SchedulerFailed, ShownIncident

LOOK = 1.0  # seconds
AGAIN = 60.0  # seconds until it tries again to give a node back
CANCELLED = 143  # exit code of a job that was cancelled with the scheduler's commands
FINISHING = 40.0  # seconds for the last records


class Scheduling:
    def __init__(
        self,
        scheduler: SchedulerAccess,
        back: Back,
        observe: Callable[[Evidence], None],
        submit: Callable[[Event], None],
        dismiss: Callable[[str], None],
        tell: Callable[[str], None],
        step: Callable[[], int],
    ) -> None:
        """Create the exchange for one job.

        `back`: the handling of nodes that are not needed. `observe`, `submit`, `dismiss`, `tell`: take evidence, an event for the machine,
        the node whose agent must end, and a line for the user. `step`: returns the last step that every rank has committed.
        """
        self._access = scheduler
        self._back = back
        self._tried: dict[str, float] = {}  # nodes that were to be given back, and the time of the last attempt
        self._releasing: asyncio.Task[None] | None = None
        self._observe = observe
        self._submit = submit
        self._dismiss = dismiss
        self._tell = tell
        self._step = step
        self._hurry = asyncio.Event()
        self._written: set[int] = set()  # claims that a successor will know of
        self._claim_texts: dict[int, str] = {}  # as recorded
        self._allocation: Allocation | None = None
        self._known: dict[str, NodeSeen] = {}
        self._recorded = ""
        self._failing = ""
        self._cancelled = False

    async def run(self, state: JobState) -> None:
        """Exchange until cancelled."""
        self._written.update(state.claims)
        while True:
            await self._turn(state)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), LOOK)
            self._hurry.clear()

    def hurry(self, claims: Iterable[int]) -> None:
        """Ask the scheduler at once; the journal has these claims."""
        self._written.update(claims)
        self._hurry.set()

    async def _turn(self, state: JobState) -> None:
        text = story(state)
        try:
            if self._allocation is None:
                self._allocation = await asyncio.to_thread(self._access.allocate)
            allocation = self._allocation
            if allocation is None:
                return
            late: SchedulerFailed | None = None
            try:
                if state.spec.floating:
                    await self._claims(allocation, state)
            except SchedulerFailed as error:  # the findings about nodes do not wait for that
                late = error
            seen = await asyncio.to_thread(allocation.look)
            self._compare(allocation.place.scheduler, {node.name: node for node in seen}, state)
            if (why := allocation.cancelled()) and not self._cancelled:
                self._cancelled = True
                self._submit(StopAsked(why, CANCELLED))
            await asyncio.to_thread(allocation.show, summarize(state, self._step(), text))
            self._release(allocation, state)  # after the records: then the process that replaces a node knows which ones to avoid
            if text != self._recorded:
                await asyncio.to_thread(allocation.record, text)
                self._recorded = text
            if late is not None:
                raise late
        except (SchedulerFailed, ValueError) as error:  # also of another package's
            self._fails(str(error))
        else:
            if self._failing:
                self._tell(service_jobs.SCHEDULER_ANSWERS())
            self._failing = ""

    async def _claims(self, allocation: Allocation, state: JobState) -> None:
        """Align the claims of the scheduler with those of the machine."""
        claims = await asyncio.to_thread(allocation.claims)
        wanted = {claim.number: claim for claim in floating.open_claims(state)}
        for number, one in claims.items():
            if one.over and number in wanted:
                self._submit(ClaimEnded(number, one.detail))
            elif not one.over and number not in wanted:
                await asyncio.to_thread(allocation.give_back, number)
        for number, claim in wanted.items():
            text = f"{allocation.place.job}: {_claim_story(state, claim)}"
            if number not in claims and number in self._written:
                try:
                    home = state.hosts()[claim.rank // state.spec.workers_per_node].name
                    await asyncio.to_thread(allocation.claim, number, self._access.work(number), claim.avoid, home, text)
                    self._claim_texts[number] = text
                except SchedulerAway:
                    raise
                except SchedulerFailed as error:
                    self._submit(ClaimEnded(number, str(error)))
            elif claim.node and self._claim_texts.get(number) != text:
                await asyncio.to_thread(allocation.record_claim, number, text)
                self._claim_texts[number] = text

    def _release(self, allocation: Allocation, state: JobState) -> None:
        """Release nodes in parallel to everything else, because ending the work on a node takes a while, and longer if it does not answer.

        Nodes with an orchestrator stay, which may be needed although no rank is there; not those that are lost, or that the scheduler has
        taken.
        """
        if not self._back.release or state.spec.home_after >= 0 or (self._releasing is not None and not self._releasing.done()):
            return
        leading = set(allocation.place.nodes[: len(allocation.place.addresses)])
        taken = {name for name, seen in self._known.items() if seen.trouble == TAKEN}
        leading -= taken
        now = time.monotonic()
        mine = [node for node in state.nodes.values() if node.claim < 0]
        empty = [node for node in mine if releasable(state, node) and (node.lost or node.name not in leading)]
        empty += [node for node in mine if node.gone and node.name in self._known.keys() - taken]  # those that could not be given back
        due = [node.name for node in empty if now - self._tried.get(node.name, -AGAIN) >= AGAIN]
        if due:
            self._tried.update(dict.fromkeys(due, now))
            why = {name: state.nodes[name].taint or "it is lost" for name in due}
            self._releasing = asyncio.create_task(self._give_back(allocation, state, why))

    async def _give_back(self, allocation: Allocation, state: JobState, why: Mapping[str, str]) -> None:
        for name in why:
            if not state.nodes[name].lost:
                self._submit(NodeReleased(name))
                self._dismiss(name)
        text = story(state)
        try:
            released = await asyncio.to_thread(allocation.release, why.keys(), text)
        except SchedulerFailed as error:
            self._tell(service_jobs.NOT_GIVEN_BACK(nodes=", ".join(why), reason=str(error)))
            return
        self._recorded = text if released else self._recorded
        for name in released:
            if state.nodes[name].lost and not state.nodes[name].gone:
                self._submit(NodeReleased(name))
        if self._back.drain and released:
            reason = f"understudy: {allocation.place.job}: {'; '.join(dict.fromkeys(why[name] for name in released))}"
            try:
                await asyncio.to_thread(allocation.drain, released, reason)
            except SchedulerFailed as error:
                self._tell(service_jobs.NOT_DRAINED(nodes=", ".join(released), reason=str(error)))

    def _fails(self, why: str) -> None:
        """Report the failure once, until it answers again."""
        if not self._failing:
            self._tell(service_jobs.SCHEDULER_FAILS(reason=why))
        self._failing = why

    def _compare(self, scheduler: str, seen: Mapping[str, NodeSeen], state: JobState) -> None:
        """Submit the differences since the last check. Findings that ended while no orchestrator was checking are still taints."""
        now = time.time()
        for name, node in seen.items():
            known = state.nodes.get(name)
            if known is not None and meanings(node.labels) != known.found:
                self._submit(NodeLabelled(name, node.labels))
            before = self._known.get(name)
            was = {before.trouble} if before is not None else _journalled(state, scheduler, name)
            for kind in was - {node.trouble, ""}:
                self._observe(Evidence(scheduler, Subject.NODE, name, Severity.SUSPECT, node.reason, now, kind, until=now))
            if node.trouble and (before is None or node.trouble != before.trouble):
                severity = Severity.SUSPECT if node.suspect else Severity.NOTE
                happened = min(node.since or now, now)
                self._observe(Evidence(scheduler, Subject.NODE, name, severity, node.reason, happened, node.trouble))
        self._known = dict(seen)

    async def finish(self, state: JobState) -> None:
        """Finish after the end of the job.

        Nodes that know of the end finish by themselves, and some take a while, because scripts complete their work there. On the others,
        the rest of the job is ended.
        """
        allocation = self._allocation
        if allocation is None:
            return
        step = self._step()
        there = {node.name for node in state.nodes.values() if not node.lost}
        missing = [node for node in allocation.place.nodes if node not in there]

        def finish() -> None:
            for number, one in allocation.claims().items() if state.spec.floating else ():
                if not one.over and one.node not in there:
                    allocation.give_back(number)
            if state.incidents or missing:
                allocation.record(story(state))
            allocation.show(summarize(state, step, story(state)))
            allocation.finish(missing)
            allocation.close()

        try:
            await asyncio.wait_for(asyncio.to_thread(finish), FINISHING)
        except (SchedulerFailed, TimeoutError) as error:
            self._tell(service_jobs.SCHEDULER_NOT_NOTIFIED(reason=str(error) or "it does not answer"))


def _journalled(state: JobState, scheduler: str, name: str) -> set[str]:
    """Return the findings about that node which an earlier orchestrator has seen begin and not end."""
    return {seen.kind for seen in state.evidence.values() if (seen.detector, seen.name) == (scheduler, name) and seen.until == 0}


def story(state: JobState) -> str:
    """Return the state of the job for readers of the scheduler's own commands; "" if there is nothing to report."""
    parts = []
    if state.ranks:
        for home in state.hosts():
            first = home.rank * state.spec.workers_per_node
            away: dict[str, list[int]] = {}
            for rank in range(first, first + state.spec.workers_per_node):
                holder = state.holder(rank)
                if holder.node != home.name and holder.state is not WorkerState.LOST:
                    away.setdefault(holder.node, []).append(rank)
            parts += [f"{_ranks(ranks)} of {home.name} on {node}" for node, ranks in away.items()]
    lost = [node.name for node in state.nodes.values() if node.lost and not (node.gone and node.taints)]
    if lost:
        parts.append(f"lost {', '.join(lost)}")
    left = [node.name for node in state.nodes.values() if node.taints and (node.gone or not node.lost) and not ranks_on(state, node)]
    if left:
        parts.append(f"left {', '.join(left)}")
    if not parts and not state.incidents:
        return ""
    parts.append(f"{len(state.incidents)} incident{'s' * (len(state.incidents) != 1)}")
    if state.ended is not None:
        parts.append(f"ended with exit code {state.ended.exit_code}")
    return "; ".join(parts)


def summarize(state: JobState, step: int, text: str) -> JobSummary:
    """Return the summary. `text`: the job's `story`."""
    holders = [state.holder(rank) if rank in state.ranks else None for rank in range(state.spec.world_size)]
    incidents = tuple(
        ShownIncident(one.number, one.planned, "; ".join(dict.fromkeys(part.detail for part in one.ranks)), one.fault_at)
        for one in state.incidents
    )
    return JobSummary(
        phase=str(state.phase),
        step=step,
        generation=state.generation,
        complete=state.complete(),
        ranks=tuple(worker.node if worker is not None and worker.state is not WorkerState.LOST else "" for worker in holders),
        spares=len(state.idle(WorkerState.WARM)),
        lost=tuple(node.name for node in state.nodes.values() if node.lost),
        tainted=tuple(node.name for node in state.nodes.values() if node.taints),
        incidents=incidents,
        exit_code=None if state.ended is None else state.ended.exit_code,
        message="" if state.ended is None else state.ended.message,
        text=text,
        devices=tuple(worker.device if worker is not None else "" for worker in holders),
    )


def _claim_story(state: JobState, claim: Claim) -> str:
    """Return the state of a claim for the claimed node's own record."""
    if not claim.node:
        return f"for rank {claim.rank}"
    ranks = ranks_on(state, state.nodes[claim.node])
    return f"{_ranks(ranks)} on {claim.node}" if ranks else f"no rank on {claim.node}"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {','.join(map(str, ranks))}"
