"""How a job ends that nobody can lead, because its orchestrator cannot read the journal: as far as its node can know that.

Training needs no orchestrator, but its end does: ranks that have finished wait for the others. Where all ranks are on this node, its agent
knows when they have. A rank whose script has failed ends the job, as with an orchestrator; one that is lost is not replaced, and the
others wait for it, until the journal is restored or the limit of a node that nobody leads is over. On several nodes no agent knows of all
ranks, and that limit ends each.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from understudy.agent.shutdown import End
from understudy.agent.worker import Worker
from understudy.common.page_view import Activity
from understudy.messages import agents


def end_of(workers: Iterable[Worker], world_size: int) -> End | None:
    """The job's end, if it is there. `world_size`: of the job, all of whose ranks may be elsewhere."""
    finished = set()
    for worker in workers:
        if worker.rank < 0:
            continue
        if worker.failed:
            return End(1, agents.FAILED_UNLED(worker=worker.label), signal.SIGTERM)
        view = worker.look() if worker.alive else None
        if worker.finished and (view is None or view.activity is Activity.FINISHED):  # a rank may have been called back
            finished.add(worker.rank)
    return End(0, agents.FINISHED_UNLED(ranks=world_size), patient=True) if len(finished) == world_size else None
