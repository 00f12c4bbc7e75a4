"""Run the machine with a clock and a network: events go in, commands go out to the agents.

Everything happens on one asyncio loop. `submit` gives an event to the machine, sends its commands, and only then passes the event to the
journal (see `journal.py` for the reason). Decisions wait for the journal (`decisions.py`). Progress (`Pages`) does not pass through the
machine: it is used for the status and by the hang detector, whose result is an event like any other.

The rules are in modules without a loop or a clock: when a node is lost (`liveness.py`), and which command is sent when and to which node
(`dispatch.py`). Commands for a disconnected node are not kept: the machine repeats pending ones when its agent joins again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from understudy.common.bounds import OutOfBounds, bounded, plain
from understudy.common.console import say
from understudy.common.page_view import Activity, PageView, line_of, whereabouts
from understudy.core import drill, floating, preparation
from understudy.core.commands import Assign, ClaimNode, Command, EndJob, Prepare, Record, Recover, SetTimer
from understudy.core.events import (
    CommunicationBroken,
    DrillAsked,
    Event,
    Expired,
    FromAgent,
    NodeJoined,
    NodesLost,
    Notice,
    ScriptFailed,
    WorkerStarted,
)
from understudy.core.machine import Machine
from understudy.core.transitions import Phase
from understudy.detectors.base import Evidence
from understudy.detectors.hang import HangWatch
from understudy.detectors.straggler import Straggler
from understudy.links.messages import BadMessage, Lines, Pages, Seen, decode_untrusted, encode, encode_all
from understudy.messages import http_requests, orchestrators, service_jobs, training_evidence
from understudy.orchestrator import views
from understudy.orchestrator.agent_link import ASIDE, POLICY_VIOLATION, REPLACED, SILENT, AgentLink, Close
from understudy.orchestrator.chain import Position
from understudy.orchestrator.decisions import Decisions
from understudy.orchestrator.detection import MOST, OtherDetectors, Responses, evidence_of, family, observed, view_of
from understudy.orchestrator.dispatch import Dispatch, split
from understudy.orchestrator.journal import JobJournal
from understudy.orchestrator.limits import Buckets
from understudy.orchestrator.liveness import Liveness, SilentSince
from understudy.orchestrator.scheduler_access import SchedulerAccess
from understudy.orchestrator.scheduling import Scheduling
from understudy.orchestrator.timers import Timers
from understudy.orchestrator.verdicts import RESERVED, silence, tainted
from understudy.policy.rules import Policy, default

ALONE = 50  # reports of ranks that work alone, for each job
WATCH = 0.2  # seconds between two checks for silent nodes
LOOK = 1.0  # seconds between two checks of the pages, or less if the shortest limit is less than a minute
REPORT = 1.0  # seconds between two reports of the journal's position, if no decision waits for it
NEWS = 1.0  # new pieces of evidence per second that one family of detectors may write into the journal, and `MOST` at once
SET_UPS = (preparation.TIMER, drill.TIMER)  # of spares, in advance of a loss
KEEP = 2.0  # seconds between two records of the progress in the journal, ...
KEEP_WORKERS = 500  # ... or more, with more than this number of workers for each of these seconds


class Service:
    """Owns the machine, its timers and the agents' links. `run` returns the job's exit code."""

    def __init__(
        self,
        machine: Machine,
        journal: JobJournal,
        *,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = say,
        output: Callable[[str], None] = lambda text: None,
        guard: Callable[[], None] = lambda: None,
        up: Callable[[str], bool] = lambda node: False,
        far: bool = False,
        silent_since: SilentSince = lambda node_rank, seconds: None,
        policy: Policy | None = None,
        scheduler: SchedulerAccess | None = None,
        shared: bool = False,
    ) -> None:
        """Create the service of one job.

        `guard` returns only while this process may decide. `far`: the nodes are other hosts, even if there is only one. `up`,
        `silent_since`: as in `Liveness`. `policy`: the rules for evidence. `scheduler`: as in `Scheduling`, for a job in a scheduler's
        allocation. `shared`: its nodes are those of a service, whose own agents run the detectors; the job's parts do not.
        """
        self.machine = machine
        self._pages: dict[str, PageView] = {}
        self._readings: dict[str, tuple[Pages, float]] = {}  # by node, those that were not processed yet, and when they arrived
        self._there: dict[str, frozenset[str]] = {}  # by node, the workers whose processes have not ended, as of its last heartbeat
        self._journal = journal
        self._clock = clock
        self._tell = tell
        self._output = output
        self._guard = guard
        self._links: dict[str, AgentLink] = {}
        self._timers = Timers(self._expired)
        self._decisions = Decisions(journal, self._send_decision, self._needs, self._pause, self._go_on)
        self._watch = HangWatch(machine.state.timeouts)
        self._reported_alone: set[tuple[int, int, str]] = set()  # rank, activity, line
        self._straggler = Straggler()
        self._others = OtherDetectors(tell)
        self._seen: deque[Evidence] = deque(maxlen=MOST)  # on nodes, since the last check
        self._journalled = Buckets(NEWS, MOST)  # by family of detectors
        self._responses = Responses(policy if policy is not None else default(), tell)
        spec = machine.state.spec
        self._liveness = Liveness(
            machine.state.timeouts.node_lost,
            WATCH,
            clock(),
            far=far or spec.nodes + spec.spare_nodes > 1 or scheduler is not None,
            up=up,
            silent_since=silent_since,
            needed=self._is_needed,
        )
        self._scheduling = (
            Scheduling(scheduler, (policy or default()).scheduler, self.observe, self.submit, self._dismiss, tell, self._step)
            if scheduler is not None
            else None
        )
        self._shared = shared
        self._suspended = False
        self._warned_stall = False
        self._complaints: set[str] = set()
        self._ended = asyncio.Event()
        self._all_gone = asyncio.Event()

    # -- the life of the service ------------------------------------------------------------------------------------

    def resume(self, events: list[tuple[float, Event]]) -> None:
        """Restore the machine from the journal's events, and set the timers that were running then."""
        due: dict[str, float] = {}
        for then, event in events:
            for command in self.machine.handle(event, then):
                if isinstance(command, SetTimer):
                    due[command.timer] = then + command.seconds
            self._responses.recall(event, self.machine.state, then)
        now = self._clock()
        for timer in sorted(self.machine.state.timers):
            self._timers.set(timer, max(0.001, due.get(timer, now) - now))
        for node in self.machine.state.nodes.values():
            if not node.lost:
                self._liveness.awaited(node.name, asyncio.get_running_loop().time(), now, restarted=True)
        if self.machine.state.ended is not None:
            self._ended.set()

    async def run(self) -> int:
        """Run until the job has ended and every agent has gone. Return the exit code."""
        ended_before = self._ended.is_set()
        tasks = [asyncio.create_task(self._watch_pages())]
        if self._scheduling is not None:
            tasks.append(asyncio.create_task(self._scheduling.run(self.machine.state)))
        try:
            await self._ended.wait()
            if ended_before:
                await self._tell_the_late()
        finally:
            for task in tasks:
                task.cancel()
            self._others.close()
        if self._links:
            try:
                # An agent waits for the scripts' exit handlers, then `stop` seconds for workers that ignore SIGTERM.
                ended, limits = self.machine.state.ended, self.machine.state.timeouts
                finishing = limits.alone if ended is not None and ended.exit_code == 0 else 0.0
                await asyncio.wait_for(self._all_gone.wait(), finishing + 2 * limits.stop + 2.0)
            except TimeoutError:
                self._tell(service_jobs.AGENTS_STILL_CONNECTED(nodes=", ".join(sorted(self._links))))
        if self._scheduling is not None:
            await self._scheduling.finish(self.machine.state)
        self._journal.progress(self.pages)
        self._timers.cancel()
        self._decisions.cancel()
        ended = self.machine.state.ended
        assert ended is not None
        if not self._journal.strict:  # with several orchestrators, this one may be far from the user: every node's command line prints it
            self._tell(ended.message)
        return ended.exit_code

    async def _tell_the_late(self) -> None:
        """Tell late agents that the job had ended before this orchestrator was started; they have `GRACE` to connect."""
        while self._liveness.waits or self._links:  # noqa: ASYNC110
            await asyncio.sleep(WATCH)

    def is_of_another(self, known: Position) -> bool:
        """Return whether an agent with this position has workers of another job."""
        own = self._journal.identity
        return bool(own and known.identity) and own != known.identity

    def lacks(self, known: Position) -> bool:
        """Return whether the journal lacks an event that an agent knows of."""
        return not self._journal.chain.has(known)

    def suspend(self) -> None:
        """Stop deciding, and disconnect the agents, which end nothing. The caller cancels `run`."""
        self._suspended = True
        for link in self._links.values():
            link.outbox.put_nowait(Close(ASIDE, http_requests.PART_ASIDE()))
        self._links.clear()
        self._timers.cancel()
        self._decisions.cancel()

    def _report(self) -> None:
        """Report the journal's position to the agents."""
        position = str(self._journal.chain.last._replace(identity=self._journal.identity))
        for link in self._links.values():
            link.report(position)

    # -- events in, commands out ------------------------------------------------------------------------------------

    def submit(self, event: Event, encoded: str = "") -> None:
        """Let the machine handle `event`, and send its commands.

        `encoded`: the event as it was received, which the journal keeps. Without it the event is one of this service or an operator, and
        its bounds are checked here. Raises `OutOfBounds`.
        """
        self._guard()
        if self._suspended:
            return
        event = event if encoded else bounded(event)
        now = self._clock()
        commands = self.machine.handle(event, now)
        at_once, decision = split(event, commands, strict=self._journal.strict)
        self._carry_out(at_once)
        self._journal.append(now, event, encoded)
        if decision:
            self._decisions.send_when_written(decision)
        for command in commands:
            if isinstance(command, Record):
                self.submit(command.event)

    def _send_decision(self, decision: list[Command]) -> None:
        self._guard()  # time may have passed
        if not self._suspended:
            self._report()
        self._carry_out(decision)
        if any(isinstance(command, Prepare) for command in decision):
            self._time_set_ups()

    def _expired(self, timer: str) -> None:
        if timer in SET_UPS and self._decisions.prepares():
            self._time_set_ups()
        else:
            self.submit(Expired(timer))

    def _time_set_ups(self) -> None:
        """Start the timers of spares' set-ups when they are asked to begin, however long that had to wait for the journal."""
        for timer in self.machine.state.timers.intersection(SET_UPS):
            self._timers.set(timer, self.machine.state.timeouts.hang_first)

    def _needs(self, command: Command) -> bool:
        """Return whether ranks wait for this command."""
        claims = isinstance(command, ClaimNode) and self.machine.state.phase is Phase.QUIESCING
        return claims or isinstance(command, Recover | Assign)

    def _pause(self) -> None:
        if not self._ended.is_set():
            self._timers.stand_still()
            self._tell(self.paused)

    def _go_on(self) -> None:
        """Resume after a pause: its duration does not count against any worker."""
        if not self._ended.is_set():
            self._timers.go_on()
            self._watch.changed(self._clock())
            self._tell(orchestrators.JOB_GOES_ON())

    @property
    def paused(self) -> str:
        """Return what the job waits for if it waits for the journal; else empty."""
        return orchestrators.JOB_PAUSED(reason=self._journal.obstacle()) if self._decisions.pause else ""

    def _carry_out(self, commands: list[Command]) -> None:
        """Send commands. Those for one node share frames."""
        if self._suspended:
            return
        workers = self.machine.state.workers
        found = Dispatch.of(commands, lambda worker: workers[worker].node, self._links)
        for text in found.texts:
            self._tell(text)
        for timer in found.timers:
            self._timers.set(timer.timer, timer.seconds)
        if found.for_scheduler and self._scheduling is not None:
            self._scheduling.hurry(command.claim for command in found.for_scheduler if isinstance(command, ClaimNode))
        if found.ends:
            self._ended.set()
        for node, messages in found.for_nodes.items():
            link = self._links.get(node)
            if link is not None:
                for frame in encode_all(messages):
                    link.outbox.put_nowait(frame)

    # -- agents -----------------------------------------------------------------------------------------------------

    def attach(self, joined: NodeJoined, position: str = "") -> AgentLink:
        """Attach an agent that has connected and identified itself. A new connection of the same node replaces the old one.

        `position`: the position in the journal that it knows (`AgentLink`).
        """
        if not floating.known(self.machine.state, joined):
            link = AgentLink(joined.node)
            self.submit(joined)
            link.outbox.put_nowait(Close(POLICY_VIOLATION, http_requests.CLAIM_UNKNOWN(claim=joined.claim, node=joined.node)))
            return link
        now = asyncio.get_running_loop().time()
        old = self._links.get(joined.node)
        if why := self._mistaken(joined, old, now):
            link = AgentLink(joined.node)
            link.outbox.put_nowait(Close(POLICY_VIOLATION, why))
            return link
        if old is not None:
            old.outbox.put_nowait(Close(REPLACED, "replaced by a newer connection"))
        link = AgentLink(joined.node, joined.instance, now, position)
        self._links[joined.node] = link
        self._liveness.connected(joined.node, now)
        if self._ended.is_set():
            assert self.machine.state.ended is not None
            link.outbox.put_nowait(encode(self.machine.state.ended))
        else:
            self.submit(joined)
            taken = self.machine.state.nodes.get(joined.node)
            if taken is None or taken.gone:
                link.outbox.put_nowait(Close(POLICY_VIOLATION, http_requests.NODE_RANK_TAKEN(node_rank=joined.node_rank)))
        return link

    def refuses(self, joined: NodeJoined) -> bool:
        """Return whether `attach` would refuse this agent."""
        known = floating.known(self.machine.state, joined)
        return not known or bool(self._mistaken(joined, self._links.get(joined.node), asyncio.get_running_loop().time()))

    def _mistaken(self, joined: NodeJoined, old: AgentLink | None, now: float) -> str:
        """Return why this agent should not have been started, or ""."""
        state = self.machine.state
        another = old is not None and old.instance and joined.instance and old.instance != joined.instance
        if old is not None and another and now - old.heard <= state.timeouts.node_lost:
            self._complain(service_jobs.STARTED_TWICE(node=joined.node, address=joined.address))
            return http_requests.NODE_SERVED(node=joined.node)
        if joined.ranks and joined.node_rank < state.spec.nodes and joined.ranks != state.spec.workers_per_node:
            why = http_requests.OTHER_RANKS(node=joined.node, ranks=joined.ranks, wanted=state.spec.workers_per_node)
            self._complain(why)
            return why
        return ""

    def detach(self, link: AgentLink) -> None:
        """Detach an agent whose connection is gone. The node is not lost yet."""
        if self._links.get(link.node) is not link:
            return
        del self._links[link.node]
        self._liveness.disconnected(link.node)
        if self._ended.is_set():
            if not self._links:
                self._all_gone.set()
        elif link.node in self.machine.state.nodes:
            self._liveness.awaited(link.node, asyncio.get_running_loop().time(), self._clock())

    def _step(self) -> int:
        return views.step(self.machine.state, self.pages)

    def _dismiss(self, node: str) -> None:
        """Remove a node from the job. Its agent ends, and so does the process that started it, as after a successful job."""
        if (link := self._links.get(node)) is not None:
            link.outbox.put_nowait(encode(EndJob(0, service_jobs.NODE_GIVEN_BACK(node=node))))

    def _is_needed(self, nodes: Collection[str]) -> bool:
        """Return whether all workers with good state are on these nodes, so that the job would end with them."""
        members = {worker.node for worker in self.machine.state.members()}
        return bool(members) and members <= {*nodes}

    def _look_for_silence(self) -> bool:
        """Report silent nodes as lost, and return whether there were any.

        Silent connections are closed, so that such an agent connects again and learns the state of its workers.
        """
        nodes = {node.name: node.rank for node in self.machine.state.nodes.values() if not node.lost}
        gone = self._liveness.gone(nodes, self._links, asyncio.get_running_loop().time(), self._clock())
        for node in gone.silent:
            self._links.pop(node).outbox.put_nowait(Close(SILENT, "nothing was heard of this node for too long"))
        if gone.lost:
            self.submit(NodesLost(gone.lost))
            for one in gone.lost if not self._ended.is_set() else ():
                self._respond(silence(one, self._clock()), self._clock())
        return bool(gone.lost)

    def receive(self, link: AgentLink, text: str) -> None:
        """Handle a line from an agent. A line that cannot be decoded, or concerns another node's worker, is dropped and reported once."""
        try:
            message, written = decode_untrusted(text)
        except BadMessage as error:
            self._complain(service_jobs.NOT_A_MESSAGE(node=link.node, reason=str(error)))
            return
        if self._links.get(link.node) is not link:
            return  # a connection that has been replaced
        link.heard = asyncio.get_running_loop().time()
        self._liveness.heard(link.node, link.heard)
        if isinstance(message, Pages):
            self._readings[link.node] = message, self._clock()
            return
        if isinstance(message, Lines):
            self._output(message.text)
            return
        if isinstance(message, Seen):
            if self._shared:
                self._complain(service_jobs.PART_SAW(node=link.node))
            else:
                self.observe(evidence_of(message, link.node))
            return
        if not isinstance(message, FromAgent):
            self._complain(service_jobs.NOT_AN_AGENTS_MESSAGE(node=link.node, type=type(message).__name__))
            return
        if isinstance(message, NodeJoined):
            self._complain(service_jobs.JOINED_TWICE(node=link.node))  # its earlier reports about its workers may be outdated
            return
        worker = getattr(message, "worker", None)
        known = self.machine.state.workers.get(worker) if isinstance(worker, str) else None
        if worker is not None and (known.node != link.node if known else not isinstance(message, WorkerStarted)):
            self._complain(service_jobs.WORKER_NOT_THERE(node=link.node, worker=worker))
            return
        if getattr(message, "node", link.node) != link.node:
            self._complain(service_jobs.SPEAKS_FOR_ANOTHER(node=link.node))
            return
        self.submit(message, written)

    def observe(self, evidence: Evidence) -> None:
        """Take evidence of another source about a node of this job. It is evaluated at the next check."""
        self._seen.append(evidence)

    def _complain(self, text: str) -> None:
        if text not in self._complaints and len(self._complaints) < 100:
            self._complaints.add(text)
            self._tell(text)

    # -- progress ---------------------------------------------------------------------------------------------------

    @property
    def pages(self) -> dict[str, PageView]:
        """The latest page of every worker that has reported."""
        workers = self.machine.state.workers
        for node, (message, then) in self._readings.items():
            mine = {w: page for w, page in message.pages.items() if w in workers and workers[w].node == node}
            self._there[node] = frozenset(mine)
            self._pages.update(mine)
            self._watch.observe(mine, message.clock, then)
            self._straggler.observe(mine, message.clock)
        self._readings.clear()
        return self._pages

    def there(self, node: str) -> frozenset[str] | None:
        """Return the workers whose processes had not ended at the node's last heartbeat, including released and lost ones.

        None: no heartbeat of the node has arrived yet.
        """
        _ = self.pages  # process what has arrived
        return self._there.get(node)

    async def _watch_pages(self) -> None:
        kept = looked = reported = 0.0
        look_every = min(LOOK, self.machine.state.timeouts.hang_floor / 60)
        while True:
            await asyncio.sleep(WATCH)
            if self._look_for_silence():
                continue  # decisions are sent first
            now = asyncio.get_running_loop().time()
            if now - reported >= REPORT:
                reported = now
                self._report()
            if now - looked >= look_every:
                looked = now
                self.look()
            if now - kept >= max(KEEP, len(self._pages) / KEEP_WORKERS) and self.pages:
                kept = now
                self._journal.progress(self.pages)

    def _respond(self, evidence: Evidence, now: float) -> bool:
        """Return whether the evidence has a consequence."""
        news = self._responses.news(evidence)
        if news and self._journalled.of(family(evidence.detector)).take(time.monotonic()):
            self._complain(service_jobs.DETECTOR_TOO_FAST(detector=family(evidence.detector), most=NEWS))
            news = False
        try:
            if news:
                self.submit(observed(evidence))
        except OutOfBounds as error:  # from a detector of another package
            self._complain(service_jobs.EVIDENCE_LEFT_OUT(detector=plain(evidence.detector[:64]), reason=str(error)))
            return False
        event = self._responses.event_of(evidence, self.machine.state, now, again=not news)
        if event is not None:
            self.submit(event)
        return event is not None

    def _allowed(self, seen: Iterable[Evidence]) -> Iterator[Evidence]:
        """Yield the evidence of other sources, without any under a name of the core's own, which have more weight."""
        for evidence in seen:
            if evidence.detector in RESERVED:
                name = plain(evidence.name)[:100]
                self._complain(service_jobs.RESERVED_DETECTOR(node=name, detector=evidence.detector))
            else:
                yield evidence

    def look(self) -> None:
        """Check for hung workers, slow ranks (the policy decides) and due drills.

        None of this is checked while the job pauses, because ranks then wait for a decision.
        """
        if self._decisions.pause:
            return
        state, now = self.machine.state, self._clock()
        _ = self.pages  # process what has arrived since the last check
        view = view_of(state, {worker: page.step for worker, page in self._pages.items()}, now)
        ranks = view.ranks
        self._watch.forget({*ranks.values(), *view.idle})
        hung = [self._respond(evidence, now) for evidence in self._watch.look(view)]
        if any(hung):
            return  # the findings of the other detectors stay until the next check
        seen, self._seen = self._seen, deque(maxlen=MOST)
        found = False
        for evidence in (*tainted(state, now), *self._allowed(seen), *self._straggler.look(view), *self._allowed(self._others.look(view))):
            found = self._respond(evidence, now) or found
        if (event := self._responses.look(state, now)) is not None:
            self.submit(event)
            found = True
        if found:
            return
        if (ending := self._watch.never_ends(ranks, now)) is not None:
            rank, page, seconds = ending
            self.submit(ScriptFailed(ranks[rank], rank, page.step, training_evidence.NEVER_ENDS(seconds=seconds, where=line_of(page)), ""))
            return
        if (needed := self._needed(ranks, now)) is not None:
            self.submit(needed)
            return
        if (waiting := self._watch.left_behind(ranks)) is not None:
            rank, page, detail = waiting
            self.submit(ScriptFailed(ranks[rank], rank, page.step, detail, ""))
            return
        steps = [self._pages[name].step for name in ranks.values() if name in self._pages]
        if len(steps) == state.spec.world_size and self.machine.drill_due(min(steps), now):
            self.submit(DrillAsked(-1, f"step {min(steps)}", min(steps)))
        self._report_alone(ranks, now)
        stalled = not self._watch.moves(ranks, now) and self._watch.stalled(ranks, now)
        if not ranks or stalled < state.timeouts.hang_first:
            self._warned_stall = False
        elif not self._warned_stall:
            self._warned_stall = True
            self._tell(service_jobs.NO_PROGRESS(seconds=stalled))

    def _needed(self, ranks: Mapping[int, str], now: float) -> CommunicationBroken | None:
        """Return an event if a rank has exited with code 0 and the others wait in a transaction, so that they need it.

        If connections break, the other ranks report that themselves.
        """
        state = self.machine.state
        if not state.finished_then_lost:
            return None
        for worker in ranks.values():
            page = self._pages.get(worker)
            inside = page is not None and page.activity in (Activity.RUNNING, Activity.VOTED)
            if inside and self._watch.still(ranks.values(), now) > self._watch.limit(worker):
                return CommunicationBroken(worker, state.generation, service_jobs.WAITS_FOR_ENDED())
        return None

    def _report_alone(self, ranks: Mapping[int, str], now: float) -> None:
        """Report a rank that the others wait for, once for each line of the script."""
        alone = self._watch.alone(ranks, now)
        if alone is None or alone.seconds <= min(self._watch.of_steps(), alone.limit):
            return
        stretch = alone.rank, alone.page.activity, alone.page.where
        if stretch in self._reported_alone or len(self._reported_alone) >= ALONE:
            return
        self._reported_alone.add(stretch)
        place = whereabouts(alone.page) or "on its way"
        text = training_evidence.WORKS_ALONE(seconds=alone.seconds, place=place, where=line_of(alone.page), limit=alone.limit)
        self.submit(Notice(alone.worker, alone.rank, text))
