"""Apply a policy to evidence, piece by piece. Pure: times are passed in, in unix seconds.

Repeated evidence is one thing: evidence about the same part of the same node by the same rule keeps one taint, whose end is postponed.
So evidence that comes and goes moves a rank once and not ten times.

The next orchestrator that leads counts the entries of the journal (`orchestrator.detection`), and so reaches the same decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from understudy.detectors.base import LEFT_OUT, Evidence, Severity, Subject
from understudy.messages import policies
from understudy.policy.rules import Action, Limits, Policy, Rule

HOUR = 3600.0
MOST = 10_000  # things that are counted at the same time: a detector may name any number of parts


@dataclass(frozen=True)
class Decision:
    action: Action
    evidence: Evidence
    node: str  # the subject's node
    rule: str  # its name; "" if none matches
    until: float  # unix time at which a taint ends; 0: when an operator removes it
    why: str  # for a person: the observation, its detector, and the rule
    over: bool = False  # it has ended, and so does what followed from it


@dataclass(frozen=True)
class PolicyContext:
    """The state of a job, as far as limits depend on it."""

    now: float
    left: Sequence[float] = ()  # unix times at which ranks began to leave a node
    leaving: Collection[str] = ()  # failure domains that ranks are leaving
    spares: int = 0  # warm ones on trusted nodes, and nodes that may be claimed


class Engine:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[tuple[str, str, str], deque[float]] = {}  # rule, node, part: times, the newest last

    def decide(self, evidence: Evidence, nodes: Mapping[str, str], now: float, *, again: bool = False) -> Decision:
        """Return what follows from a piece of evidence. `nodes`: the node of each worker. `again`: it was counted before."""
        node = nodes.get(evidence.name, "") if evidence.subject is Subject.WORKER else evidence.name
        itself = evidence.kind == LEFT_OUT  # about the detector itself, not about the node
        rule = next((rule for rule in self._policy.rule if rule.fits(evidence, node)), None) if not itself else None
        seen = {"detail": evidence.detail, "detector": evidence.detector}
        if rule is None:
            return Decision(Action.NOTE, evidence, node, "", 0.0, policies.NO_RULE(**seen))
        ended = 0 < evidence.until <= now
        until = (evidence.until if ended else now) + rule.hold if rule.hold is not None else evidence.until
        if 0 < until <= now:
            return Decision(Action.NOTE, evidence, node, rule.name, 0.0, policies.IS_OVER(**seen), over=True)
        times = self._count(rule, node, evidence, again)
        if len(times) < rule.after:
            often = {"times": len(times), "after": rule.after, "within": rule.within}
            why = policies.NOT_OFTEN_ENOUGH(rule=rule.name, **seen, **often)
            return Decision(Action.NOTE, evidence, node, rule.name, 0.0, why)
        return Decision(rule.action, evidence, node, rule.name, until, policies.DECIDED(rule=rule.name, **seen))

    def _count(self, rule: Rule, node: str, evidence: Evidence, again: bool) -> deque[float]:
        key = rule.name, node, evidence.part or evidence.name
        if key not in self._seen and len(self._seen) >= MOST:
            del self._seen[next(iter(self._seen))]
        times = self._seen.setdefault(key, deque(maxlen=1000))
        if not again and (not times or evidence.happened > times[-1]):
            times.append(evidence.happened)
        while times and times[0] < evidence.happened - rule.within:
            times.popleft()
        return times


def held_back(limits: Limits, context: PolicyContext, domain: str) -> str:
    """Return why no rank may start to leave a node of that failure domain now; "" if one may."""
    clock = datetime.fromtimestamp(context.now, UTC)
    minute = clock.hour * 60 + clock.minute
    for first, last in limits.quiet_hours:
        if first <= minute < last if first < last else minute >= first or minute < last:
            return policies.QUIET_HOURS(clock=f"{clock:%H:%M}")
    recent = sum(then > context.now - HOUR for then in context.left)
    if recent >= limits.nodes_per_hour:
        return policies.ENOUGH_AN_HOUR(count=recent, most=limits.nodes_per_hour)
    others = {other for other in context.leaving if other != domain}
    if len(others) >= limits.domains_at_a_time:
        return policies.OTHERS_LEAVE(domains=", ".join(sorted(others)), most=limits.domains_at_a_time)
    if context.spares - 1 < limits.spares_left:
        return policies.TOO_FEW_SPARES(spares=context.spares, least=limits.spares_left)
    return ""


def explain(policy: Policy) -> list[str]:
    """Explain the policy in sentences, for a person."""
    lines = [f"{number}. {_sentence(rule)}" for number, rule in enumerate(policy.rule, 1)]
    lines.append("What fits none of them is a note: it is reported once, and nothing is done.")
    limits = policy.limits
    quiet = ", ".join(f"{a // 60:02}:{a % 60:02} to {b // 60:02}:{b % 60:02} UTC" for a, b in limits.quiet_hours)
    lines.append(
        f"Ranks begin to leave at most {limits.nodes_per_hour} node(s) in an hour, of {limits.domains_at_a_time} failure domain(s) at a "
        f"time, each only if {limits.spares_left} warm spare(s) on trusted nodes are left then"
        + (f"; none in quiet hours ({quiet})." if quiet else ".")
    )
    trust = policy.trust
    check = " when it has passed understudy check-node, unless ranks of the job are there" if trust.check else " at once"
    lines.append(f"A node whose taints have ended is trusted again{check}.")
    if trust.return_home:
        lines.append(f"When it has been trusted for {trust.after:g} s, the ranks that were started there go back, one after the other.")
    elif policy.scheduler.release:
        drained = ", and drained there," if policy.scheduler.drain else ""
        lines.append(
            f"In a job whose nodes a scheduler has given, one that ranks have left for good, or that is lost{drained} goes back to it."
        )
    return lines


_DONE = {
    Action.NOTE: "it is reported",
    Action.TAINT: "the node gets no more ranks and spares",
    Action.LEAVE: "the node gets no more ranks and spares, and its ranks leave it",
    Action.LOST: "the worker, or who computes on the device, is ended and its rank goes to a spare",
}


def _sentence(rule: Rule) -> str:
    what = [f"detector {rule.detector}"] if rule.detector != "*" else []
    what += [f"kind {rule.kind}"] if rule.kind != "*" else []
    what += [f"on nodes {rule.node}"] if rule.node != "*" else []
    what += [f"about a {' or '.join(sorted(rule.subject))}"] if rule.subject != frozenset(Subject) else []
    what += [f"of severity {' or '.join(sorted(rule.severity))}"] if rule.severity != frozenset(Severity) else []
    often = f", seen {rule.after} times within {rule.within:g} s" if rule.after > 1 else ""
    held = f" for {rule.hold:g} s after the last time" if rule.hold is not None and rule.action in (Action.TAINT, Action.LEAVE) else ""
    moves = rule.action is Action.LEAVE and rule.subject == {Subject.WORKER}
    return f"{rule.name}: {', '.join(what) or 'anything'}{often}: {'its rank moves to a spare' if moves else _DONE[rule.action] + held}."
