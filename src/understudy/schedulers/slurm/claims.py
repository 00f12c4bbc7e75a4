"""Floating spares on Slurm: each is a separate job on one node of the same kind as the nodes of the main job.

A job with GRES cannot grow. A job of one node is scheduled like any other: at once if a node is idle, by preemption if its partition or QOS
may preempt, and else when a node is free; from the block or switch of the rank's first node, if it is there within a second, and else from
anywhere. Its comment names the main job, so that an orchestrator that takes over finds it.

It requests the resources of a node of the main job (`likeness.py`). Before an agent starts there, it compares them with what it was given:
if that is less, it ends, its comment has the reason, and the next one begins later. It ends when it is cancelled, and by itself when the
main job is over (`owner_is_over`), whatever has happened to the processes that should have cancelled it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence

from understudy.common.bounds import plain
from understudy.common.names import NEED_VARIABLE, OWNER_VARIABLE
from understudy.messages.base import code_of
from understudy.schedulers.base import ClaimedNode, SchedulerAway, SchedulerFailed, Work
from understudy.schedulers.slurm import commands, likeness, network
from understudy.schedulers.slurm.chosen import chosen, last
from understudy.schedulers.slurm.step import Step

NAME = "understudy-spare"
_MARK = re.compile(r"^understudy: spare of (\S+), claim ([0-9]{1,18});")
LATEST = 300  # seconds until the next one begins, at most, after others have rejected themselves
_NEAR = " (near its peers, if that is free)"  # in the comment of a job that is limited to near nodes so far


class Claims:
    def __init__(self, step: Step, options: Sequence[str]) -> None:
        self._step = step
        self._options = tuple(options)
        self._jobs: dict[int, str] = {}  # by claim
        self._ending: set[int] = set()  # claims whose job was cancelled and has not ended yet
        self._avoid: dict[int, list[str]] = {}  # by claim, in Slurm's notation
        self._refused: set[str] = set()  # jobs that have rejected themselves
        self._since = 0.0  # when the first of these was seen, if no agent has started on a claimed node since

    def ask(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        if number in self.claimed():
            return
        job = commands.fields(self._step.job)
        theirs = chosen(self._options)
        need = likeness.needed(self._step.job, self._step.nodes).without(theirs)
        like = likeness.options(job, self._step.count, need, theirs, time.time())
        lists = need.gres_option(named) if (named := last("gres", self._options)) else []
        without = {name: value for name, value in os.environ.items() if not name.startswith("SBATCH_")}  # they are for the user's own jobs
        around = {**without, **work.environment, OWNER_VARIABLE: self._step.job, NEED_VARIABLE: need.as_json()}
        self._avoid[number] = [*sorted(avoid), *self._excluded(job)]

        def submit(elsewhere: Sequence[str]) -> None:
            comment = self._comment(number, text + _NEAR * bool(elsewhere))
            ours = [
                f"--job-name={NAME}",
                f"--comment={comment}",
                "--no-requeue",
            ]  # the last ones count: needed to find it again
            if excluded := [*self._avoid[number], *elsewhere]:
                ours.append(f"--exclude={','.join(excluded)}")
            self._jobs[number] = commands.batch(work.command, *self._later(), *like, *self._options, *lists, *ours, around=around)

        elsewhere = network.outside(near)
        try:
            submit(elsewhere)
        except SchedulerAway:
            raise
        except SchedulerFailed:  # Slurm rejects a request that can never be fulfilled: there is no other node near
            if not elsewhere:
                raise
            submit(())

    def claimed(self) -> Mapping[int, ClaimedNode]:
        found: dict[int, ClaimedNode] = {}
        for job in commands.jobs(NAME):
            mark = _MARK.match(job.comment)
            if mark is None or mark[1] != self._step.name:
                if mark is not None and job.state not in commands.OVER and self._step.was(mark[1]):
                    commands.cancel(job.number)
                continue
            number = int(mark[2])
            if job.state in commands.OVER and number in found:
                continue
            self._jobs[number] = job.number
            (self._ending.add if job.state == "COMPLETING" else self._ending.discard)(number)
            if job.state == "PENDING" and job.comment.endswith(_NEAR) and job.reason != "BeginTime":
                self._anywhere(number, job)
            what = f"Slurm job {job.number} {job.state.lower().replace('_', ' ')}"
            why = f" ({job.reason})" if job.reason not in ("None", "") else ""
            refused = job.comment[mark.end() :].strip()  # by itself, if that begins with a code
            if code_of(refused) and job.number not in self._refused:
                self._refused.add(job.number)
                self._since = self._since or time.monotonic()
            found[number] = ClaimedNode(job.state in commands.OVER, job.node, f"{what}: {refused}" if code_of(refused) else what + why)
        return found

    def _anywhere(self, number: int, job: commands.JobLine) -> None:
        """Extend the request to all nodes, because none near is free. If this is rejected, because it runs by now or otherwise, the next
        poll shows it.
        """
        with contextlib.suppress(SchedulerFailed):
            avoid = self._avoid.get(number) or [*commands.expand(self._step.nodes), *self._excluded(commands.fields(self._step.job))]
            commands.update(job.number, ExcNodeList=",".join(avoid), Comment=job.comment.removesuffix(_NEAR))

    def give_back(self, number: int) -> None:
        if number in self._jobs and number not in self._ending:
            commands.cancel(self._jobs[number])

    def _later(self) -> list[str]:
        """Return options for a job that may reject itself as others have: its delay is the time for which that has gone on."""
        return [f"--begin=now+{min(LATEST, int(time.monotonic() - self._since))}"] if self._since else []

    def record(self, number: int, text: str) -> None:
        self._since = 0.0
        if number in self._jobs:
            commands.update(self._jobs[number], Comment=self._comment(number, text))

    def _excluded(self, job: Mapping[str, str]) -> list[str]:
        """Return the nodes that the main job, or the user's options for claimed nodes, exclude."""
        theirs = last("exclude", self._options)
        theirs = commands.listed_in(theirs) if "/" in theirs else theirs  # the rule by which sbatch distinguishes them
        return [nodes for nodes in (job.get("ExcNodeList", "(null)"), theirs) if nodes not in ("(null)", "")]

    def _comment(self, number: int, text: str) -> str:
        return _plain(f"understudy: spare of {self._step.name}, claim {number}; {text}")


def refuse(why: str) -> None:
    """Write into the comment of this process's batch job, a claimed node, why no rank may go there: `claimed` reads it.

    If that fails, it is only known that the node was given back.
    """
    with contextlib.suppress(SchedulerFailed):
        number = os.environ.get("SLURM_JOB_ID", "")
        for job in commands.jobs(NAME):
            if job.number == number and (mark := _MARK.match(job.comment)) is not None:
                commands.update(number, Comment=_plain(f"{mark[0]} {why}"))


def _plain(text: str) -> str:
    return plain(text).replace('"', "'")[:1000]


def owner_is_over(job: str) -> bool:
    """Return whether the main job of a spare is known to be over. A controller that does not answer gives no result."""
    try:
        state = commands.state(job)
    except SchedulerFailed:
        return False
    return not state or state in commands.OVER
