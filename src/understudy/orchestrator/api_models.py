"""Requests and answers of the HTTP API, except status and report (`views.py`) and submissions; and the error answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

import understudy
from understudy.orchestrator import problems, views

NOT_LET: dict[int | str, dict[str, object]] = dict.fromkeys((401, 403, 413, 429), problems.RESPONSE)
NO_ANSWER: dict[int | str, dict[str, object]] = {**NOT_LET, 404: problems.RESPONSE, 422: problems.RESPONSE}
REFUSED: dict[int | str, dict[str, object]] = {**NO_ANSWER, 400: problems.RESPONSE, 409: problems.RESPONSE}


class Migrate(BaseModel):
    """A request to move a rank."""

    rank: int = Field(ge=0, description="rank to move")
    to: str = Field(default="", max_length=1000, description="target node; empty: the node of the best spare")
    device: str = Field(default="", max_length=200, description="device of that node: index (gpu1), UUID or PCI address; empty: any")
    reason: str = Field(default="", max_length=1000, description="reason, shown in the report")


class WantDrill(BaseModel):
    """A request to check whether a spare computes the same bits as a rank."""

    rank: int = Field(default=-1, ge=-1, description="rank to drill; -1: the least recently drilled one")
    reason: str = Field(default="", max_length=1000, description="reason, recorded in the journal")


class Believe(BaseModel):
    """The decision about a job that is paused because replicas or a redo differ, or because an incident is unproven: the state of this
    rank is right.
    """

    rank: int = Field(ge=0, description="rank whose state is right; any rank if all have the same state")
    reason: str = Field(default="", max_length=1000, description="reason, shown in the report")


class TaintNode(BaseModel):
    """A request to taint a node, or to remove its taint."""

    reason: str = Field(default="", max_length=1000, description="why the node is not trusted; empty: remove the taint")


class Taint(TaintNode):
    """A request to taint a node or one of its devices, or to remove the taint."""

    node: str = Field(max_length=1000, description="name of the node")
    device: str = Field(
        default="", max_length=200, description="a device of the node: index (gpu1), UUID or PCI address; empty: the whole node"
    )


class Drain(BaseModel):
    """A request to empty a node."""

    reason: str = Field(default="", max_length=1000, description="reason, shown in status, events and report")
    deadline: float | None = Field(
        default=None, gt=0, le=366 * 86400, description="seconds until the node should be empty; null: no deadline"
    )
    then: Literal["keep", "lose"] = Field(
        default="keep",
        description="action for ranks that are still there at the deadline: they stay, or are given up and recovered elsewhere",
    )
    force: bool = Field(default=False, description="drain even if some ranks have no worker to move to")
    also: list[Annotated[str, Field(max_length=1000)]] = Field(
        default=[], max_length=10_000, description="additional nodes to empty at the same time"
    )
    dry_run: bool = Field(default=False, description="report what the drain needs, and change nothing")


class DrainNode(Drain):
    """A drain request with the name of its node."""

    node: str = Field(max_length=1000, description="name of the node")


class Undrain(BaseModel):
    """A request to use a drained node again."""

    check: bool = Field(
        default=True, description="whether the node must pass its check before it is trusted again, if the job's policy requires that"
    )


class UndrainNode(Undrain):
    """An undrain request with the name of its node."""

    node: str = Field(max_length=1000, description="name of the node")


class DrainPlan(BaseModel):
    """What a drain requires of a job."""

    job: str = Field(description="name of the job")
    ranks: list[int] = Field(description="ranks that leave")
    warm: int = Field(description="spares on other nodes that can take over one of these ranks at once")
    coming: int = Field(description="spares on other nodes that are starting or will be started, and nodes that may be claimed")
    pauses: int = Field(description="minimum number of pauses of the job; each rank that waits for a spare may add one")
    waiting: int = Field(description="ranks that have to wait for a spare")
    refused: str = Field(description="why the job cannot leave the nodes; empty if it can")


class Drained(BaseModel):
    """The request was accepted; the jobs' status shows its progress."""

    jobs: list[str] = Field(description="jobs with ranks or spares on the nodes")
    plans: list[DrainPlan] = Field(default=[], description="what the drain requires of each of these jobs")


class Stop(BaseModel):
    """A request to end a job."""

    reason: str = Field(default="requested", max_length=1000, description="reason, for the journal and the job's last message")
    exit_code: int = Field(
        default=130, ge=0, le=255, description="exit code of `understudy run` or `understudy logs --follow`; `understudy stop` sends 143"
    )


class Accepted(BaseModel):
    """The request was accepted; status and report show its progress."""

    accepted: bool = Field(default=True, description="always true")


class DrillAccepted(Accepted):
    """The drill begins; status shows its result."""

    number: int = Field(description="number of the drill, as in status")


class Health(BaseModel):
    """Whether the orchestrator serves requests, and its problems."""

    status: str = Field(default="ok", description="`ok`; or `degraded`: it serves requests, and `problems` lists what it cannot do")
    problems: list[str] = Field(
        default_factory=list, description="descriptions of the problems; the orchestrator's output and the list of jobs have the details"
    )
    version: str = Field(default=understudy.__version__, description="version of Understudy")


class Submitted(BaseModel):
    """The job was accepted, and waits for slots or starts."""

    job: str = Field(description="name of the job")


class JobLine(BaseModel):
    """A job in a list."""

    job: str = Field(description="name of the job")
    state: str = Field(description=f"one of {views.STATES}")
    step: int = Field(description="the last step that every rank has committed")
    ranks: int = Field(description="number of ranks")
    generation: int = Field(description="how often the assignment of ranks to workers has changed")
    incidents: int = Field(description="number of incidents so far")
    message: str = Field(description="how the job ended, or what it is waiting for")


class NodeLine(BaseModel):
    """A node in a list."""

    node: str = Field(description="name of the node")
    state: str = Field(description="`here`: its agent is connected; `away`: it is not")
    taint: str = Field(description="why the node gets no new jobs; empty: no taint")
    drain: str = Field(
        description="empty; `draining`: jobs still have ranks or spares there; `late`: the deadline of the drain has passed, and ranks are "
        "left there; `drained`"
    )
    address: str = Field(description="address at which other nodes reach its workers")
    domain: str = Field(description="failure domain; empty: the node is its own failure domain")
    labels: dict[str, str] = Field(description="labels that were passed to its agent")
    slots: int = Field(description="number of workers that it can run")
    free: int = Field(description="slots that no job uses")
    jobs: list[str] = Field(description="jobs with slots there")
