"""Floating spares on Slurm: each is a job of its own on one node, of the same kind as the nodes of the job that it is for.

Growing a job is not possible where it has GRES. A job of one node is given like any other: at once if a node is idle, by preemption if its
partition or QOS may preempt, and else when a node is free; from the block or switch of the rank's first node, if it is there within a
second, and else from anywhere. Its comment says whose it is, and is how it is found again by an orchestrator
that takes over. It ends when it is cancelled, and by itself when the job that it is for is over (`owner_is_over`), whatever has become of
those that should have cancelled it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Mapping, Sequence

from understudy.common.bounds import plain
from understudy.common.names import OWNER_VARIABLE
from understudy.schedulers.base import Held, SchedulerAway, SchedulerFailed, Work
from understudy.schedulers.slurm import commands, network
from understudy.schedulers.slurm.step import Step

NAME = "understudy-spare"
_MARK = re.compile(r"^understudy: spare of (\S+), claim ([0-9]{1,18});")
_NEAR = " (near its peers, if that is free)"  # in the comment of one that may not go elsewhere yet
MARGIN = 120  # seconds that a claimed node may stay at least, however soon the job's own time is over
LIKE_THE_JOB = {"Partition": "partition", "QOS": "qos", "Account": "account", "Features": "constraint", "Reservation": "reservation"}


class Claims:
    def __init__(self, step: Step, options: Sequence[str]) -> None:
        self._step = step
        self._options = tuple(options)
        self._jobs: dict[int, str] = {}  # by claim
        self._ending: set[int] = set()  # claims whose job has been told to end, and has not yet
        self._avoid: dict[int, str] = {}  # by claim, in Slurm's notation

    def ask(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        if number in self.held():
            return
        told = {**work.environment, OWNER_VARIABLE: self._step.job}
        like = like_the_job(commands.fields(self._step.job), time.time())
        self._avoid[number] = ",".join(sorted(avoid))

        def submit(elsewhere: Sequence[str]) -> None:
            comment = self._comment(number, text + _NEAR * bool(elsewhere))
            options = [f"--job-name={NAME}", f"--comment={comment}", "--no-requeue"]
            if avoid or elsewhere:
                options.append(f"--exclude={','.join([*sorted(avoid), *elsewhere])}")
            self._jobs[number] = commands.batch(work.command, *options, *like, *self._options, variables=told)

        elsewhere = network.outside(near)
        try:
            submit(elsewhere)
        except SchedulerAway:
            raise
        except SchedulerFailed:  # Slurm refuses what can never be given: there is no other node near
            if not elsewhere:
                raise
            submit(())

    def held(self) -> Mapping[int, Held]:
        found: dict[int, Held] = {}
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
            if job.state == "PENDING" and job.comment.endswith(_NEAR):
                self._anywhere(number, job)
            what = f"Slurm job {job.number} {job.state.lower().replace('_', ' ')}"
            why = f" ({job.reason})" if job.reason not in ("None", "") else ""
            found[number] = Held(job.state in commands.OVER, job.node, what + why)
        return found

    def _anywhere(self, number: int, job: commands.JobLine) -> None:
        """Nothing near is free. If this is refused, because it runs by now or else, the next look sees."""
        with contextlib.suppress(SchedulerFailed):
            avoid = self._avoid.get(number) or ",".join(commands.expand(self._step.nodes))
            commands.update(job.number, ExcNodeList=avoid, Comment=job.comment.removesuffix(_NEAR))

    def give_back(self, number: int) -> None:
        if number in self._jobs and number not in self._ending:
            commands.cancel(self._jobs[number])

    def record(self, number: int, text: str) -> None:
        if number in self._jobs:
            commands.update(self._jobs[number], Comment=self._comment(number, text))

    def _comment(self, number: int, text: str) -> str:
        return plain(f"understudy: spare of {self._step.name}, claim {number}; {text}").replace('"', "'")[:1000]


def like_the_job(job: Mapping[str, str], now: float) -> list[str]:
    """Options of `sbatch` for one node like those of the job of which `scontrol` says this, for as long as that job may run."""
    options = []
    for field, option in LIKE_THE_JOB.items():
        if (value := job.get(field, "(null)")) not in ("(null)", ""):
            options.append(f"--{option}={value}")
    if (tres := job.get("TresPerNode", "")) not in ("", "(null)"):
        options.append("--gres=" + re.sub(r"\bgres[:/]", "", tres))
    nodes, cpus = job.get("NumNodes", "1").partition("-")[0], job.get("NumCPUs", "1").partition("-")[0]
    if job.get("OverSubscribe") == "NO":
        options.append("--exclusive")
    elif nodes.isdecimal() and cpus.isdecimal() and int(nodes):
        options.append(f"--cpus-per-task={max(1, int(cpus) // int(nodes))}")
    for field, option in (("MinMemoryNode", "mem"), ("MinMemoryCPU", "mem-per-cpu")):
        if (memory := job.get(field, "0")) not in ("0", ""):
            options.append(f"--{option}={memory}")
    try:
        left = time.mktime(time.strptime(job.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S")) - now
    except (ValueError, OverflowError):
        return options
    if job.get("TimeLimit") != "UNLIMITED":
        options.append(f"--time={int(max(left, MARGIN)) // 60}")
    return options


def owner_is_over(job: str) -> bool:
    """Whether the job that a spare is for is known to be. A controller that does not answer says nothing."""
    try:
        state = commands.state(job)
    except SchedulerFailed:
        return False
    return not state or state in commands.OVER
