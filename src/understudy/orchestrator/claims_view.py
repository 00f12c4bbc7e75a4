"""Floating spares in status and report: nodes that a job has claimed from the scheduler. As `views.py`, plain JSON values."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from understudy.core import floating
from understudy.core.state import JobState


class ClaimStatus(TypedDict):
    """A node that was requested from the scheduler, and has not been returned."""

    claim: Annotated[int, Field(description="number of the claim; numbers are not reused")]
    rank: Annotated[int, Field(description="rank for which it was requested")]
    reason: Annotated[str, Field(description="reason of the claim")]
    node: Annotated[str | None, Field(description="node that serves it; null: none yet")]
    ranks: Annotated[list[int], Field(description="ranks on this node")]


class FloatingStatus(TypedDict):
    """Spares that the job claims when it needs them, and returns."""

    most: Annotated[int, Field(description="nodes that may be claimed at a time")]
    asked: Annotated[int, Field(description="number of requests so far")]
    claims: Annotated[list[ClaimStatus], Field(description="open claims, in the order of their requests")]
    said: Annotated[str, Field(description="latest message of the scheduler, about a claim that it could not fulfil or has ended")]


def floating_spares(state: JobState) -> FloatingStatus:
    claims = [
        ClaimStatus(
            claim=claim.number,
            rank=claim.rank,
            reason=claim.reason,
            node=claim.node or None,
            ranks=sorted(worker.rank for worker in state.nodes[claim.node].workers.values() if worker.rank >= 0) if claim.node else [],
        )
        for claim in floating.open_claims(state)
    ]
    return FloatingStatus(most=state.spec.floating, asked=state.claimed, claims=claims, said=state.scheduler_message)
