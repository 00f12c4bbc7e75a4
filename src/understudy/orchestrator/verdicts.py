"""Make evidence of the core's own findings.

They are: a node is silent (`heartbeat`), a rank's state differs from its replicas (`corrupt`), a device failed under its rank
(`device-error`).

The core does the urgent part, whatever the policy: the ranks of a silent node are lost, a corrupt rank is replaced and its node tainted,
a rank without its device is replaced and the device tainted. The evidence is journalled like any other, and the policy may do more, but not
less: keep a node that was silent tainted for a while, or let all ranks leave a node on which one was corrupt.
"""

from __future__ import annotations

from understudy.core.events import LostNode
from understudy.core.state import CORRUPT, DEVICE, OURS, JobState
from understudy.detectors.base import Evidence, Severity, Subject

HEARTBEAT = "heartbeat"
_KINDS = {CORRUPT: "replica", DEVICE: "failed"}  # source of a taint -> kind of its evidence
RESERVED = OURS | {HEARTBEAT}  # names that no other detector can have


def silence(lost: LostNode, now: float) -> Evidence:
    """Return the evidence of a silent node. It ends at once: the node is lost, or it is back with new workers. A rule's `hold`
    extends it.
    """
    return Evidence(HEARTBEAT, Subject.NODE, lost.node, Severity.LOST, lost.detail, lost.happened or now, "silent", until=now)


def tainted(state: JobState, now: float) -> list[Evidence]:
    """Return evidence of the core's own taints that the journal does not have yet: nodes of corrupt ranks, and devices that failed."""
    known = {(seen.detector, seen.name, seen.part): seen.detail for seen in state.evidence.values()}
    found = []
    for node in state.nodes.values():
        for taint in (*node.taints.values(), *node.device_taints.values()):
            if taint.source in _KINDS and known.get((taint.source, node.name, taint.part)) != taint.reason:
                subject, kind = (Subject.DEVICE if taint.part else Subject.NODE), _KINDS[taint.source]
                found.append(Evidence(taint.source, subject, node.name, Severity.LOST, taint.reason, now, kind, taint.part))
    return found
