"""What is said of what the census has found and cannot carry over: its name, the line that stores it, and the line that would help."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from understudy.worker.census.running import Running
from understudy.worker.census.stores import first_value, home, last_name, where
from understudy.worker.census.walk import Path

MOVED, LEFT, LARGE, UNREAD, BEYOND, RUNNING, HISTORY = "moved", "left", "large", "unread", "beyond", "running", "history"
WHY = {
    MOVED: "an iterator that moves on: a newcomer's starts anew",
    LEFT: "it differs from rank to rank and changes between the steps: a newcomer starts with the value of its set-up",
    LARGE: "it is too much to be looked at in every step: a newcomer starts with what its set-up makes",
    UNREAD: "the source cannot be read: nothing there is looked at",
    BEYOND: "here the look has ended: what lies behind starts afresh on a newcomer",
    HISTORY: "a tensor with its graph, which no other worker can have: a newcomer starts with what its set-up makes",
    RUNNING: "it counts on with the loop of the job: a newcomer's starts anew",
}
_SHOWN = 4
_REGISTERED = (torch.Tensor, torch.nn.Module, torch.Generator, numpy.random.Generator)


@dataclass(frozen=True)
class Uncovered:
    path: Path
    thing: Any = None  # what stands there now; None: nothing any more
    owner: type | None = None  # of what has its last name as an attribute


def told(kind: str, found: Sequence[Uncovered]) -> str:
    """The notice of one kind. Advice is given for the first by name."""
    found = sorted(found, key=lambda one: one.path.shown)
    first, one = found[0], len(found) == 1
    names = few([f"{one.path.shown} ({where(one.path, one.owner)})" for one in found[:_SHOWN]], len(found))
    if kind == MOVED:
        are = "is an iterator that moves" if one else "are iterators that move"
        return f"{names} {are} on while the script trains: a newcomer's begins anew. {_number_for(first)}"
    if kind == LEFT:
        return (
            f"{names} {'differs' if one else 'differ'} from rank to rank and {'changes' if one else 'change'} between the steps: a "
            "newcomer starts with the value of its set-up. "
            f"If the training goes by it, {_namespace(first)}; if not, {ignored(first.path)}"
        )
    if kind == LARGE:
        return (
            f"{names} {'changes' if one else 'change'} while the script trains, not registered and too much to be looked at in every "
            f"step: a newcomer starts with what its set-up makes. If the training goes by it, {_registered(first)}; if not, "
            f"{ignored(first.path)}"
        )
    if kind == HISTORY:
        has = "is a tensor with a graph that is" if one else "are tensors with graphs that are"
        return (
            f"{names} {has} kept from one step to the next, which no other worker can be given: a newcomer starts with what its set-up "
            f"makes. If the training goes by the values, take them off the graph where the step ends, `{first.path.shown}.detach()`; if "
            f"not, {ignored(first.path)}"
        )
    if kind == UNREAD:
        return (
            f"the source of {home(first.path.root)} cannot be read: what it changes while it trains, and is not registered, starts afresh "
            "on a newcomer. Keep there what the training goes by in `state = job.state(...)`"
        )
    return (
        f"the script holds more than can be looked at: what lies behind {names}, and is not registered, starts afresh on a newcomer. "
        f"{ignored(Path(first.path.root, first.path.name))} leaves that out of the look"
    )


def told_of_loops(found: Sequence[Running]) -> str:
    """The same of what runs beside loops of the job."""
    first = found[0]
    if first.what == "enumerate":
        what, instead = f"{first.name} is counted by enumerate", _count(first.name)
    elif first.what == "zip":
        what = f"{first.name} comes from {first.source} by zip"
        instead = "`state = job.state(place=0)` in front of the loop, and in it item `state.place` and `state.place += 1`"
    else:
        what, instead = "islice counts", "`job.batches(loader, steps=N)` or `job.steps(N)` ends by itself"
    more = f" (one of {len(found)})" if len(found) > 1 else ""
    return f"{what} around the loop of the job ({first.where}){more}, and on a newcomer begins anew: {instead}"


def few(names: Sequence[str], count: int) -> str:
    """The first of so many names."""
    return ", ".join(names[:_SHOWN]) + (f" and {count - _SHOWN} more" if count > _SHOWN else "")


def ignored(path: Path) -> str:
    return f'`job.ignore("{path.shown}")`'


def _count(name: str) -> str:
    return f"`state = job.state({name}=0)` in front of the loop, and in it `state.{name} += 1`"


def _number_for(one: Uncovered) -> str:
    """In an iterator's place."""
    name, shown = last_name(one.path), one.path.shown
    if isinstance(one.thing, itertools.count):
        return f"Count by {_count(name)}"
    if isinstance(one.thing, _BaseDataLoaderIter):
        return f"`{shown} = job.iterator(loader)` goes on where the rank was"
    return f"Draw from it in front of the loop, `{shown} = list(itertools.islice({shown}, STEPS))`, and take `{shown}[job.committed]`"


def _namespace(one: Uncovered) -> str:
    name = last_name(one.path)
    return f"`state = job.state({name}={first_value(one.path, one.owner) or '...'})` and use `state.{name}`"


def _registered(one: Uncovered) -> str:
    """A list of numbers, or an array, cannot be registered."""
    name = last_name(one.path)
    return f"`job.register({name}={one.path.shown})`" if isinstance(one.thing, _REGISTERED) else _namespace(one)
