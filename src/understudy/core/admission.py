"""Check a node before it is trusted again (`JobSpec.admission`).

    begin      its last taint has ended, and the job has no rank there: its own taint replaces it, and the agent runs the node's check
    checked    if the check passed, this taint ends, too; otherwise it stays with the reason, and the check is repeated after a while

A node on which the job still has ranks is in use anyway, and a check would take its processors: it is trusted without one. So is a node
that an operator marks as trusted.
"""

from __future__ import annotations

from dataclasses import replace

from understudy.core.commands import CheckNode
from understudy.core.drain import ranks_on
from understudy.core.events import NodeChecked
from understudy.core.state import CHECK, JobState, Node, Taint
from understudy.core.transitions import RefusalReason
from understudy.messages import moves

TIMER = "check"
AGAIN = 600.0  # seconds from a check that failed, or did not report, to the next one


def begin(state: JobState, node: Node, by: str) -> bool:
    """Return whether `node`, which has no taint any more, has to pass its check, and begin it. `by`: the authority of its last taints."""
    if not state.spec.admission or ranks_on(state, node):
        return False
    node.taints[CHECK] = Taint(CHECK[0], moves.TO_BE_CHECKED(), by=by)
    state.report(moves.CHECKED_FIRST(node=node.name))
    ask(state, node)
    return True


def ask(state: JobState, node: Node) -> None:
    """Ask the agent of the node for the check, also after a reconnect."""
    if CHECK in node.taints and not node.lost:
        state.emit(CheckNode(node.name))
        state.timer(TIMER, AGAIN)


def settle(state: JobState) -> None:
    """Begin or end checks after a taint or a node has gone."""
    if not any(CHECK in node.taints and not node.lost for node in state.nodes.values()):
        state.cancel(TIMER)


def again(state: JobState) -> None:
    for node in state.nodes.values():
        ask(state, node)


def passed(state: JobState, event: NodeChecked) -> Node | None:
    """Return the node if it was waiting for this check and has passed it."""
    node = state.nodes.get(event.node)
    known = node.taints.get(CHECK) if node is not None else None
    if node is None or known is None:
        state.ignore(event, RefusalReason.UNKNOWN if node is None else RefusalReason.OVER)
        return None
    if event.passed:
        return node
    node.taints[CHECK] = replace(known, reason=moves.CHECK_FAILED(detail=event.detail))
    state.report(moves.NOT_TRUSTED(node=node.name, detail=event.detail, minutes=AGAIN / 60))
    return None
