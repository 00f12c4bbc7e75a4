"""Floating spares: nodes that a job asks the scheduler for and gives back."""

from __future__ import annotations

from understudy.messages.base import Message

_REFUSED = "node {node} was refused: "

UNAWARE = Message(
    "US4400",
    f"{_REFUSED}it is claimed, but its agent does not know that",
    cause="An agent without a claim has connected under the name of a node that serves a claim.",
    remedy="End that agent, or give it another node name.",
)
CLAIM_OVER = Message(
    "US4401",
    f"{_REFUSED}claim {{claim}} has ended, or never existed",
    cause="The node was started for a claim that the job has returned, or that was made by an orchestrator that was killed. It is "
    "returned.",
)
CLAIM_SERVED = Message(
    "US4402",
    f"{_REFUSED}node {{other}} serves claim {{claim}}",
    cause="Two nodes connected for one claim. The first one keeps it.",
    remedy="End the second node if the scheduler has started the same request twice.",
)
ALREADY_THERE = Message(
    "US4403",
    f"{_REFUSED}the job already has it, or has lost it",
    cause="The scheduler assigned a node that this job already uses, or that it has lost.",
)
JOINED = Message(
    "US4404",
    "node {node} has joined for claim {claim}",
    cause="The scheduler assigned a node that the job had requested.",
)
NOT_FULFILLED = Message(
    "US4405",
    "claim {claim} is not fulfilled: {detail}",
    cause="The scheduler cannot assign a node that the job has requested.",
    remedy="Read the detail. As long as a node is needed, it is requested again after a pause.",
)
FOR_LOST_RANK = Message(
    "US4406",
    "rank {rank} is lost, and no spare is left for it",
    cause="The job needs one more node for this rank, and requests it from the scheduler.",
)
FOR_LEAVING_RANK = Message(
    "US4407",
    "rank {rank} is to leave its node, and no other trusted node has a spare",
    cause="The job needs one more node for this rank, and requests it from the scheduler.",
)
ASKED_FOR = Message(
    "US4408",
    "a node is requested from the scheduler (claim {claim}): {why}",
    cause="The job has too few spares for its ranks, and may claim nodes (--floating-spares).",
)
OWN_SPARE = Message(
    "US4409",
    "node {node} is claimed, and the job has a spare on its own nodes",
    cause="A rank on a claimed node moves to a spare on the job's own nodes, so that the claimed node can be returned.",
)
NOT_NEEDED = Message(
    "US4410",
    "claim {claim} is no longer needed",
    cause="The job requested a node and no longer needs it. The request is cancelled.",
)
NODE_NOT_NEEDED = Message(
    "US4411",
    "claim {claim} is no longer needed: node {node} is returned",
    cause="A claimed node has no rank, and no rank needs it.",
)
NODE_USELESS = Message(
    "US4412",
    "claim {claim} is useless, as no spare becomes warm there: node {node} is returned",
    cause="The scheduler assigned a node on which no spare becomes warm. Another one is requested after a pause.",
    remedy="Read the spares' output in the run directory, and check that node.",
)
