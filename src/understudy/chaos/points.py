"""The points of a worker's life at which a fault inside it can happen. `worker.fault_injection.chaos` is where they are reached."""

from __future__ import annotations

POINTS = {
    "setup": "a first worker begins its script",
    "forward": "a step begins",
    "evaluation": "a section, such as an evaluation, begins",
    "backward": "inside backward, as it begins",
    "reduced": "backward is done, the vote has not begun",
    "vote": "the vote of a step begins",
    "vote copies": "its copies are with the buddies",
    "vote agreement": "its first message of the agreement is sent",
    "vote passed": "it has passed here; others may still wait in it",
    "section vote": "the same for a section",
    "section vote copies": "the same for a section",
    "section vote agreement": "the same for a section",
    "section vote passed": "the same for a section",
    "apply": "behind the vote, before the optimizer steps",
    "applied": "the optimizer has stepped",
    "between": "between two transactions",
    "quiesce": "a survivor has noticed a loss, and not answered yet",
    "attach": "a member connects to the new generation",
    "donate": "a donor is about to send its state",
    "newcomer": "a newcomer begins its script",
    "transfer": "a newcomer has received half of its state",
    "verify": "a newcomer has received its state, and not verified it",
    "verified": "a newcomer has said that its state is right",
    "attached": "a newcomer is attached",
}
