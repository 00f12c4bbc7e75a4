"""The nodes of a service and the jobs on them: submitted jobs wait for slots, get them, and give them back.

Every node's agent keeps one connection and reports with each heartbeat which parts of jobs it has. Slots are counted by these reports, not
by a record here. So a restarted orchestrator knows them as soon as the agents are back; it waits for that before it places anything. A part
is led by the job's own service, over a separate connection (`service.py`): what happens to the node's agent does not affect the job.

An agent that lies about its parts harms its own node only: its reports count for a job only if a part of that job was placed there. That
was done by this orchestrator, or by one before it, and then the part itself has connected with the token that it was given, which names job
and node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from understudy.common.bounds import cut
from understudy.core.events import LostNode, NodesLost, NodeTainted, StopAsked
from understudy.core.model import Timeouts
from understudy.core.state import BY_JOB, BY_SERVICE, CHECK, DRAIN, OPERATOR, Taint
from understudy.detectors.base import LEFT_OUT, Evidence, Severity
from understudy.links.messages import BadMessage, EndPart, Hello, Part, PartEnded, Seen, StartPart, decode, encode
from understudy.links.submission import Submission
from understudy.messages import http_requests, service_jobs
from understudy.orchestrator import drains
from understudy.orchestrator.agent_link import REPLACED, TRY_LATER, AgentLink, Close
from understudy.orchestrator.api_models import Drain, DrainPlan, Undrain
from understudy.orchestrator.detection import evidence_of
from understudy.orchestrator.jobs import Jobs, ServedJob
from understudy.orchestrator.marks import NodeMarks
from understudy.orchestrator.nodes import DETAIL, Node
from understudy.orchestrator.queue import Queue
from understudy.orchestrator.rows import Recorded
from understudy.orchestrator.security import Access, Role
from understudy.orchestrator.settings import Settings
from understudy.orchestrator.verdicts import RESERVED
from understudy.policy.rules import Policy, applied

LATE = 10.0  # after an agent has connected, for its parts to learn by themselves that their job has ended
SETTLE = 3.0  # seconds after a start in which agents come back and nothing is placed
LOOK = 0.5  # seconds between two checks for silent nodes
PLACING = 0.1  # seconds per check in which jobs get slots: agents and other jobs are served by the same loop
REST = 4.0  # multiple of the time of a check, before a change causes another one
NODES = 10_000  # limit of known nodes
FORGET = 86400.0  # seconds after which a node without a sign of life and without a job is dropped
WAITING, WAITING_OF_ONE = 5000, 1000  # waiting jobs: in total, and of one credential
RESTARTS = 3  # of a part that was given up, for each job and node
ORPHANS = 1000  # jobs that are put aside because the journal does not know them
ENVIRONMENT = "environment.json"  # in a job's folder, written when it is submitted
KNOCK = 30.0  # seconds without a connection attempt of its parts after which such a job has ended


class TooManyWaiting(Exception):
    """Too many jobs are waiting already: of this credential, or in total."""


class Cluster:
    def __init__(self, jobs: Jobs, state: Path, access: Access, tell: Callable[[str], None], timeouts: Timeouts) -> None:
        """Create the cluster. `state`: a folder for data of jobs in addition to the journal. `access` makes the jobs' tokens."""
        self.nodes: dict[str, Node] = {}
        self.waiting: dict[str, str] = {}  # jobs without slots, in order, and the reason
        self._jobs = jobs
        self._state = state
        self._access = access
        self._tell = tell
        self._timeouts = timeouts
        self._requests: dict[str, Submission] = {}  # of the jobs that the journal has
        self._since: dict[str, float] = {}  # of waiting jobs: since when, by the loop's clock
        self._holders: dict[str, str] = {}  # of waiting jobs: the credential that submitted them, as far as this process knows
        self._orphans: dict[str, float] = {}  # jobs unknown to the journal, with their last attempt to connect
        self._marks = NodeMarks(state, tell)
        jobs.up = self._up
        self._ready_at = asyncio.get_running_loop().time() + SETTLE
        self._rests_until = 0.0  # by the loop's clock

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def resume(self, known: dict[str, Recorded]) -> None:
        """Restore the jobs of an earlier process of this service."""
        now = asyncio.get_running_loop().time()
        for name, recorded in known.items():
            try:
                request = Submission.model_validate_json(recorded.request)
                request.environment = self._environment(name)
                job = self._jobs.begin(recorded.settings, request=recorded.request, known=recorded, folder=self._folder(name))
            except Exception as error:  # any error: it concerns this job only, and the others must not wait for a repair
                self._jobs.put_aside(name, service_jobs.JOB_LEADS_NOWHERE(error=f"{type(error).__name__}: {error}"))
                continue
            self._take_on(job, request)
            if job.service.machine.state.ended is None and not job.service.machine.state.nodes:
                self.waiting[name] = ""
                self._since[name] = now - self._age(name)
        self._marks.recall(_trusted_in(known.values()))
        self._place()

    def submit(self, request: Submission, policy: Policy, holder: str = "") -> ServedJob:
        """Accept a job.

        `policy`: the request's own, or the default one. `holder`: its credential (`Auth.holder`). Raises `FileExistsError` if the name was
        used before, `OSError` if the job cannot be stored, `TooManyWaiting`.
        """
        if self._jobs.get(request.name) is not None or request.name in self._jobs.aside:
            raise FileExistsError(http_requests.JOB_NAME_USED(job=request.name))
        self._holders = {name: self._holders[name] for name in self.waiting if name in self._holders}
        if list(self._holders.values()).count(holder) >= WAITING_OF_ONE or len(self.waiting) >= WAITING:
            raise TooManyWaiting(http_requests.TOO_MANY_WAITING(most=WAITING_OF_ONE, of_all=WAITING))
        folder = self._folder(request.name)
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / ENVIRONMENT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(request.environment, file)
        settings = Settings(applied(request.spec(), policy), request.timeouts, request.policy)
        text = request.model_dump_json(exclude={"environment"})  # the environment may hold secrets, which must not be in the journal
        job = self._jobs.begin(settings, request=text, folder=folder, policy=policy)
        self._watch_end(job)
        self.waiting[request.name], self._holders[request.name] = "", holder
        self._place_now()
        loop = asyncio.get_running_loop()

        def written() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._begun, request)

        self._jobs.journal.mark(written)
        return job

    def _begun(self, request: Submission) -> None:
        """Let a job get slots when it is in the journal, because a restarted orchestrator would not know parts of a job that is not."""
        self._requests[request.name] = request
        self._place_now()

    def stop(self, job: ServedJob, reason: str, exit_code: int) -> None:
        self.waiting.pop(job.name, None)
        job.service.submit(StopAsked(reason, exit_code))

    def end_parts(self, job: str) -> None:
        """End all parts of a job, which gets no slots any more."""
        self.waiting.pop(job, None)
        for node in self.nodes.values():
            if node.link is not None and any(part.job == job for part in node.hello.parts):
                node.link.outbox.put_nowait(encode(EndPart(job)))

    def _take_on(self, job: ServedJob, request: Submission) -> None:
        self._requests[job.name] = request
        self._watch_end(job)

    def _watch_end(self, job: ServedJob) -> None:
        job.running.add_done_callback(lambda running: None if running.cancelled() else self._over(job.name))

    def _over(self, job: str) -> None:
        for node in self.nodes.values():
            node.placed.pop(job, None)
        self.end_parts(job)  # on nodes that the job's service has not informed

    def _place(self) -> None:
        """Give slots to waiting jobs (`queue.py`): at least to one, and to as many as possible within `PLACING` seconds.

        The others are considered in the next check.
        """
        self.waiting = {name: why for name, why in self.waiting.items() if self._waits(name)}
        if not self.waiting:
            return
        began = now = asyncio.get_running_loop().time()
        if now < self._ready_at:
            self.waiting = dict.fromkeys(self.waiting, service_jobs.WAITS_FOR_NODES())
            return
        self._since = {name: self._since.get(name, now) for name in self.waiting}
        queue = Queue(self._trusted())
        ends = time.monotonic() + PLACING
        for name, since in self._since.items():
            request = self._requests.get(name)
            if request is None:
                self.waiting[name] = self._jobs.journal.obstacle() if self._jobs.journal.trouble else ""
                continue
            found = queue.place(request.spec(), now - since)
            if isinstance(found, str):
                self.waiting[name] = found
                continue
            del self.waiting[name]
            for part in found:
                slots = part.spares + (request.workers_per_node if part.rank < request.nodes else 0)
                self._start(self.nodes[part.node], Part(name, part.rank, slots, part.spares))
            if time.monotonic() > ends:
                break
        done = asyncio.get_running_loop().time()
        self._rests_until = done + REST * (done - began)

    def _place_now(self) -> None:
        """Place jobs after a change. If the last check was just now, the next one (`watch`) is soon enough: thousands of nodes
        may connect.
        """
        if asyncio.get_running_loop().time() >= self._rests_until:
            self._place()

    def _waits(self, name: str) -> bool:
        """Return whether a job may get slots: not one that was put aside, nor one that has nodes already."""
        job = self._jobs.get(name)
        return job is not None and not job.service.machine.state.nodes

    def taint(self, name: str) -> str:
        """Return why a node gets no new jobs.

        The reasons are an operator's with authority over all jobs, findings of Understudy in any job, including ended ones, and evidence
        against the node. Taints of a job's operators, or of its policy, concern that job only.
        """
        tainted = self._marks.why(name) or next((taint.reason for taint in self._taints(name)), "")
        return cut(tainted, DETAIL) or (self.nodes[name].doubt(time.time()) if name in self.nodes else "")

    def _taints(self, name: str) -> Iterator[Taint]:
        """Yield the taints that jobs have on the node and that concern all jobs."""
        for job in self._jobs.all():
            state = job.service.machine.state
            if (node := state.nodes.get(name)) is not None:
                yield from (taint for taint in node.taints.values() if taint.concerns_all(ended=state.ended is not None))

    def observe(self, evidence: Evidence, may: Callable[[str], bool] = lambda job: True) -> list[str]:
        """Take evidence about a node, and return the names of the jobs that received it.

        Each job on the node acts by its own policy, and no new one is placed there while the evidence is valid. `may`: whether the
        source of the evidence has authority over a job; over "": all jobs, including future ones.
        """
        node = self.nodes.get(evidence.name)
        counts = evidence.severity is not Severity.NOTE and evidence.kind != LEFT_OUT and evidence.detector not in RESERVED
        counts = counts and evidence.happened > self._marks.trusted_at(evidence.name)
        if node is not None and counts and may(""):
            node.suspect(evidence, time.time())
        return self._jobs.observe(evidence, may)

    def _bring_back(self) -> None:
        """Restart parts on nodes that their jobs have lost and that are back, if nothing but a pending check is against them."""
        for job in self._jobs.all():
            state = job.service.machine.state
            if state.ended is not None or job.name not in self._requests:
                continue
            for name in [
                known.name for known in state.nodes.values() if known.lost and known.claim < 0 and not known.taints.keys() - {CHECK}
            ]:
                node, known = self.nodes.get(name), state.nodes[name]
                slots = known.room + (state.spec.workers_per_node if known.rank < state.spec.nodes else 0)
                if node is None or node.link is None or self._marks.why(name) or node.doubt(time.time()) or node.free() < slots:
                    continue
                if any(part.job == job.name for part in node.hello.parts) or node.restarts.get(job.name, 0) >= RESTARTS:
                    continue
                node.restarts[job.name] = node.restarts.get(job.name, 0) + 1
                self._tell(service_jobs.NODE_BACK(node=name, job=job.name, slots=slots))
                self._start(node, Part(job.name, known.rank, slots, slots))

    def jobs_on(self, name: str) -> list[ServedJob]:
        """Return the jobs on the node that are not over."""
        return [job for job in self._jobs.all() if not job.running.done() and name in job.service.machine.state.nodes]

    def drain(self, name: str, wish: Drain) -> list[DrainPlan]:
        """Drain a node, and those named with it, of all jobs, and give them no new ones. Return the plans. Raises `Refused`."""
        names = list(dict.fromkeys([name, *wish.also]))
        having = {job.name: job for node in names for job in self.jobs_on(node)}
        wanted = [(job, [node for node in names if node in job.service.machine.state.nodes]) for job in having.values()]
        plans = drains.ask(wanted, wish, BY_SERVICE)
        for node in names if not wish.dry_run else ():
            self._marks.drain(node, wish.reason or "asked for")
        return plans

    def undrain(self, name: str, wish: Undrain) -> list[str]:
        """Cancel the drain for all jobs. A drain by a job's own operators stays."""
        self._marks.undrain(name)
        known = [(job, job.service.machine.state.nodes.get(name)) for job in self._jobs.all()]
        wide = [job for job, node in known if node is not None and node.drain is not None and node.drain.by != BY_JOB]
        having = drains.take_back(wide, name, wish)
        self._place_now()
        return having

    def drain_stage(self, name: str) -> str:
        """Return the stage of a drain, as in `NodeLine`."""
        if not self._marks.is_drained(name) and not any((taint.source, taint.part) == DRAIN for taint in self._taints(name)):
            return ""
        return drains.stage(self.jobs_on(name), name) or "drained"

    def is_known(self, name: str) -> bool:
        return name in self.nodes or self._marks.is_known(name) or bool(self.jobs_on(name))

    def jobs_shown(self, node: Node) -> list[str]:
        """Return the jobs with slots on the node, as far as its agent's report counts."""
        known = {part.job: self._jobs.get(part.job) for part in node.hello.parts}
        return [name for name, job in known.items() if (self._placed(node, job) if job is not None else name in self._jobs.aside)]

    def set_taint(self, name: str, reason: str) -> None:
        """Taint a node for all jobs, including future ones, by an operator's decision."""
        self._marks.taint(name, reason)
        for job in self.jobs_on(name):
            job.service.submit(NodeTainted(name, reason, by=BY_SERVICE))

    def trust(self, name: str) -> None:
        """End all taints and evidence of a node for all jobs, by an operator's decision."""
        self._marks.trust(name, time.time())
        if name in self.nodes:
            self.nodes[name].suspected.clear()
        for job in self._jobs.all():
            node = job.service.machine.state.nodes.get(name)
            if node is not None and (node.taints or node.device_taints or not job.running.done()):
                job.service.submit(NodeTainted(name, ""))
        self._place_now()

    def _trusted(self) -> list[Node]:
        """Return the connected nodes without a `taint`."""
        doubted: set[str] = set()
        for job in self._jobs.all():
            state = job.service.machine.state
            ended = state.ended is not None
            doubted.update(n.name for n in state.nodes.values() if any(t.concerns_all(ended=ended) for t in n.taints.values()))
        there = ((name, node) for name, node in self.nodes.items() if node.link is not None and name not in doubted)
        now = time.time()
        return [node for name, node in there if not self._marks.why(name) and not node.doubt(now)]

    def _start(self, node: Node, part: Part) -> None:
        request = self._requests[part.job]
        assert node.link is not None
        message = StartPart(
            part=part,
            program=tuple(request.program),
            folder=request.folder,
            environment=request.environment,
            workers_per_node=request.workers_per_node,
            role=request.role,
            timeouts=request.timeouts,
            token=self._access.token(Role.WORKER, part.job, node=node.hello.node),
        )
        node.link.outbox.put_nowait(encode(message))
        node.start(part)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def attach(self, hello: Hello) -> AgentLink:
        old = self.nodes.get(hello.node)
        if old is None and not self._has_room():
            link = AgentLink(hello.node)
            link.outbox.put_nowait(Close(TRY_LATER, http_requests.TOO_MANY_NODES(most=NODES)))
            return link
        if old is not None and old.link is not None:
            old.link.outbox.put_nowait(Close(REPLACED, "replaced by a newer connection"))
        if old is None or old.link is None:
            self._tell(service_jobs.NODE_HERE(node=hello.node, slots=hello.slots))
        link, now = AgentLink(hello.node), asyncio.get_running_loop().time()
        node = self.nodes[hello.node] = Node(hello, link, now, now)
        if old is not None:
            node.placed, node.restarts, node.suspected = old.placed, old.restarts, old.suspected
        self._place_now()
        return link

    def _has_room(self) -> bool:
        """Return whether one more node may connect: it may replace the one that has been silent for longest."""
        if len(self.nodes) < NODES:
            return True
        idle = min(self._idle(), key=lambda node: node.heard, default=None)
        if idle is not None:
            del self.nodes[idle.hello.node]
        return idle is not None

    def _idle(self) -> list[Node]:
        """Return the disconnected nodes that have no part of a job that is not over."""
        away = [node for node in self.nodes.values() if node.link is None]
        return [node for node in away if all(part.job not in self._jobs.aside and self._ended(part.job) for part in node.hello.parts)]

    def find_orphan(self, job: str, authorization: str | None) -> None:
        """Put a job aside that the journal does not know, because a part of it has connected with a worker's token of this service."""
        placed = self._access.placed(authorization)
        if placed is None or placed.job != job or (job in self._jobs.aside and job not in self._orphans):
            return
        if job not in self._orphans:
            if len(self._orphans) >= ORPHANS:
                return
            self._jobs.put_aside(job, service_jobs.ORPHANED(node=placed.node or "of an earlier version"))
        self._orphans[job] = asyncio.get_running_loop().time()

    def detach(self, link: AgentLink) -> None:
        node = self.nodes.get(link.node)
        if node is not None and node.link is link:
            node.link = None

    def receive(self, link: AgentLink, text: str) -> None:
        node = self.nodes.get(link.node)
        if node is None or node.link is not link:
            return
        node.heard = asyncio.get_running_loop().time()
        try:
            message = decode(text)
        except BadMessage as error:
            self._jobs.tell_once(f"message of {link.node}", service_jobs.NOT_A_MESSAGE(node=link.node, reason=str(error)[:300]))
            return
        if isinstance(message, Hello) and message.node == link.node:
            node.hear(message, started=tuple(p for p in node.hello.parts if p.job in node.placed and not self._ended(p.job)))
        elif isinstance(message, PartEnded):
            self._part_ended(node, message)
        elif isinstance(message, Seen):
            self.observe(evidence_of(message, link.node))

    def _part_ended(self, node: Node, message: PartEnded) -> None:
        """Free the slots of a part that has ended.

        If the job goes on, the part was killed too often to be restarted there: its ranks are replaced, and a new part is started.
        """
        job = self._jobs.get(message.job)
        part = self._placed(node, job) if job is not None else None
        node.end(message.job)
        if job is None or job.service.machine.state.ended is not None:
            pass
        elif part is None:
            why = service_jobs.NOT_ITS_PART(node=node.hello.node, job=message.job)
            self._jobs.tell_once(f"part of {node.hello.node}", why)
        else:
            lost = LostNode(node.hello.node, service_jobs.AGENT_ENDED(code=message.exit_code))
            job.service.submit(NodesLost((lost,)))
            times = node.restarts[message.job] = node.restarts.get(message.job, 0) + 1
            if times <= RESTARTS and job.service.machine.state.ended is None:
                self._start(node, part)
        self._place_now()

    @staticmethod
    def _placed(node: Node, job: ServedJob) -> Part | None:
        """Return the part of this job that was placed on the node, whatever its agent reports; None if none was."""
        state = job.service.machine.state
        known = state.nodes.get(node.hello.node)
        if job.name in node.placed or known is None or known.gone:
            return node.placed.get(job.name)
        ranks = state.spec.workers_per_node if known.rank < state.spec.nodes else 0
        return Part(job.name, known.rank, ranks + known.room, known.room)

    def _up(self, node: str) -> bool:
        known = self.nodes.get(node)
        return known is not None and known.link is not None and asyncio.get_running_loop().time() - known.heard < self._timeouts.node_lost

    def _ended(self, job: str) -> bool:
        known = self._jobs.get(job)
        return known is None or known.running.done()

    async def watch(self) -> None:
        """Until cancelled, mark silent nodes as disconnected, so that they get no jobs."""
        while True:
            await asyncio.sleep(LOOK)
            now = asyncio.get_running_loop().time()
            for node in self.nodes.values():
                if node.link is not None and now - node.heard > self._timeouts.node_lost:
                    self._tell(service_jobs.NODE_AWAY(node=node.hello.node, seconds=now - node.heard))
                    node.link.outbox.put_nowait(Close(REPLACED, "nothing was heard of this node for too long"))
                    node.link = None
            self._place()
            if now > self._ready_at:
                self._bring_back()
            self._end_late_parts(now)
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop nodes that do not come back, and orphans whose parts do not: they have ended."""
        for node in [node for node in self._idle() if now - node.heard > FORGET]:
            del self.nodes[node.hello.node]
        for job in [job for job, knock in self._orphans.items() if now - knock > KNOCK]:
            del self._orphans[job], self._jobs.aside[job]

    def _end_late_parts(self, now: float) -> None:
        """End parts of jobs that have ended.

        Their agents have learned of the end from the job's service by now, or have shown there that this journal is not that of their job,
        which is then put aside.
        """
        for node in self.nodes.values():
            late = node.link if now - node.since > LATE else None
            for part in node.hello.parts if late is not None else ():
                job = self._jobs.get(part.job)
                if late is not None and job is not None and job.running.done() and part.job not in node.ended:
                    node.ended.add(part.job)
                    late.outbox.put_nowait(encode(EndPart(part.job)))

    # -- small things -------------------------------------------------------------------------------------------------

    def _folder(self, job: str) -> Path:
        return self._state / "jobs" / job

    def _age(self, job: str) -> float:
        """Return the seconds since the job was submitted, as far as known."""
        try:
            return max(0.0, time.time() - (self._folder(job) / ENVIRONMENT).stat().st_mtime)
        except OSError:
            return 0.0

    def _environment(self, job: str) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads((self._folder(job) / ENVIRONMENT).read_text())
        except (OSError, ValueError):
            self._tell(service_jobs.ENVIRONMENT_UNREADABLE(job=job))
            return {}
        return found


def _trusted_in(known: Iterable[Recorded]) -> dict[str, float]:
    """Return when an operator last marked each node as trusted for all jobs, as far as these jobs know: unix times."""
    found: dict[str, float] = {}
    for then, event in (one for recorded in known for one in recorded.events):
        if isinstance(event, NodeTainted) and (event.source, event.part, event.reason) == (OPERATOR, "", "") and event.by != BY_JOB:
            found[event.node] = max(then, found.get(event.node, 0.0))
    return found
