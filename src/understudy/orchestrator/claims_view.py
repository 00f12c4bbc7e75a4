"""What status and report say of floating spares: nodes that a job has claimed from the scheduler. As `views.py`, plain JSON values."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from understudy.core import floating
from understudy.core.state import JobState


class ClaimStatus(TypedDict):
    """A node that was asked for from the scheduler, and is not given back."""

    claim: Annotated[int, Field(description="its number; numbers are not used again")]
    rank: Annotated[int, Field(description="for which it was asked for")]
    reason: Annotated[str, Field(description="why")]
    node: Annotated[str | None, Field(description="that serves it; null: none has come yet")]
    ranks: Annotated[list[int], Field(description="that are on this node")]


class FloatingStatus(TypedDict):
    """Spares that the job claims when it needs them, and gives back."""

    most: Annotated[int, Field(description="nodes that may be claimed at a time")]
    asked: Annotated[int, Field(description="how often one was asked for")]
    claims: Annotated[list[ClaimStatus], Field(description="that are not over, in the order in which they were asked for")]
    said: Annotated[str, Field(description="what the scheduler has said last, of a claim that it could not fulfil or has ended")]


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
    return FloatingStatus(most=state.spec.floating, asked=state.claimed, claims=claims, said=state.scheduler_said)
