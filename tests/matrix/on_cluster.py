"""Rows of the covering array in a job on a cluster: faults that are armed inside its workers, and nodes that lose their power.

A job serves rows one after the other, each once all ranks train and a spare is warm. A node that is lost is the last one of its job, since
its spare node is gone then, and no worker is lost before it, or else the node could have two ranks and all spares. The run directories
of all nodes share one folder of armed faults (`shared`), so that a fault finds its rank wherever that is, and strikes once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tests.integration.processes import wait_until
from tests.integration.training import LONG
from tests.matrix import covering
from tests.matrix.cells import FIRST, IN_STEP, MIGRATION, RANKS, RECOVERY, SHORT, SURVIVOR
from tests.matrix.covering import NODE_LOST, Row
from tests.matrix.run import last_step, log_of
from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.chaos.base import SECONDS, Outcome
from understudy.chaos.registry import registry

HANG_LIMIT = 20  # seconds; also for how long broken connections are waited for until a loss explains them
BEYOND = 2  # steps that all ranks commit after a row
DONATE = "donate"  # the point of a planned migration


class ClusterJob(Protocol):
    """The interface of a job on a cluster to the rows that it serves."""

    @property
    def out(self) -> Path:
        """The folder with the logs of its ranks."""
        ...

    def shared(self) -> Path:
        """The folder whose `chaos` all its nodes have as theirs."""
        ...

    def is_whole(self) -> bool:
        """Whether every rank trains and a spare is warm."""
        ...

    def wait_until(self, condition: object, what: str) -> None: ...

    def migrate(self, rank: int) -> None: ...

    def turn_off_node_of(self, rank: int) -> None: ...


def jobs(scheduler: str) -> list[list[Row]]:
    """Return the rows of a scheduler by the jobs that serve them, one that loses a node first, with as many others as it may have."""
    rows = covering.of(scheduler)
    found: list[list[Row]] = []
    for mode in dict.fromkeys(row.mode for row in rows):
        mine = [row for row in rows if row.mode == mode]
        nodes = [[row] for row in mine if row.kind == "node"]
        replaced = [row for row in mine if row.kind != "node" and losses([row])]
        others = [row for row in mine if row.kind != "node" and not losses([row])]
        (nodes[0] if nodes else replaced)[:0] = others
        found += [job for job in (*nodes, replaced) if job]
    return sorted(found, key=lambda job: (job[-1].kind != "node", -len(job)))


def name(rows: Iterable[Row]) -> str:
    """Return the id of a job for pytest."""
    return "; ".join(f"{row.fault} in {row.phase}" for row in rows)


def serve(job: ClusterJob, rows: list[Row]) -> None:
    """Let each row happen. The caller compares the whole job with the undisturbed run afterwards."""
    folder = Folder(job.shared())
    for number, row in enumerate(rows):
        job.wait_until(job.is_whole, f"a whole job before {row.name}")
        _strike(job, folder, row, number)
        after = _committed(job) + BEYOND
        job.wait_until(lambda after=after: _committed(job) >= after, f"step {after}, after {row.name}")


def losses(rows: Iterable[Row]) -> int:
    """Return how many workers or nodes are lost by these rows, the first loss of a recovery included."""
    ends = [row.fault == NODE_LOST or registry().find(row.fault).expected is Outcome.REPLACED for row in rows]
    return sum(ends) + sum(row.phase in RECOVERY for row in rows)


def _strike(job: ClusterJob, folder: Folder, row: Row, number: int) -> None:
    point = IN_STEP.get(row.phase) or RECOVERY.get(row.phase) or DONATE
    rank = (SURVIVOR if row.phase == "attach" else FIRST) if row.phase in RECOVERY else number % RANKS
    fault = f"{number}"
    if row.fault == NODE_LOST:
        folder.arm(Armed(fault, HOLD, rank, point))
    else:
        given = {SECONDS: SHORT[row.fault]} if row.fault in SHORT else {}
        folder.arm(Armed(fault, row.fault, rank, point, values=registry().find(row.fault).values(given)))
    if row.phase in RECOVERY:  # brought about by another loss
        folder.arm(Armed(f"{number}-before", "sigkill", FIRST, "forward"))
    elif row.phase == MIGRATION:
        job.migrate(rank)
    wait_until(lambda: folder.has_fired(fault), row.name, LONG)
    if row.fault == NODE_LOST:
        job.turn_off_node_of(rank)
        folder.disarm(fault)


def _committed(job: ClusterJob) -> int:
    """Return the last step that every rank has logged."""
    return min(last_step({0: log_of(job.out / f"log-{rank}.txt")}) for rank in range(RANKS))
