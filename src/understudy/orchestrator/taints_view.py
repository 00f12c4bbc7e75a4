"""Nodes that are not trusted, in the status: their taints, the evidence, and the progress of drains. As `views.py`, plain JSON values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from understudy.core import drain
from understudy.core.state import DRAIN, JobState, Node

NodeName = Annotated[str, Field(description="name of the node")]
Until = Annotated[float | None, Field(description="unix time at which it expires; null: never")]


class TaintStatus(TypedDict):
    """The reason why a node is not trusted, from one source."""

    node: NodeName
    source: Annotated[str, Field(description="source: `operator`, `drain`, `check` (the node must pass its check first), or a detector")]
    part: Annotated[str, Field(description="part of the node, such as a GPU; empty: the node itself")]
    device: Annotated[
        str, Field(description="the device to which the taint is limited, if ranks are known to compute on it; empty: the whole node")
    ]
    reason: Annotated[str, Field(description="the evidence and the rule of the policy, or the reason given by a person")]
    until: Until
    leave: Annotated[bool, Field(description="whether ranks are to leave the node")]
    by: Annotated[
        str,
        Field(
            description="`service`: set by a person for all jobs, and removed only with a token for all jobs; `job`: set for this "
            "job only; empty: set by Understudy itself, and a service places no new job on the node"
        ),
    ]


class DrainStatus(TypedDict):
    """The progress of the drain of a node for this job."""

    node: NodeName
    reason: Annotated[str, Field(description="reason of the request")]
    stage: Annotated[
        str,
        Field(
            description="`draining`; `late`: its deadline has passed, and ranks that are there stay there; `drained`: no ranks, spares "
            "or processes of the job are left"
        ),
    ]
    ranks: Annotated[list[int], Field(description="ranks that are still there")]
    workers: Annotated[list[str], Field(description="workers whose processes have not ended")]
    deadline: Annotated[float | None, Field(description="unix time; null: there is none, or it has passed")]
    then: Annotated[str, Field(description="`keep` or `lose`: action for ranks that are still there at the deadline")]
    waits_for: Annotated[str, Field(description="why no rank is leaving now; empty if a rank is leaving, or no rank is left")]


class EvidenceStatus(TypedDict):
    """The latest evidence of a detector, of one kind and about one subject."""

    detector: Annotated[str, Field(description="name of the detector")]
    subject: Annotated[str, Field(description="`worker`, `node`, `device` or `link`")]
    name: Annotated[str, Field(description="name of the worker or the node")]
    part: Annotated[str, Field(description="part of the node; empty: the node itself")]
    kind: Annotated[str, Field(description="kind, as in rules of a policy")]
    severity: Annotated[str, Field(description="`note`, `suspect` or `lost`")]
    detail: Annotated[str, Field(description="description")]
    happened: Annotated[float, Field(description="unix time")]
    until: Until


def taints(state: JobState) -> list[TaintStatus]:
    return [
        TaintStatus(
            node=node.name,
            source=taint.source,
            part=taint.part,
            device=taint.device,
            reason=taint.reason,
            until=taint.until or None,
            leave=taint.leave,
            by=taint.by,
        )
        for node in state.nodes.values()
        for taint in (*node.taints.values(), *node.device_taints.values())
    ]


There = Callable[[str], Collection[str] | None]  # of a node, workers whose processes have not ended; None: unknown


def drains(state: JobState, there: There) -> list[DrainStatus]:
    return [_drain(state, node, there(node.name)) for node in state.nodes.values() if DRAIN in node.taints]


def _drain(state: JobState, node: Node, known: Collection[str] | None) -> DrainStatus:
    there = () if node.lost else known
    asked = node.taints[DRAIN]
    ranks = drain.ranks_on(state, node) if state.ended is None else []
    empty = there is not None and not there and (asked.done or state.ended is not None or node.lost)
    return DrainStatus(
        node=node.name,
        reason=asked.reason,
        stage="drained" if empty else "late" if ranks and not asked.leave else "draining",
        ranks=ranks,
        workers=sorted(there or ()),
        deadline=asked.deadline or None,
        then="lose" if asked.lose else "keep",
        waits_for=drain.hindrance(state, node) if state.ended is None else "",
    )


def evidence(state: JobState) -> list[EvidenceStatus]:
    return [
        EvidenceStatus(
            detector=seen.detector,
            subject=seen.subject,
            name=seen.name,
            part=seen.part,
            kind=seen.kind,
            severity=seen.severity,
            detail=seen.detail,
            happened=seen.happened,
            until=seen.until or None,
        )
        for seen in state.evidence.values()
    ]
