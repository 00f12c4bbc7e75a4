"""What goes in and out of the HTTP interface, beside status and report (`views.py`) and submissions; and the answers that are a no."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

import understudy
from understudy.orchestrator import problems, views

NOT_LET: dict[int | str, dict[str, object]] = dict.fromkeys((401, 403, 413, 429), problems.RESPONSE)
NO_ANSWER: dict[int | str, dict[str, object]] = {**NOT_LET, 404: problems.RESPONSE, 422: problems.RESPONSE}
REFUSED: dict[int | str, dict[str, object]] = {**NO_ANSWER, 400: problems.RESPONSE, 409: problems.RESPONSE}


class Migrate(BaseModel):
    """A wish to move a rank."""

    rank: int = Field(ge=0, description="which")
    to: str = Field(default="", max_length=1000, description="to this node; empty: wherever a spare is best")
    device: str = Field(default="", max_length=200, description="of that node: index (gpu1), UUID or PCI address; empty: any")
    reason: str = Field(default="", max_length=1000, description="for the report")


class WantDrill(BaseModel):
    """A wish to see whether a spare computes the same bits as a rank."""

    rank: int = Field(default=-1, ge=-1, description="which; -1: the one whose last drill is the longest ago")
    reason: str = Field(default="", max_length=1000, description="for the journal")


class Believe(BaseModel):
    """Of a job that is held because replicas differ, or a redo from what it redoes: what this rank holds is right."""

    rank: int = Field(ge=0, description="which")
    reason: str = Field(default="", max_length=1000, description="for the report")


class Taint(BaseModel):
    """A node that is not to be trusted, or is again."""

    node: str = Field(max_length=1000, description="its name")
    device: str = Field(default="", max_length=200, description="one device of it: index (gpu1), UUID or PCI address; empty: the node")
    reason: str = Field(default="", max_length=1000, description="why it is not trusted; empty: it is trusted again")


class Drain(BaseModel):
    """A wish to have a node empty."""

    reason: str = Field(default="", max_length=1000, description="why, for status, events and report")
    deadline: float | None = Field(default=None, gt=0, le=366 * 86400, description="seconds from now by which it should be; null: none")
    then: Literal["keep", "lose"] = Field(
        default="keep",
        description="what becomes of ranks that are there at the deadline: they stay, or are given up and recovered elsewhere",
    )
    force: bool = Field(default=False, description="also if it is known that some ranks have nowhere to go")
    also: list[Annotated[str, Field(max_length=1000)]] = Field(
        default=[], max_length=10_000, description="further nodes that are to be empty, at the same time"
    )
    dry_run: bool = Field(default=False, description="say what it takes, and change nothing")


class DrainNode(Drain):
    """The same, with the node."""

    node: str = Field(max_length=1000, description="its name")


class Undrain(BaseModel):
    """A node that is not to be empty any more."""

    check: bool = Field(
        default=True, description="whether it has to pass its check before it is trusted again, if the job's policy says so"
    )


class UndrainNode(Undrain):
    """The same, with the node."""

    node: str = Field(max_length=1000, description="its name")


class DrainPlan(BaseModel):
    """What a drain asks of a job."""

    job: str = Field(description="its name")
    ranks: list[int] = Field(description="that leave")
    warm: int = Field(description="spares elsewhere that can take one of them at once")
    coming: int = Field(description="spares elsewhere that start or will be started, and nodes that may be claimed")
    pauses: int = Field(description="of the job, if no rank has to wait for a spare; each rank that waits may add one")
    waiting: int = Field(description="ranks that have to wait for a spare")
    refused: str = Field(description="why the job cannot do without the nodes; empty if it can")


class Drained(BaseModel):
    """The wish was passed on; the jobs' status shows what becomes of it."""

    jobs: list[str] = Field(description="those that have something on the nodes")
    plans: list[DrainPlan] = Field(default=[], description="of each of these jobs, what the drain takes")


class Stop(BaseModel):
    """A wish to end a job."""

    reason: str = Field(default="requested", max_length=1000, description="for the journal and the job's last message")
    exit_code: int = Field(default=130, ge=0, le=255, description="what `understudy run` or `understudy logs --follow` exits with")


class Accepted(BaseModel):
    """The wish was passed on; status and report show what becomes of it."""

    accepted: bool = Field(default=True, description="always true")


class DrillAccepted(Accepted):
    """The drill begins; status shows what becomes of it."""

    number: int = Field(description="of the drill, as in status")


class Health(BaseModel):
    """The orchestrator serves."""

    status: str = Field(default="ok", description="`ok`; or `degraded`: it serves, and `problems` says what it cannot do")
    problems: list[str] = Field(default_factory=list, description="in words; its own messages and the list of jobs tell more")
    version: str = Field(default=understudy.__version__, description="of Understudy")


class Submitted(BaseModel):
    """The job is known from now on, and waits for slots or starts."""

    job: str = Field(description="its name")


class JobLine(BaseModel):
    """A job in a list."""

    job: str = Field(description="its name")
    state: str = Field(description=f"one of {views.STATES}")
    step: int = Field(description="the last step that every rank has committed")
    ranks: int = Field(description="how many it has")
    generation: int = Field(description="how often the assignment of ranks to workers has changed")
    incidents: int = Field(description="how many so far")
    message: str = Field(description="how the job ended, or what it waits for")


class NodeLine(BaseModel):
    """A node in a list."""

    node: str = Field(description="its name")
    state: str = Field(description="`here`, or `away`: nothing is heard of its agent")
    taint: str = Field(description="why no new jobs go there; empty: they do")
    drain: str = Field(
        description="empty; `draining`: some job has something there still; `late`: the deadline of the drain is over, and ranks are left "
        "there; `drained`"
    )
    address: str = Field(description="where other nodes reach its workers")
    domain: str = Field(description="its failure domain; empty: one of its own")
    labels: dict[str, str] = Field(description="as its agent was given them")
    slots: int = Field(description="how many workers it takes")
    free: int = Field(description="slots that no job has")
    jobs: list[str] = Field(description="that have slots there")
