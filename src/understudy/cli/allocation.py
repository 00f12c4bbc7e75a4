"""Take what was not given as a flag from the scheduler's job: nodes, node rank, addresses, the secret."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

from understudy.cli.flags import Flags
from understudy.cli.launch import Launch, Usage
from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.messages import starting
from understudy.schedulers.base import Allocation, SchedulerFailed
from understudy.schedulers.kubernetes.jobset import NAME as JOBSET
from understudy.schedulers.kubernetes.jobset import SPARES_VARIABLE
from understudy.schedulers.registry import allocation
from understudy.schedulers.slurm.step import outside_of_a_step

PATIENCE = 60.0  # seconds for the first node to share the secret: the nodes of one job do not start at the same time
NOT_GIVEN = "1:1"  # of --nnodes


def found(flags: Flags) -> Allocation | None:
    """Return the allocation that this command runs in, or None if it is not to be used. Raises `Usage`."""
    if flags.scheduler == "none" or flags.orchestrator or flags.check or flags.standalone:
        _no_scheduler(flags)
        return None
    try:
        here = allocation(flags.scheduler, os.environ, flags.floating_option or ())
        if here is not None and flags.floating_spares:
            here.check_claims()
    except (ValueError, SchedulerFailed) as error:
        raise Usage(str(error)) from error
    if here is None:
        _no_scheduler(flags)
    if here is None and flags.scheduler != "auto":
        raise Usage(starting.SCHEDULER_ABSENT(scheduler=flags.scheduler))
    if here is None and (advice := outside_of_a_step(os.environ)):
        say(advice)
    return here


def _no_scheduler(flags: Flags) -> None:
    if flags.floating_spares:
        raise Usage(starting.FLOATING_WITHOUT_SCHEDULER())


def completed(flags: Flags, here: Allocation) -> Flags:
    """Return the flags, completed from the allocation where none were given, and print one line about it. Raises `Usage`."""
    place = here.place
    count = len(place.nodes)
    if place.scheduler == JOBSET and not flags.spare_nodes:
        flags = replace(flags, spare_nodes=int(os.environ.get(SPARES_VARIABLE) or 0))
    ranked = count - flags.spare_nodes
    if ranked < 1:
        raise Usage(starting.NO_NODE_FOR_RANKS(spare_nodes=flags.spare_nodes, job=place.job, nodes=count))
    if flags.nnodes != NOT_GIVEN and flags.nnodes not in (str(ranked), f"{ranked}:{ranked}"):
        raise Usage(starting.NODES_UNLIKE_ALLOCATION(nnodes=flags.nnodes, spare_nodes=flags.spare_nodes, job=place.job, nodes=count))
    filled = replace(flags, nnodes=str(ranked), label=[*(f"{key}={value}" for key, value in place.labels), *(flags.label or [])])
    if flags.node_rank is None or place.scheduler == JOBSET:  # torchrun's variables count the pods of one kind there
        filled = replace(filled, node_rank=place.number)
    leading: tuple[str, ...] = ()
    trainer = place.scheduler == JOBSET and flags.master_addr == os.environ.get("PET_MASTER_ADDR")
    if (count > 1 or flags.floating_spares) and not flags.rdzv_endpoint and (not flags.master_addr or trainer):
        given = flags.master_port if not trainer else None
        ports = [given + number for number in range(len(place.ports))] if given else place.ports
        several = len(place.addresses) >= 3
        leading = place.nodes[: 3 if several else 1]
        endpoints = [f"{_bracketed(address)}:{port}" for address, port in zip(place.addresses, ports, strict=True)]
        filled = replace(filled, rdzv_endpoint=",".join(endpoints[: len(leading)]), master_addr=None, master_port=None)
    if place.number == 0:
        spare = f", {flags.spare_nodes} of them for spares" if flags.spare_nodes else ""
        led = f"; orchestrators on {', '.join(leading)}" if leading else ""
        say(starting.ALLOCATION(job=place.job, nodes=f"{count} node{'s' * (count > 1)}", spares=spare, orchestrators=led))
    return filled


def run_name(here: Allocation) -> str:
    """Return the name of the run directory. Nodes may see the same folder, so it is unique for each of them."""
    return f"{here.place.job}-{here.place.nodes[here.place.number]}"


def secret(flags: Flags, plan: Launch, here: Allocation) -> str | None:
    """Return a secret that all nodes of the allocation share; None if one was given, or none is needed. Raises `Usage`."""
    if flags.token_file is not None or os.environ.get(TOKEN_VARIABLE) or len(here.place.nodes) == 1:
        return None
    try:
        if plan.node_rank == 0:
            made = secrets.token_urlsafe(32)
            here.share(made)
        else:
            made = here.shared(PATIENCE)
    except (SchedulerFailed, OSError) as error:
        raise Usage(starting.SECRET_NOT_SHARED(reason=str(error))) from error
    return made


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
