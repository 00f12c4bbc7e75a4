"""The allowed changes of a node that is left: its drain does what was requested, and it is not trusted before its check has passed.

Invariants of one state alone are in `tests.core.test_machine.check_taints`.
"""

from __future__ import annotations

from tests.model.world import Wrong
from understudy.core import drain, events
from understudy.core.state import CHECK, JobState
from understudy.core.transitions import Phase, WorkerState


def follow(before: JobState, event: events.Event, after: JobState) -> None:
    """Raises `Wrong`. `before` and `after` the event."""
    if after.ended is not None or before.phase is Phase.FORMING:  # no node can be missing then
        return
    for name, node in before.nodes.items():
        taints = after.nodes[name].taints
        if event == events.Expired(drain.TIMER) and node.drain is not None and node.drain.deadline > 0:
            there = [one for one in node.workers if after.workers[one].state not in (WorkerState.LOST, WorkerState.RELEASED)]
            holds = [one for one in there if not after.workers[one].spare or after.workers[one].rank >= 0]
            if node.drain.lose and holds:
                raise Wrong(f"{name} is past the deadline of its drain, and {', '.join(holds)} is there")
            held = [one for one, worker in node.workers.items() if worker.state is WorkerState.MEMBER]
            if not node.drain.lose and any(after.workers[one].state is WorkerState.LOST for one in held):
                raise Wrong(f"{name} is past the deadline of its drain, and what is there was to be left")
        if not before.spec.admission or name != getattr(event, "node", ""):
            continue
        failed = isinstance(event, events.NodeChecked) and not event.passed and CHECK in node.taints
        ends = isinstance(event, events.NodeTainted) and not event.reason and event.source not in ("operator", "check")
        free = bool(node.taints) and not taints and not any(after.holder(rank).node == name for rank in after.ranks)
        if (failed and CHECK not in taints) or (ends and free):
            raise Wrong(f"{name} is trusted without its check")
