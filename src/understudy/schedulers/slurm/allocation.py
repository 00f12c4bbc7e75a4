"""The nodes of a step of a Slurm job.

A user may shrink a job, write its comment and cancel it; only an administrator may change the state of a node (`AdminLevel=Admin`; an
operator may not). Measured with Slurm 22.05 (docs/operate/slurm.md): in a job that was started with `--no-kill`, a node that is gone leaves
the job by itself once Slurm considers it down, and `srun` is informed. `srun` waits forever for the task of a node that is removed from the
job before that, and treats a task that is killed as a failure of the job. So our task is ended first (`leave.py`), and a node on which that
is impossible is left to Slurm. If the batch script's own node is lost, only Understudy ends the job: Slurm keeps it until its time limit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from understudy.common.bounds import plain
from understudy.messages import slurm
from understudy.schedulers.base import TAKEN, Allocation, ClaimedNode, NodeSeen, SchedulerFailed, Work
from understudy.schedulers.slurm import commands, secret
from understudy.schedulers.slurm.claims import Claims
from understudy.schedulers.slurm.step import Step

TROUBLE = {
    "draining": "drain",
    "drained": "drain",
    "failing": "fail",
    "fail": "fail",
    "down": "down",
    "error": "down",
    "inval": "down",
}  # of a node's state, what it means: work should leave it
SILENT = "not-responding"  # its slurmd does not answer: Slurm will consider it down if that lasts
FLAGS = "*~#!%$@^-+"  # suffixes of a state
SELDOM = 30  # calls of `look` between two that query the job's nodes although none is in trouble
MOST = 1000  # characters of a comment
OURS = "understudy: "


class SlurmAllocation(Allocation):
    def __init__(self, step: Step, options: Sequence[str] = ()) -> None:
        """Create the allocation. `options`: further ones of `sbatch`, for claimed nodes."""
        self._step = step
        self._options = options
        self.place = step.place()
        self._claims = Claims(step, options)
        self._nodes: tuple[str, ...] | None = None  # of the job, at the last query
        self._released: set[str] = set()
        self._looks = 0
        self._comment: str | None = None  # a comment of the user or a site's plugin, before ours

    def share(self, secret_: str) -> None:
        secret.share(self._step.job, self._step.name, secret_)

    def shared(self, seconds: float) -> str:
        return secret.shared(self._step.name, seconds)

    def look(self) -> Sequence[NodeSeen]:
        there = [node for node in self.place.nodes if node not in self._released]
        seen = [_seen(line) for line in commands.nodes(there)] if there else []
        if any(node.trouble for node in seen) or self._looks % SELDOM == 0:
            self._nodes = None
        self._looks += 1
        ours = self._of_job()
        return [
            node if node.name in ours else replace(node, trouble=TAKEN, suspect=True, reason=slurm.NODE_TAKEN(state=node.state))
            for node in seen
        ]

    def record(self, text: str) -> None:
        commands.update(self._step.address, Comment=self._with_theirs(text))

    def release(self, nodes: Collection[str], text: str) -> Sequence[str]:
        if self._step.parts > 1:  # Slurm cannot shrink a job of several components
            return []
        self._nodes = None
        batch = commands.batch_host(self._step.job)
        gone = [node for node in self._still_ours() if node in nodes and node != batch and self._leave(node)]
        rest = [node for node in self._of_job() if node not in gone]
        if gone and rest:
            commands.update(self._step.address, NodeList=",".join(rest), Comment=self._with_theirs(text))
            self._nodes = tuple(rest)
            self._released.update(gone)
        return gone

    def drain(self, nodes: Collection[str], reason: str) -> None:
        commands.drain(sorted(nodes), plain(" ".join(reason.split()))[:MOST])

    def check_claims(self) -> None:
        self._step.check_claims(self._options)

    def claim(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        self._claims.ask(number, work, {*avoid, *self._still_ours()}, near, text)

    def claims(self) -> Mapping[int, ClaimedNode]:
        return self._claims.claimed()

    def give_back(self, number: int) -> None:
        self._claims.give_back(number)

    def give_all_back(self) -> None:
        if commands.fields(self._step.job).get("JobState", "") == "RUNNING":
            return
        for number, one in self._claims.claimed().items():
            if not one.over:
                self._claims.give_back(number)

    def record_claim(self, number: int, text: str) -> None:
        self._claims.record(number, text)

    def finish(self, missing: Collection[str]) -> None:
        if commands.batch_host(self._step.job) in missing:
            commands.cancel(self._step.address)

    def _leave(self, node: str) -> bool:
        try:
            commands.run_on(
                node, self._step.job, sys.executable, "-P", "-m", "understudy.schedulers.slurm.leave", self._step.job, self._step.step
            )
        except SchedulerFailed:
            return False
        return True

    def _of_job(self) -> tuple[str, ...]:
        if self._nodes is None:
            self._nodes = commands.expand(commands.nodes_of(self._step.job))
        return self._nodes

    def _still_ours(self) -> list[str]:
        """Return the nodes of the step that the job still has: Slurm removes nodes that are down."""
        return [node for node in self.place.nodes if node in self._of_job()]

    def _with_theirs(self, text: str) -> str:
        """Return our comment after the existing one of the user or a site's plugin."""
        if self._comment is None:
            found = commands.run("squeue", "--noheader", f"--jobs={self._step.address}", "--format=%k").strip()
            self._comment = "" if found == "(null)" else found.partition(OURS)[0].rstrip(" |")
        ours = plain(OURS + text).replace('"', "'")
        return (f"{self._comment} | {ours}" if self._comment else ours)[:MOST]


def _seen(line: commands.NodeLine) -> NodeSeen:
    state = line.state.rstrip(FLAGS)
    trouble = TROUBLE.get(state, "")
    silent = line.state.endswith("*")
    reason = f": {plain(line.reason)}" if line.reason else ""
    who = f" ({plain(line.user)})" if line.user not in ("", "Unknown") and reason else ""
    description = slurm.NODE_STATE(state=line.state, reason=reason, user=who)
    return NodeSeen(line.name, line.state, trouble or (SILENT if silent else ""), bool(trouble), description, _time(line.since))


def _time(text: str) -> float:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return 0.0
