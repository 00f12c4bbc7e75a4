"""Evidence of what the core decides by itself: a node is silent (`heartbeat`), a rank's state is not its replicas' (`corrupt`), a device
failed under its rank (`device-error`).

What has to be done at once the core does, whatever a policy says: the ranks of a silent node are lost, a corrupt rank is replaced and its
node tainted, a rank without its device is replaced and the device tainted. The evidence is journalled like any other, and the policy may do
more: keep a node that was silent away for a while, have all ranks leave a node of which one was corrupt. It cannot do less.
"""

from __future__ import annotations

from understudy.core.events import LostNode
from understudy.core.state import CORRUPT, DEVICE, OURS, JobState
from understudy.detectors.base import Evidence, Severity, Subject

HEARTBEAT = "heartbeat"
_KINDS = {CORRUPT: "replica", DEVICE: "failed"}  # source of a taint -> kind of its evidence
RESERVED = OURS | {HEARTBEAT}  # what no other detector can call itself


def silence(lost: LostNode, now: float) -> Evidence:
    """It is over when it is told: the node is lost, or it is back and was started anew. A rule's `hold` makes it last."""
    return Evidence(HEARTBEAT, Subject.NODE, lost.node, Severity.LOST, lost.detail, lost.happened or now, "silent", until=now)


def tainted(state: JobState, now: float) -> list[Evidence]:
    """What the core has tainted by itself, as far as the journal has no evidence of it: nodes of corrupt ranks, and devices that failed."""
    known = {(seen.detector, seen.name, seen.part): seen.detail for seen in state.evidence.values()}
    found = []
    for node in state.nodes.values():
        for taint in (*node.taints.values(), *node.device_taints.values()):
            if taint.source in _KINDS and known.get((taint.source, node.name, taint.part)) != taint.reason:
                subject, kind = (Subject.DEVICE if taint.part else Subject.NODE), _KINDS[taint.source]
                found.append(Evidence(taint.source, subject, node.name, Severity.LOST, taint.reason, now, kind, taint.part))
    return found
