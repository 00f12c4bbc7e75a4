"""The state that a newcomer of a job would get, as plain JSON values like `views.py`, from the last list of rank 0."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from understudy.core.machine import Machine
from understudy.orchestrator.views import load


class StateEntry(TypedDict):
    """A variable or object that a script has registered, or changes while it trains."""

    name: Annotated[str, Field(description="name under which it is registered, or its name in the script")]
    root: Annotated[str, Field(description="module, class or function that contains it; empty if it is registered")]
    kind: Annotated[
        str,
        Field(
            description="`registered`; `adopted`: not registered, but handed over to newcomers; `ignored`: by "
            "`job.ignore`. State that restarts on a newcomer: `moved` (an iterator), `running` (enumerate, zip or islice of job.batches "
            "or job.steps), `left` (it differs from rank to rank and changes between the steps), `large` (too large to be checked in every "
            "step), `history` (a tensor with its autograd graph), `unseen` (it cannot be copied to another worker), `unread` (the source "
            "code that uses it cannot be read), `beyond` (the search ended before it)"
        ),
    ]
    same: Annotated[bool | None, Field(description="whether all ranks have the same value; null: it is not compared")]
    bytes: Annotated[
        int, Field(description="size of the data that a newcomer receives, in bytes, as measured on rank 0; 0 if not reported")
    ]
    reason: Annotated[str, Field(description="why it restarts on a newcomer; empty if it does not")]


class StateTable(TypedDict):
    """The state that a newcomer of a job receives or does not receive, as last reported by rank 0."""

    job: Annotated[str, Field(description="name of the job")]
    step: Annotated[int | None, Field(description="number of committed steps at the time of the report; null: no report yet")]
    entries: Annotated[list[StateEntry], Field(description="entries, registered ones first")]
    left_out: Annotated[int, Field(description="number of entries that are left out because the list would be too long")]


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
    """Return the table from the journal alone. Raises `NoJournal`."""
    return state_table(load(run_dir)[0])
