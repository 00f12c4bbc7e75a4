"""Floating spares: nodes that a job asks the scheduler for and gives back."""

from __future__ import annotations

from understudy.messages.base import Message

_REFUSED = "node {node} was refused: "

UNAWARE = Message(
    "US4400",
    f"{_REFUSED}it is claimed, and its agent does not know that",
    cause="An agent has connected without a claim under the name of a node that serves a claim.",
    remedy="End that agent, or give it another node name.",
)
CLAIM_OVER = Message(
    "US4401",
    f"{_REFUSED}claim {{claim}} is over, or never was",
    cause="The node was started for a claim that the job has given back, or that an orchestrator made which was killed. It is given back.",
)
CLAIM_SERVED = Message(
    "US4402",
    f"{_REFUSED}node {{other}} serves claim {{claim}}",
    cause="Two nodes speak for one claim. The first one keeps it.",
    remedy="If the scheduler has started the same request twice, end the second one.",
)
ALREADY_THERE = Message(
    "US4403",
    f"{_REFUSED}the job has it already, or has lost it",
    cause="The scheduler has given a node that this job uses already, or that it has lost.",
)
JOINED = Message(
    "US4404",
    "node {node} has joined for claim {claim}",
    cause="The scheduler has given a node that the job had asked for.",
)
NOT_FULFILLED = Message(
    "US4405",
    "claim {claim} is not fulfilled: {detail}",
    cause="The scheduler cannot give a node that the job has asked for.",
    remedy="Look at the detail. As long as a node is needed, it is asked for again after a pause.",
)
FOR_LOST_RANK = Message(
    "US4406",
    "rank {rank} is lost, and no spare is left for it",
    cause="The job needs one more node for this rank, and asks the scheduler for it.",
)
FOR_LEAVING_RANK = Message(
    "US4407",
    "rank {rank} is to leave its node, and no other that is trusted has a spare",
    cause="The job needs one more node for this rank, and asks the scheduler for it.",
)
ASKED_FOR = Message(
    "US4408",
    "a node is asked for from the scheduler (claim {claim}): {why}",
    cause="The job has too few spares for its ranks, and may claim nodes (--floating-spares).",
)
OWN_SPARE = Message(
    "US4409",
    "node {node} is claimed, and the job has a spare of its own",
    cause="A rank on a claimed node moves to a spare of the job's own, so that the node can be given back.",
)
NOT_NEEDED = Message(
    "US4410",
    "claim {claim} is not needed any more",
    cause="The job has asked for a node and does not need it any more. The request is cancelled.",
)
NODE_NOT_NEEDED = Message(
    "US4411",
    "claim {claim} is not needed any more: node {node} is given back",
    cause="A claimed node has no rank, and no rank needs one.",
)
NODE_USELESS = Message(
    "US4412",
    "claim {claim} is of no use, as no spare comes up there: node {node} is given back",
    cause="The scheduler has given a node on which no spare becomes warm. Another one is asked for after a pause.",
    remedy="Read what the spares printed, in the run directory, and check that node.",
)
