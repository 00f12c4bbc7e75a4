"""What a newcomer of a job would get, for people and programs: as `views`, and as rank 0 has told last."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from understudy.core.machine import Machine
from understudy.orchestrator.views import load


class StateEntry(TypedDict):
    """Something that a script changes while it trains, or has registered."""

    name: Annotated[str, Field(description="under which it is registered, or by which the script has it")]
    root: Annotated[str, Field(description="the module, class or function where the script has it; empty if it is registered")]
    kind: Annotated[
        str,
        Field(
            description="`registered`; `adopted`: nobody has registered it, and a newcomer gets it all the same; `ignored`: by "
            "`job.ignore`. What starts afresh on a newcomer: `moved` (an iterator), `running` (one around a loop of the job), `left`, "
            "`large`, `unread` (it has no source), `beyond` (and what lies behind it)"
        ),
    ]
    same: Annotated[bool | None, Field(description="whether all ranks have the same; null: nobody compares it")]
    bytes: Annotated[int, Field(description="on rank 0, of what a newcomer gets; 0 for what is not told")]
    reason: Annotated[str, Field(description="why it starts afresh; empty if it does not")]


class StateTable(TypedDict):
    """What a newcomer of a job gets, and what it does not get, as rank 0 has told last."""

    job: Annotated[str, Field(description="its name")]
    step: Annotated[int | None, Field(description="of the job when that was told; null: nothing was yet")]
    entries: Annotated[list[StateEntry], Field(description="what is registered first")]
    left_out: Annotated[int, Field(description="how many more there are")]


def state_table(machine: Machine) -> StateTable:
    listed = machine.state.listed
    entries = [
        StateEntry(name=item.shown, root=item.root, kind=item.kind, same=item.same, bytes=item.size, reason=item.reason)
        for item in (listed.items if listed is not None else ())
    ]
    return StateTable(
        job=machine.state.spec.job,
        step=listed.step if listed is not None else None,
        entries=entries,
        left_out=listed.left_out if listed is not None else 0,
    )


def offline_state_table(run_dir: Path) -> StateTable:
    """From the journal alone. Raises `NoJournal`."""
    return state_table(load(run_dir)[0])
