"""A job as it is submitted to an orchestrator over HTTP, by the command line or any other program.

`core.model.JobSpec` explains the fields. Fields of the same name here bound what may come over the network.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from understudy.core.model import JobSpec, Timeouts, Unproven
from understudy.messages import wire

MOST_RANKS = 1 << 20
Text = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=1 << 17)]  # what a program can be given
Name = Annotated[str, Field(pattern=r"^[^\x00=]+$", max_length=1 << 10)]


class Submission(BaseModel):
    """A job as it is submitted. Times in seconds."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # for those of Timeouts, which knows nothing of pydantic

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="name of the job; it must not have been used before")
    program: list[Text] = Field(min_length=1, max_length=10_000, description="the script, or `-m` and a module, and its arguments")
    folder: str = Field(pattern=r"^/[^\x00]*$", max_length=4096, description="working directory, the same path on every node")
    nodes: int = Field(default=1, ge=1, le=100_000, description="number of nodes with ranks")
    workers_per_node: int = Field(default=1, ge=1, le=1024, description="ranks on each of them")
    spares: int = Field(default=1, ge=0, le=100_000, description="workers that wait for a rank; each uses a slot")
    prepared: int = Field(
        default=0,
        ge=0,
        description="number of spares that run the script's setup ahead of time, each for one rank",
    )
    replenish: bool = Field(default=True, description="start a new spare for each one that was used")
    drill_at: int = Field(
        default=1,
        ge=0,
        description="the step from which drills run by themselves: first one for each role, then one every minute or less often; 0: none",
    )
    require_drill: bool = Field(
        default=False,
        description="end the job with exit code 3 if a drill finds that it would not survive the loss of a rank, or that the step is "
        "not reproducible",
    )
    unproven: Unproven = Field(
        default=Unproven.CONTINUE,
        description="the action after an unproven incident: `continue` with a warning, or `pause` until `understudy resolve` is run",
    )
    keep_together: tuple[Annotated[str, Field(min_length=1, max_length=1 << 8)], ...] = Field(
        default=(),
        max_length=64,
        description="groups of ranks that must stay within one NVLink domain, named by a dimension of a device mesh, or by description",
    )
    max_restarts: int = Field(default=3, ge=0, description="how often the job may restart when a rank is lost before its first step")
    role: Text = Field(default="default", description="the name of the workers' role, as in torchrun")
    timeouts: Timeouts = Field(default_factory=Timeouts, description="time limits; their order is checked")
    policy: Text = Field(default="", description="policy for evidence: the text of a policy's file; empty: the built-in policy")
    environment: dict[Name, Text] = Field(
        default_factory=dict, description="environment of the workers; kept in a file that only the service can read"
    )

    def spec(self) -> JobSpec:
        size = self.nodes * self.workers_per_node
        return JobSpec(job=self.name, world_size=size, **{name: getattr(self, name) for name in _SHARED})

    @model_validator(mode="after")
    def _check(self) -> Submission:
        if self.nodes * self.workers_per_node > MOST_RANKS:
            raise ValueError(wire.TOO_MANY_RANKS(ranks=self.nodes * self.workers_per_node, most=MOST_RANKS))
        if self.prepared > self.spares:
            raise ValueError(wire.PREPARED_WITHOUT_SPARES(prepared=self.prepared, spares=self.spares))
        if self.require_drill and not (self.drill_at and self.spares and self.replenish):
            raise ValueError(wire.DRILLS_IMPOSSIBLE())
        return self


_SHARED = [name for name in Submission.model_fields if name in JobSpec.__dataclass_fields__]


def shared(spec: JobSpec) -> dict[str, Any]:
    """Return the fields of a job's spec that a submission has under the same name."""
    return {name: getattr(spec, name) for name in _SHARED}
