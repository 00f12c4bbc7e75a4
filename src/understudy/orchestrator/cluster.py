"""The nodes of a service and what runs on them: submitted jobs wait for slots, get them, and give them back.

Every node's agent keeps one connection and says with each heartbeat which parts of jobs it has; that, and not a record here, is
what slots are counted by. So an orchestrator that was started again knows as soon as the agents are back, for which it waits before
it places anything. A part is led by the job's own service, over a connection of its own (`service.py`): what happens to
the node's agent does not touch the job.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from understudy.core.events import LostNode, NodesLost, StopAsked
from understudy.core.model import Timeouts
from understudy.core.placement import Offer, place
from understudy.core.state import CHECK
from understudy.core.topology import failure_domain
from understudy.detectors.base import LEFT_OUT, Evidence, Severity
from understudy.links.messages import BadMessage, EndPart, Hello, Part, PartEnded, Seen, StartPart, decode, encode
from understudy.links.submission import Submission
from understudy.messages import http_requests, service_jobs
from understudy.orchestrator import drains
from understudy.orchestrator.agent_link import REPLACED, AgentLink, Close
from understudy.orchestrator.api_models import Drain, DrainPlan, Undrain
from understudy.orchestrator.detection import evidence_of, too_many
from understudy.orchestrator.jobs import Jobs, ServedJob
from understudy.orchestrator.journal import Recorded
from understudy.orchestrator.security import Access, Role
from understudy.orchestrator.settings import Settings
from understudy.orchestrator.verdicts import RESERVED
from understudy.policy.rules import applied, default, parse

SETTLE = 3.0  # seconds after a start in which agents come back and nothing is placed
LOOK = 0.5  # seconds between two looks at silent nodes
RESTARTS = 3  # of a part that was given up, for each job and node
ORPHANS = 1000  # jobs that are put aside: an agent may claim any
SUSPICIONS = 100  # of one node that are kept


@dataclass
class Node:
    hello: Hello
    link: AgentLink | None  # None: away
    heard: float  # by the loop's clock
    restarts: dict[str, int] = field(default_factory=dict)  # of parts, by job
    suspected: dict[tuple[str, str, str], Evidence] = field(default_factory=dict)  # by detector, kind and part: what may still hold

    def doubt(self, now: float) -> str:
        """Why no job should be placed here, by what was seen; "": nothing speaks against it. `now`: unix time."""
        return next((f"{e.detail} ({e.detector})" for e in self.suspected.values() if not 0 < e.until <= now), "")

    def suspect(self, evidence: Evidence, now: float) -> None:
        """`now`: unix time. What is over is kept no more."""
        key = evidence.detector, evidence.kind, evidence.part
        self.suspected = {other: e for other, e in self.suspected.items() if other != key and not 0 < e.until <= now}
        over = 0 < evidence.until <= now
        if not over and not too_many(evidence.detector, [detector for detector, _, _ in self.suspected], SUSPICIONS):
            self.suspected[key] = evidence

    def free(self) -> int:
        return self.hello.slots - sum(part.slots for part in self.hello.parts)


class Cluster:
    def __init__(self, jobs: Jobs, state: Path, access: Access, tell: Callable[[str], None], timeouts: Timeouts) -> None:
        """`state`: a folder for what is kept of jobs beside the journal. `access` makes the jobs' tokens."""
        self.nodes: dict[str, Node] = {}
        self.waiting: dict[str, str] = {}  # jobs that have no slots yet, in order, and why
        self._jobs = jobs
        self._state = state
        self._access = access
        self._tell = tell
        self._timeouts = timeouts
        self._requests: dict[str, Submission] = {}
        self._orphans: set[str] = set()  # jobs that are put aside because the journal does not know them
        self._drained = drains.DrainedNodes(state, tell)
        jobs.up = self._up
        self._ready_at = asyncio.get_running_loop().time() + SETTLE

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def resume(self, known: dict[str, Recorded]) -> None:
        """The jobs of an earlier life of this service."""
        for name, recorded in known.items():
            try:
                request = Submission.model_validate_json(recorded.request)
                request.environment = self._environment(name)
                job = self._jobs.begin(recorded.settings, request=recorded.request, known=recorded, folder=self._folder(name))
            except Exception as error:  # whatever it is: it is this job's, and the others must not wait for somebody to mend it
                self._jobs.put_aside(name, service_jobs.JOB_LEADS_NOWHERE(error=f"{type(error).__name__}: {error}"))
                continue
            self._take_on(job, request)
            if job.service.machine.state.ended is None and not job.service.machine.state.nodes:
                self.waiting[name] = ""
                self._place()

    def submit(self, request: Submission) -> ServedJob:
        """Raises `FileExistsError` if the name was used before, `OSError` if it cannot be kept, `BadPolicy`."""
        policy = parse(request.policy, "policy") if request.policy else default()
        if self._jobs.get(request.name) is not None or request.name in self._jobs.aside:
            raise FileExistsError(http_requests.JOB_NAME_USED(job=request.name))
        folder = self._folder(request.name)
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / "environment.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(request.environment, file)
        settings = Settings(applied(request.spec(), policy), request.timeouts, request.policy)
        text = request.model_dump_json(exclude={"environment"})  # which may hold secrets, and the journal none
        job = self._jobs.begin(settings, request=text, folder=folder)
        self._take_on(job, request)
        self.waiting[request.name] = ""
        self._place()
        return job

    def stop(self, job: ServedJob, reason: str, exit_code: int) -> None:
        self.waiting.pop(job.name, None)
        job.service.submit(StopAsked(reason, exit_code))

    def end_parts(self, job: str) -> None:
        """Ends what the nodes have of a job."""
        for node in self.nodes.values():
            if node.link is not None and any(part.job == job for part in node.hello.parts):
                node.link.outbox.put_nowait(encode(EndPart(job)))

    def _take_on(self, job: ServedJob, request: Submission) -> None:
        self._requests[job.name] = request
        job.running.add_done_callback(lambda _: self._over(job.name))

    def _over(self, job: str) -> None:
        self.waiting.pop(job, None)
        self.end_parts(job)  # on nodes that have not heard of it from the job's service

    def _place(self) -> None:
        """Gives slots to those that wait, in the order in which they came, as far as there are any. One that would not fit even if all jobs
        were over is passed by.
        """
        if asyncio.get_running_loop().time() < self._ready_at:
            self.waiting = dict.fromkeys(self.waiting, service_jobs.WAITS_FOR_NODES())
            return
        for name in list(self.waiting):
            request = self._requests[name]
            trusted = self._trusted()
            parts = place(request.spec(), [_offer(node, node.free()) for node in trusted])
            if isinstance(parts, str):
                self.waiting[name] = service_jobs.WAITS_FOR_SLOTS(reason=parts)
                if isinstance(place(request.spec(), [_offer(node, node.hello.slots) for node in trusted]), str):
                    continue  # until there are more nodes
                return  # the next one must not overtake it for ever
            del self.waiting[name]
            for part in parts:
                slots = part.spares + (request.workers_per_node if part.rank < request.nodes else 0)
                self._start(self.nodes[part.node], Part(name, part.rank, slots, part.spares))

    def taint(self, name: str) -> str:
        """Why a node is not trusted: what any job knows of it, also one that has ended, or what was seen there."""
        known = (job.service.machine.state.nodes.get(name) for job in self._jobs.all())
        tainted = self._drained.get(name) or next((node.taint for node in known if node is not None and node.taint), "")
        return tainted or (self.nodes[name].doubt(time.time()) if name in self.nodes else "")

    def observe(self, evidence: Evidence, may: Callable[[str], bool] = lambda job: True) -> list[str]:
        """Evidence about a node: each job that has it does what its own policy says, and no new one is placed there while it holds. Gives
        these jobs' names. `may`: whether whoever tells it may speak of a job; of "": of all of them, and of those to come.
        """
        node = self.nodes.get(evidence.name)
        known = (job.service.machine.state.nodes.get(evidence.name) for job in self._jobs.all())
        trusted_at = max((one.trusted_at for one in known if one is not None), default=0.0)
        counts = evidence.severity is not Severity.NOTE and evidence.kind != LEFT_OUT and evidence.detector not in RESERVED
        counts = counts and evidence.happened > trusted_at
        if node is not None and counts and may(""):
            node.suspect(evidence, time.time())
        return self._jobs.observe(evidence, may)

    def _bring_back(self) -> None:
        """Parts on nodes that their jobs have lost, and that are here again, with no more against them than a check that is due."""
        for job in self._jobs.all():
            state = job.service.machine.state
            if state.ended is not None or job.name not in self._requests:
                continue
            for name in [
                known.name for known in state.nodes.values() if known.lost and known.claim < 0 and not known.taints.keys() - {CHECK}
            ]:
                node, known = self.nodes.get(name), state.nodes[name]
                slots = known.room + (state.spec.workers_per_node if known.rank < state.spec.nodes else 0)
                if node is None or node.link is None or self._drained.get(name) or node.doubt(time.time()) or node.free() < slots:
                    continue
                if any(part.job == job.name for part in node.hello.parts) or node.restarts.get(job.name, 0) >= RESTARTS:
                    continue
                node.restarts[job.name] = node.restarts.get(job.name, 0) + 1
                self._tell(service_jobs.NODE_BACK(node=name, job=job.name, slots=slots))
                self._start(node, Part(job.name, known.rank, slots, slots))

    def jobs_on(self, name: str) -> list[ServedJob]:
        """Jobs that are not over and have this node."""
        return [job for job in self._jobs.all() if not job.running.done() and name in job.service.machine.state.nodes]

    def drain(self, name: str, wish: Drain) -> list[DrainPlan]:
        """Empties a node, and those named with it, of all jobs, and gives them no new ones. Gives what that takes. Raises `Refused`."""
        names = list(dict.fromkeys([name, *wish.also]))
        having = {job.name: job for node in names for job in self.jobs_on(node)}
        wanted = [(job, [node for node in names if node in job.service.machine.state.nodes]) for job in having.values()]
        plans = drains.ask(wanted, wish)
        for node in names if not wish.dry_run else ():
            self._drained.put(node, service_jobs.NODE_DRAINED(reason=wish.reason or "requested"))
        return plans

    def undrain(self, name: str, wish: Undrain) -> list[str]:
        self._drained.put(name, "")
        having = drains.take_back(self._jobs.all(), name, wish)
        self._place()
        return having

    def drain_stage(self, name: str) -> str:
        """As in `NodeLine`."""
        return drains.stage(self.jobs_on(name), name) or ("drained" if self._drained.get(name) else "")

    def trust(self, name: str) -> None:
        """A person says that whatever was seen on this node is over."""
        if name in self.nodes:
            self.nodes[name].suspected.clear()

    def _trusted(self) -> list[Node]:
        return [node for name, node in self.nodes.items() if node.link is not None and not self.taint(name)]

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
            token=self._access.token(Role.WORKER, part.job),
        )
        node.link.outbox.put_nowait(encode(message))
        node.hello = replace(node.hello, parts=(*node.hello.parts, part))

    # -- nodes --------------------------------------------------------------------------------------------------------

    def attach(self, hello: Hello) -> AgentLink:
        old = self.nodes.get(hello.node)
        if old is not None and old.link is not None:
            old.link.outbox.put_nowait(Close(REPLACED, "replaced by a newer connection"))
        if old is None or old.link is None:
            self._tell(service_jobs.NODE_HERE(node=hello.node, slots=hello.slots))
        link = AgentLink(hello.node)
        node = self.nodes[hello.node] = Node(hello, link, asyncio.get_running_loop().time())
        if old is not None:
            node.restarts, node.suspected = old.restarts, old.suspected
        for part in hello.parts:
            job = self._jobs.get(part.job)
            if job is not None and job.running.done():
                link.outbox.put_nowait(encode(EndPart(part.job)))
            elif job is None and part.job not in self._jobs.aside and len(self._jobs.aside) < ORPHANS:
                self._jobs.put_aside(part.job, service_jobs.ORPHANED(node=hello.node))
                self._orphans.add(part.job)
        self._place()
        return link

    def detach(self, link: AgentLink) -> None:
        node = self.nodes.get(link.node)
        if node is not None and node.link is link:
            node.link = None

    def receive(self, link: AgentLink, text: str) -> None:
        node = self.nodes[link.node]
        if node.link is not link:
            return
        node.heard = asyncio.get_running_loop().time()
        try:
            message = decode(text)
        except BadMessage as error:
            self._tell(service_jobs.NOT_A_MESSAGE(node=link.node, reason=str(error)[:300]))
            return
        if isinstance(message, Hello) and message.node == link.node:
            started = [part for part in node.hello.parts if part not in message.parts and not self._ended(part.job)]
            node.hello = replace(message, parts=(*message.parts, *started))
        elif isinstance(message, PartEnded):
            self._part_ended(node, message)
        elif isinstance(message, Seen):
            self.observe(evidence_of(message, link.node))

    def _part_ended(self, node: Node, message: PartEnded) -> None:
        """Its slots are free. If the job goes on, it was killed too often to be started again there: its ranks are replaced, and a new one
        is started.
        """
        gone = [part for part in node.hello.parts if part.job == message.job]
        node.hello = replace(node.hello, parts=tuple(p for p in node.hello.parts if p.job != message.job))
        job = self._jobs.get(message.job)
        if gone and job is not None and job.service.machine.state.ended is None:
            lost = LostNode(node.hello.node, service_jobs.AGENT_ENDED(code=message.exit_code))
            job.service.submit(NodesLost((lost,)))
            times = node.restarts[message.job] = node.restarts.get(message.job, 0) + 1
            if times <= RESTARTS and job.service.machine.state.ended is None:
                self._start(node, gone[0])
        self._place()

    def _up(self, node: str) -> bool:
        known = self.nodes.get(node)
        return known is not None and known.link is not None and asyncio.get_running_loop().time() - known.heard < self._timeouts.node_lost

    def _ended(self, job: str) -> bool:
        known = self._jobs.get(job)
        return known is None or known.running.done()

    async def watch(self) -> None:
        """Until cancelled: nodes that have fallen silent are away, and get no jobs."""
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
            self._forget_orphans()

    def _forget_orphans(self) -> None:
        """Forget the orphans of which no node has a part any more: they have ended."""
        there = {part.job for node in self.nodes.values() for part in node.hello.parts}
        for job in self._orphans - there:
            self._orphans.remove(job)
            del self._jobs.aside[job]

    # -- small things -------------------------------------------------------------------------------------------------

    def _folder(self, job: str) -> Path:
        return self._state / "jobs" / job

    def _environment(self, job: str) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads((self._folder(job) / "environment.json").read_text())
        except (OSError, ValueError):
            self._tell(service_jobs.ENVIRONMENT_UNREADABLE(job=job))
            return {}
        return found


def _offer(node: Node, free: int) -> Offer:
    hello = node.hello
    return Offer(hello.node, failure_domain(hello.node, hello.domain, hello.labels), free)
