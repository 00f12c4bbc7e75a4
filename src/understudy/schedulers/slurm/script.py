"""Generate a complete batch script for an Understudy job on Slurm, with a comment for everything that is not obvious."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from understudy.messages import slurm

SRUN = "srun --no-kill --kill-on-bad-exit=0 --wait=0"
WRONG = "\n\r\0"


@dataclass(frozen=True)
class Wish:
    program: Sequence[str]  # the script and its arguments
    nodes: int = 1  # with ranks
    spare_nodes: int = 1
    ranks: int = 1  # on each node
    gpus: int = 0  # on each node; 0: none is requested
    cpus: int = 0  # for each node; 0: whole nodes
    name: str = ""
    time: str = ""  # in Slurm's format
    partition: str = ""
    account: str = ""
    qos: str = ""
    notice: int = 0  # seconds before the time limit at which the script gets SIGUSR1; 0: no signal
    requeue: bool = False
    options: Sequence[str] = ()  # further options of `understudy run`
    setup: Sequence[str] = ()  # lines before it: modules, environments


def script(wish: Wish) -> str:
    """Return the script. Raises `ValueError` for a value that cannot be written into one."""
    if not wish.program:
        raise ValueError(slurm.NO_PROGRAM())
    if wish.nodes < 1 or wish.spare_nodes < 0 or wish.ranks < 1:
        raise ValueError(slurm.TOO_FEW())
    for value in (wish.name, wish.time, wish.partition, wish.account, wish.qos, *wish.program, *wish.options):
        if any(character in value for character in WRONG):
            raise ValueError(slurm.NOT_IN_A_SCRIPT(value=value))
    total = wish.nodes + wish.spare_nodes
    spare = f"{wish.spare_nodes} of them with spares only" if wish.spare_nodes else "none with spares: see --spare-nodes"
    directives: list[tuple[str, str]] = [
        (_option("job-name", wish.name), ""),
        (f"--nodes={total}", spare),
        ("--ntasks-per-node=1", "understudy run starts the ranks of a node"),
        (f"--gpus-per-node={wish.gpus}" if wish.gpus else "", ""),
        (f"--cpus-per-task={wish.cpus}" if wish.cpus else "--exclusive", ""),
        ("--no-kill", "a node that fails does not end the job"),
        ("--requeue" if wish.requeue else "--no-requeue", "" if wish.requeue else "a job that is lost as a whole does not start again"),
        ("--open-mode=append" if wish.requeue else "", "what was printed before stays"),
        (f"--signal=USR1@{wish.notice}" if wish.notice else "", "so many seconds before the limit; the training script gets it"),
        (_option("time", wish.time), ""),
        (_option("partition", wish.partition), ""),
        (_option("account", wish.account), ""),
        (_option("qos", wish.qos), ""),
    ]
    written = [f"#SBATCH {option}" + (f"  # {why}" if why else "") for option, why in directives if option]
    cpus = f" --cpus-per-task={wish.cpus}" if wish.cpus else ""
    spares = f" --spare-nodes {wish.spare_nodes}" if wish.spare_nodes else ""
    options = f" {shlex.join(wish.options)}" if wish.options else ""
    lines = ["#!/bin/bash", *written, "", *wish.setup]
    lines.append("# Put nothing that matters after it: if the first node fails, training goes on, but this script does not.")
    lines.append(f"{SRUN}{cpus} understudy run{spares} --nproc-per-node {wish.ranks}{options} {shlex.join(wish.program)}")
    return "\n".join(lines) + "\n"


def _option(name: str, value: str) -> str:
    return f"--{name}={shlex.quote(value)}" if value else ""
