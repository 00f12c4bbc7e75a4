"""Evidence of what the core decides by itself: a node is silent (`heartbeat`), a rank's state is not its replicas' (`corrupt`).

What has to be done at once the core does, whatever a policy says: the ranks of a silent node are lost, a corrupt rank is replaced and its
node tainted. The evidence is journalled like any other, and the policy may do more: keep a node that was silent away for a while, have all
ranks leave a node of which one was corrupt. It cannot do less.
"""

from __future__ import annotations

from understudy.core.events import LostNode
from understudy.core.state import CORRUPT, OURS, JobState
from understudy.detectors.base import Evidence, Severity, Subject

HEARTBEAT = "heartbeat"
RESERVED = OURS | {HEARTBEAT}  # what no other detector can call itself


def silence(lost: LostNode, now: float) -> Evidence:
    """It is over when it is told: the node is lost, or it is back and was started anew. A rule's `hold` makes it last."""
    return Evidence(HEARTBEAT, Subject.NODE, lost.node, Severity.LOST, lost.detail, lost.happened or now, "silent", until=now)


def corrupt(state: JobState, now: float) -> list[Evidence]:
    """Nodes that are tainted because a rank there was corrupt, as far as the journal has no evidence of it."""
    found = {node.name: node.taints[CORRUPT, ""].reason for node in state.nodes.values() if (CORRUPT, "") in node.taints}
    known = {seen.name: seen.detail for seen in state.evidence.values() if seen.detector == CORRUPT}
    new = {name: why for name, why in found.items() if known.get(name) != why}
    return [Evidence(CORRUPT, Subject.NODE, name, Severity.LOST, why, now, "replica") for name, why in new.items()]
