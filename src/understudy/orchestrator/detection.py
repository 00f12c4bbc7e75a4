"""Turn evidence into events; run detectors of other packages, each on its own thread, so that a hanging one delays only itself."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice

from understudy import extensions
from understudy.common.bounds import FIRST_TIME, LAST_TIME
from understudy.core import floating, migration
from understudy.core.drain import ATTEMPTS
from understudy.core.events import Event, MigrationAsked, NodeTainted, Observed, WorkerLost
from understudy.core.model import LossCause
from understudy.core.state import BY_JOB, CORRUPT, DEVICE, OURS, JobState, Node
from understudy.core.transitions import Phase, WorkerState
from understudy.detectors.base import GROUP, AnyDetector, Detector, Evidence, JobView, Severity, Subject
from understudy.links.messages import Seen
from understudy.messages import service_jobs
from understudy.orchestrator.verdicts import HEARTBEAT
from understudy.policy.engine import Decision, Engine, PolicyContext, held_back
from understudy.policy.rules import Action, Policy

MOST = 1000  # pieces of evidence that a detector may find in one check; notes of one job
TAINTS = 100  # of one node: a detector may name any number of parts
SHARE = 3  # one detector, and those with the same name, may use at most 1/SHARE of the kept evidence
OFTEN = 10.0  # seconds
_FOUND_BY_CORE = frozenset({CORRUPT, DEVICE})
LITTLE = 0.1  # share of the remaining duration of a taint: a smaller extension is ignored


def evidence_of(seen: Seen, node: str) -> Evidence:
    """Return an agent's evidence, which concerns its own node only."""
    return Evidence(
        *(seen.detector, Subject(seen.subject), node, Severity(seen.severity), seen.detail, seen.happened),
        *(seen.kind, seen.part if seen.subject != "node" else "", seen.until),
    )


def family(detector: str) -> str:
    """Return the family of a detector, "webhook" of "webhook:burn-in", because clients of the HTTP API can invent any number of names."""
    return detector.partition(":")[0]


def too_many(detector: str, kept: Collection[str], most: int) -> bool:
    """Return whether there is no room for another piece of evidence of this detector. `kept`: the detectors of the kept evidence."""
    return len(kept) >= most or sum(family(other) == family(detector) for other in kept) >= most // SHARE


def observed(evidence: Evidence) -> Observed:
    """Return the journal's event for this evidence."""
    e = evidence
    return Observed(e.detector, str(e.subject), e.name, str(e.severity), e.detail, e.happened, e.kind, e.part, e.until)


def observed_as(event: Observed) -> Evidence:
    """Return the evidence of a journal's event."""
    e = event
    return Evidence(e.detector, Subject(e.subject), e.name, Severity(e.severity), e.detail, e.happened, e.kind, e.part, e.until)


def view_of(state: JobState, steps: Mapping[str, int], now: float) -> JobView:
    """Return a job's state for detectors. `steps`: as far as known."""
    there = {w.name: w for node in state.nodes.values() for w in node.workers.values() if w.state is not WorkerState.RELEASED}
    holding = (WorkerState.MEMBER, WorkerState.NEWCOMER)
    by_rank = {rank: name for rank, name in state.ranks.items() if name in there and there[name].state in holding}
    holders = set(by_rank.values())
    idle = [name for name in there if name not in holders]
    steady = state.phase is Phase.TRAINING and state.migration is None and state.drill is None
    return JobView(now, by_rank, idle, {name: worker.node for name, worker in there.items()}, steps, state.roles, state.generation, steady)


class Responses:
    """Turn evidence into events for one job, according to its policy, unless the machine has it already.

    - No detector can use the name of an operator's source; the caller ensures this (`verdicts.RESERVED`).
    - The consequences concern this job only, because its policy and its script come from its submitter. A service receives evidence about a
      node itself (`Cluster.observe`).
    - Evidence from before the time at which an operator marked the node as trusted is ignored: an agent repeats its evidence.
    - If the policy's limits do not allow ranks to leave a node now, it is tainted anyway, and the limits are checked again each time
      (`look`).
    """

    def __init__(self, policy: Policy, tell: Callable[[str], None]) -> None:
        """Create the responses of a job. `tell` prints a line for the user."""
        self._engine = Engine(policy)
        self._limits = policy.limits
        self._tell = tell
        self._noted: set[tuple[str, str, str, str]] = set()
        self._notes: Counter[str] = Counter()  # number of notes by family of detectors
        self._left: deque[float] = deque(maxlen=1000)  # unix times at which ranks began to leave a node
        self._held: dict[tuple[str, str, str], NodeTainted] = {}  # by node, source and part: pending taints
        self._ends: dict[tuple[str, str, str], dict[str, float]] = {}  # by node, detector and part, for each kind: when it ends
        self._moved: dict[str, int] = {}  # how often the rank of a worker was to leave it
        self._latest: dict[tuple[str, str, str, str], Evidence] = {}  # by detector, name, kind and part: the last evidence that was new
        self._reported: dict[str, str] = {}  # of pending taints: the first word of the reason, as reported

    def news(self, evidence: Evidence) -> bool:
        """Return whether the evidence is new. A repeated occurrence of the same counts at most once in `OFTEN` seconds."""
        key = evidence.detector, evidence.name, evidence.kind, evidence.part
        known = self._latest.get(key)
        if known is not None:
            later = evidence.happened - known.happened >= OFTEN or evidence.severity != known.severity
            longer = abs(evidence.until - known.until) > max(1.0, LITTLE * abs(known.until - known.happened))
            if not (later or longer or (evidence.until > 0) != (known.until > 0)):
                return False
        if len(self._latest) >= MOST and key not in self._latest:
            del self._latest[next(iter(self._latest))]
        self._latest[key] = evidence
        return True

    def recall(self, event: Event, state: JobState, then: float) -> None:
        """Count an event of the journal, as the leader of that time did."""
        if isinstance(event, NodeTainted) and event.leave and event.source not in OURS - _FOUND_BY_CORE:
            self._left.append(then)
        if isinstance(event, Observed) and self.news(evidence := observed_as(event)):
            decision = self._engine.decide(evidence, {worker.name: worker.node for worker in state.workers.values()}, then)
            key = decision.node, evidence.detector, evidence.part
            if decision.over:
                self._ends.get(key, {}).pop(evidence.kind, None)
            elif self._taints(decision) and decision.node in state.nodes and self._room(evidence, state.nodes[decision.node]):
                self._keep_end(key, evidence.kind, decision.until)

    def event_of(self, evidence: Evidence, state: JobState, now: float, *, again: bool = False) -> Event | None:
        """Return the event for the machine; None if it has it already, or if the evidence is only shown. `again`: the evidence is
        not new.
        """
        decision = self._engine.decide(evidence, {worker.name: worker.node for worker in state.workers.values()}, now, again=again)
        if decision.action is Action.LOST and evidence.subject is Subject.WORKER:
            worker = state.workers.get(evidence.name)
            there = worker is not None and worker.state not in (WorkerState.LOST, WorkerState.RELEASED)
            detail = decision.why if evidence.detector != "hang" else evidence.detail
            return WorkerLost(evidence.name, LossCause.HUNG, detail, evidence.happened) if there else None
        node = state.nodes.get(decision.node)
        away = node is not None and node.lost and evidence.detector != HEARTBEAT  # heartbeat evidence is about lost nodes
        if node is None or away or 0 < evidence.happened <= node.trusted_at:
            return None
        if decision.action is Action.LOST:
            if (holder := _on_device(node, evidence.part)) is not None:
                return WorkerLost(holder, LossCause.DEVICE, decision.why, evidence.happened)
            decision = replace(decision, action=Action.TAINT)  # no rank computes there any more
        if decision.action is Action.LEAVE and evidence.subject is Subject.WORKER:
            return self._move(evidence.name, decision.why, node, state, now)
        if decision.over:
            return self._over(evidence, node)
        if self._taints(decision) and self._room(evidence, node):
            ends = self._keep_end((node.name, evidence.detector, evidence.part), evidence.kind, decision.until)
            leaves = decision.action is Action.LEAVE
            until = _last(ends.values()) if evidence.detector not in _FOUND_BY_CORE else 0.0  # taints of the core have no end
            by = "" if evidence.detector in _FOUND_BY_CORE else BY_JOB
            asked = NodeTainted(node.name, decision.why, evidence.detector, evidence.part, until, leaves, by=by)
            return self._new(asked, state, now)
        self._note(decision)
        return None

    @staticmethod
    def _taints(decision: Decision) -> bool:
        """Return whether the node is tainted. (If a single worker is to be left, its rank moves and the node is not tainted.)"""
        moves = decision.action is Action.LEAVE and decision.evidence.subject is Subject.WORKER
        return decision.action in (Action.TAINT, Action.LEAVE) and not moves

    @staticmethod
    def _room(evidence: Evidence, node: Node) -> bool:
        """Return whether another taint of this source on the node would have any effect."""
        known = node.known(evidence.detector, evidence.part) is not None
        return known or not too_many(evidence.detector, [source for source, _ in (*node.taints, *node.device_taints)], TAINTS)

    def _keep_end(self, key: tuple[str, str, str], kind: str, until: float) -> dict[str, float]:
        """Record when each kind of evidence there ends."""
        ends = self._ends.setdefault(key, {})
        if kind in ends or len(ends) < TAINTS:
            ends[kind] = until
        return ends

    def _over(self, evidence: Evidence, node: Node) -> NodeTainted | None:
        """End evidence. The taint ends with the last evidence of its detector on that part of the node."""
        key = node.name, evidence.detector, evidence.part
        ends = self._ends.get(key, {})
        known = node.known(*key[1:])
        if ends.pop(evidence.kind, None) is None or known is None:
            return None
        if ends:
            until = _last(ends.values())
            again = NodeTainted(node.name, known.reason, *key[1:], until, known.leave, by=known.by)
            return again if until != known.until else None
        del self._ends[key]
        return NodeTainted(node.name, "", *key[1:])

    def _move(self, worker: str, why: str, node: Node, state: JobState, now: float) -> MigrationAsked | None:
        """Return the move of a rank off its worker. A detector repeats its evidence as long as it lasts, so a failed move is repeated."""
        known = state.workers.get(worker)
        if known is None or not state.holds(known) or self._moved.get(worker, 0) >= ATTEMPTS or migration.refusal(state, known.rank):
            return None
        if why_not := held_back(self._limits, self._policy_context(state, now), node.domain or node.name):
            self._tell_held(f"rank of {worker}", why_not, service_jobs.RANK_STAYS(rank=known.rank, worker=worker, reason=why_not))
            return None
        self._moved[worker] = self._moved.get(worker, 0) + 1
        self._left.append(now)
        return MigrationAsked(known.rank, why)

    def look(self, state: JobState, now: float) -> Event | None:
        """Return a pending taint if ranks may leave the node now."""
        for key, asked in list(self._held.items()):
            node = state.nodes.get(asked.node)
            if node is None or node.lost or node.known(*key[1:]) is None or 0 < asked.until <= now:
                del self._held[key]
            elif (event := self._new(asked, state, now)) is not None:
                return event
        return None

    def _new(self, asked: NodeTainted, state: JobState, now: float) -> NodeTainted | None:
        """Return the taint as it may be set now, if the machine does not have it."""
        node = state.nodes[asked.node]
        known = node.known(asked.source, asked.part)
        key = asked.node, asked.source, asked.part
        leaves = any(taint.leave for taint in node.taints.values()) or (known is not None and known.leave)
        if asked.leave and not leaves:
            what = f"node {node.name}"
            if why_not := held_back(self._limits, self._policy_context(state, now), node.domain or node.name):
                self._tell_held(what, why_not, service_jobs.RANKS_STAY_ON_NODE(node=node.name, reason=why_not))
                self._held[key] = asked
                asked = replace(asked, leave=False)
            else:
                self._held.pop(key, None)
                self._reported.pop(what, None)
                if any(state.holder(rank).node == node.name for rank in state.ranks):
                    self._left.append(now)
        if known is None or (asked.leave and not known.leave):
            return asked
        if known.until == asked.until or (known.until > 0 and 0 < asked.until < known.until + max(1.0, (known.until - now) * LITTLE)):
            return None
        return replace(asked, leave=known.leave)

    def _tell_held(self, what: str, why_not: str, text: str) -> None:
        """Report `text` once for each `what`, even if the figures in `why_not` change."""
        reason = " ".join(why_not.split(" ")[:2])  # its code, and the first word
        if self._reported.get(what) != reason and (what in self._reported or len(self._reported) < MOST):
            self._reported[what] = reason
            self._tell(text)

    def _policy_context(self, state: JobState, now: float) -> PolicyContext:
        occupied = {state.holder(rank).node for rank in state.ranks}
        left = [node for node in state.nodes.values() if any(taint.leave for taint in node.taints.values()) and node.name in occupied]
        spares = [worker for worker in state.idle(WorkerState.WARM) if not state.nodes[worker.node].taints]
        return PolicyContext(now, self._left, {node.domain or node.name for node in left}, len(spares) + floating.may_come(state))

    def _note(self, decision: Decision) -> None:
        evidence = decision.evidence
        key = evidence.detector, evidence.name, evidence.part, evidence.kind
        who = family(evidence.detector)
        if key not in self._noted and len(self._noted) < MOST and self._notes[who] < MOST // SHARE:
            self._noted.add(key)
            self._notes[who] += 1
            part = f"{evidence.part} of " if evidence.part else ""
            about = f"{part}{'node' if evidence.subject is not Subject.WORKER else 'worker'} {evidence.name}"
            self._tell(service_jobs.NOTED(about=about, reason=decision.why))


def _on_device(node: Node, part: str) -> str | None:
    """Return the worker with a rank on this device, as far as known."""
    device, holding = node.device_of(part), (WorkerState.MEMBER, WorkerState.NEWCOMER, WorkerState.LEAVING)
    return next((worker.name for worker in node.workers.values() if device and worker.device == device and worker.state in holding), None)


def _last(ends: Collection[float]) -> float:
    """Return the last of several ends of validity; 0 if one of them has no end."""
    return 0.0 if 0.0 in ends else max(ends)


class OtherDetectors:
    """Detectors of other installed packages. Their findings are taken at the next check of the job."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Load the detectors without starting them. `tell` prints a line for the user. Raises `ValueError` for an invalid detector."""
        self._tell = tell
        kinds = extensions.classes(GROUP, AnyDetector)
        self._kinds = [kind for kind in kinds if issubclass(kind, Detector)]  # others run in the agents
        self._threads: list[_OnItsThread] = []

    def look(self, job: JobView) -> list[Evidence]:
        """Show the job to the detectors, and return what they have found since the last call."""
        if not self._threads:
            self._threads = [_OnItsThread(kind) for kind in self._kinds]
        found: list[Evidence] = []
        for thread in self._threads:
            found += thread.show(job)
            if thread.failed:
                self._tell(thread.failed)
                thread.failed = ""
        return found

    def close(self) -> None:
        """Stop the detectors. One that hangs ends with the process."""
        for thread in self._threads:
            thread.close()


class _OnItsThread:
    """A detector on its thread. It runs again only after its findings were taken, so it cannot flood the caller."""

    def __init__(self, kind: type[Detector]) -> None:
        self.failed = ""  # why it is left out, as text
        self._kind = kind
        self._changed = threading.Condition()
        self._view: JobView | None = None  # for the next check
        self._found: list[Evidence] = []
        self._closed = False
        threading.Thread(target=self._run, name=f"understudy-detector-{kind.__name__}", daemon=True).start()

    def show(self, job: JobView) -> list[Evidence]:
        """Return its findings, and set the job for its next check."""
        with self._changed:
            found, self._found, self._view = self._found, [], job
            self._changed.notify()
        return found

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            detector = self._kind()
            while (view := self._next()) is not None:
                found = list(islice(detector.look(view), MOST + 1))
                if len(found) > MOST:
                    raise ValueError(service_jobs.FLOOD(most=MOST))
                for evidence in found:
                    if not (isinstance(evidence, Evidence) and FIRST_TIME < evidence.happened < LAST_TIME):
                        raise ValueError(service_jobs.NOT_EVIDENCE(evidence=repr(evidence)))
                with self._changed:
                    self._found = found
                    self._changed.wait_for(lambda: self._closed, detector.every)
        except Exception as error:  # any exception of a third-party detector disables only this detector
            name = f"{self._kind.__module__}.{self._kind.__qualname__}"
            self.failed = service_jobs.DETECTOR_LEFT_OUT(detector=name, reason=f"{type(error).__name__}: {error}")

    def _next(self) -> JobView | None:
        """Wait until the findings were taken and there is a newer view; None: the detector was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._view is not None and not self._found))
            view, self._view = self._view, None
            return None if self._closed else view
