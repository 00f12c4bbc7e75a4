"""The Slurm step of this process, from its environment. It queries Slurm only for names and addresses of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understudy.common.bounds import plain
from understudy.core.topology import NVLINK_DOMAIN, SWITCH
from understudy.messages import slurm
from understudy.schedulers.base import Place
from understudy.schedulers.slurm import commands

NAME = "slurm"
ORCHESTRATORS = 3  # nodes that may run one: the loss of any one is tolerated
LABELS = {"switch": SWITCH, "block": NVLINK_DOMAIN}  # node labels for Slurm's levels of the network
OTHER_STEPS = 0xFFFFFFF0  # step numbers from here on were not made by an srun of the user: the batch script, a shell
SLOTS, FIRST_PORT = 2048, 16384  # below the ports that systems assign automatically


@dataclass(frozen=True)
class Step:
    job: str  # its number
    step: str
    restarts: int  # how often the job was requeued
    nodes: str  # in Slurm's notation
    count: int
    number: int
    port: int  # the first of `ORCHESTRATORS` in a row
    topology: tuple[tuple[str, str], ...]
    task: str = ""  # of the job in its array, if its number means the whole array, too
    parts: int = 1  # components of the job; the nodes of several components differ
    container: str = ""  # of this process, from Slurm's `--container`

    def check_claims(self, options: Sequence[str]) -> None:
        """Raise `ValueError` if no other node like those of this step can be requested. `options`: further options of the request."""
        if self.parts > 1:
            raise ValueError(slurm.CLAIMS_OF_PARTS(job=self.job, parts=self.parts))
        if self.container and not any(option.partition("=")[0] == "--container" for option in options):
            raise ValueError(slurm.CLAIMS_IN_CONTAINER(container=self.container))

    @property
    def address(self) -> str:
        """The job's address for commands that change it; its number alone would change every task of its array."""
        return f"{self.job}_{self.task}" if self.task else self.job

    @property
    def name(self) -> str:
        """The name of this run for our own job; no other run has it."""
        return f"slurm-{self.job}.{self.step}" + (f"-r{self.restarts}" if self.restarts else "")

    def was(self, name: str) -> bool:
        """Return whether this is the name of an earlier run of the same step: the job was requeued since."""
        return name != self.name and name.partition("-r")[0] == f"slurm-{self.job}.{self.step}"

    def place(self) -> Place:
        """Return the place of this process. Queries Slurm for the nodes' names and addresses."""
        nodes = commands.expand(self.nodes)
        leading = nodes[:ORCHESTRATORS]
        known = {line.name: line.address for line in commands.nodes(leading)}
        addresses = tuple(known.get(node) or node for node in leading)
        ports = tuple(self.port + number for number in range(len(leading)))
        return Place(NAME, self.name, nodes, self.number, addresses, ports, self.topology)


def step_of(environment: Mapping[str, str]) -> Step | None:
    """Return the step; None if no `srun` has started this process. Raises `ValueError` if it was started in a way that cannot work."""
    job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")
    if not job.isdecimal() or not step.isdecimal() or int(step) >= OTHER_STEPS:
        return None
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    count = _number(environment, "SLURM_STEP_NUM_NODES", 1)
    tasks = _number(environment, "SLURM_STEP_NUM_TASKS", count)
    if tasks != count:
        raise ValueError(slurm.SEVERAL_TASKS(job=job, tasks=tasks, nodes=count))
    if not environment.get("SLURM_NODEID", "").isdecimal():
        return None
    restarts = _number(environment, "SLURM_RESTART_COUNT", 0)
    reserved = environment.get("SLURM_STEP_RESV_PORTS", "").split("-")
    if reserved[0].isdecimal() and reserved[-1].isdecimal() and int(reserved[-1]) - int(reserved[0]) >= ORCHESTRATORS - 1:
        port = int(reserved[0])
    else:  # jobs that run at the same time have similar numbers
        port = FIRST_PORT + (int(job) + 131 * int(step)) % SLOTS * (ORCHESTRATORS + 1)
    # Variables of a job from which this one was submitted may still be set, so they count only if they are about this one.
    task = environment.get("SLURM_ARRAY_TASK_ID", "") if environment.get("SLURM_ARRAY_JOB_ID") == job else ""
    parts = _number(environment, "SLURM_HET_SIZE", 1) if environment.get("SLURM_JOB_ID_HET_GROUP_0") == job else 1
    return Step(
        job,
        step,
        restarts,
        nodes,
        count,
        int(environment["SLURM_NODEID"]),
        port,
        topology(environment),
        task if task.isdecimal() else "",
        parts,
        environment.get("SLURM_CONTAINER", ""),
    )


def outside_of_a_step(environment: Mapping[str, str]) -> str:
    """Return a message for a user who is in a job of several nodes and uses one of them; "" otherwise."""
    count = _number(environment, "SLURM_JOB_NUM_NODES", 1)
    if step_of(environment) is not None or not environment.get("SLURM_JOB_ID", "").isdecimal() or count < 2:
        return ""
    return slurm.WITHOUT_SRUN(job=environment["SLURM_JOB_ID"], nodes=count)


def _number(environment: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else otherwise


def topology(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the labels of this node: for "spine.leaf3.n7" with the pattern "switch.switch.node" the nearest of each kind.

    A Slurm block is an NVLink domain.
    """
    names = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    kinds = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if len(names) != len(kinds):
        return ()
    return tuple({LABELS[kind]: plain(name) for kind, name in zip(kinds, names, strict=True) if kind in LABELS and name}.items())
