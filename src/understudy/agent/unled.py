"""Detect the end of a job without an orchestrator (the journal cannot be read), as far as this node can know it.

Training needs no orchestrator, but the end of the job does: ranks that have finished wait for the others. If all ranks are on this node,
its agent knows when they have finished. A rank whose script has failed ends the job, as with an orchestrator. A lost rank is not replaced,
and the others wait for it until the journal is restored or the limit of a node without an orchestrator is over. With several nodes no agent
knows of all ranks, and that limit ends each.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from understudy.agent.shutdown import End
from understudy.agent.worker import Worker
from understudy.common.page_view import Activity
from understudy.messages import agents


def end_of(workers: Iterable[Worker], world_size: int) -> End | None:
    """Return the job's end, if it is reached. `world_size`: of the job, all of whose ranks may be on other nodes."""
    finished = 0
    for worker in _holders(workers).values():
        if worker.failed and worker.alive and not worker.fenced:  # it waits to be ended. One that has ended counted as a loss
            return End(1, agents.FAILED_UNLED(worker=worker.label), signal.SIGTERM)
        view = worker.look() if worker.alive else None
        finished += worker.finished and (view is None or view.activity is Activity.FINISHED)  # a rank may have been called back
    return End(0, agents.FINISHED_UNLED(ranks=world_size), patient=True) if finished == world_size else None


def _holders(workers: Iterable[Worker]) -> dict[int, Worker]:
    """Return, by rank, the worker on this node that counts.

    It is the last one that was given the rank; or, while that one only sets up for a migration, the one that still trains.
    """
    found: dict[int, Worker] = {}
    for worker in sorted(workers, key=lambda worker: worker.replay_buffer.generation):  # stable
        migrated = worker.leaving and not (worker.finished or worker.failed)
        if worker.rank < 0 or migrated:
            continue
        before = found.get(worker.rank)
        if before is None or not before.alive or before.leaving or before.fenced:
            found[worker.rank] = worker
    return found
