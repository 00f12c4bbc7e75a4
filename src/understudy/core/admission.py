"""A node that was not trusted passes a check before it is again (`JobSpec.admission`): it has been repaired, or says so.

    begin      its last taint has ended, and the job has no rank there: another takes its place, and its agent is asked to check the node
    checked    it has passed: that taint goes, too. It has not: it stays, and says why, and the check is made again after a while

A node on which the job still has ranks serves anyway, and a check would take its processors: it is trusted without one. So is one of which
a person says that it is to be trusted.
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
AGAIN = 600.0  # seconds from a check that was not passed, or of which nothing is heard, to the next one


def begin(state: JobState, node: Node, by: str) -> bool:
    """Whether `node`, which has no taint any more, has to pass its check. `by`: of the taint, as of the last ones."""
    if not state.spec.admission or ranks_on(state, node):
        return False
    node.taints[CHECK] = Taint(CHECK[0], moves.TO_BE_CHECKED(), by=by)
    state.report(moves.CHECKED_FIRST(node=node.name))
    ask(state, node)
    return True


def ask(state: JobState, node: Node) -> None:
    """Once more, to an agent that has connected again, too."""
    if CHECK in node.taints and not node.lost:
        state.emit(CheckNode(node.name))
        state.timer(TIMER, AGAIN)


def settle(state: JobState) -> None:
    """After a taint has gone, or a node."""
    if not any(CHECK in node.taints and not node.lost for node in state.nodes.values()):
        state.cancel(TIMER)


def again(state: JobState) -> None:
    for node in state.nodes.values():
        ask(state, node)


def passed(state: JobState, event: NodeChecked) -> Node | None:
    """The node, if it waits for this check and has passed it."""
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
