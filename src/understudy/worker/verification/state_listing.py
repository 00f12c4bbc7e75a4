"""Lists what a newcomer of this job would get, for `understudy status --state` and, in short, for the coverage report.

Rank 0 sends it to the orchestrator after each full comparison. The core keeps the last one.
"""

from __future__ import annotations

from itertools import groupby

from understudy.common.bounds import size
from understudy.core.coverage import Replicas
from understudy.core.events import StateItem
from understudy.messages import coverage
from understudy.worker.state.registry import State
from understudy.worker.state.streams import FOUND
from understudy.worker.state.tensors import local_tensor
from understudy.worker.state.unregistered import is_unregistered

ROOM = 1 << 18  # bytes of all items as written: a quarter of what a message may have
_LONGEST = 200  # characters of a name
_SHORTEST = 10  # bytes around a name as written
_SHOWN = 4


def items_of(state: State, replicas: Replicas) -> list[StateItem]:
    """Return the registered state, each name once, and the other state that the script changes."""
    sizes = {entry: local_tensor(tensor).numel() * tensor.element_size() for entry, tensor in state.all_tensors().items()}
    sizes |= {entry: len(data) for entry, data in state.encoded_values(closely=False).items()}
    names: dict[str, list[str]] = {}
    for entry in filter(lambda entry: not is_unregistered(entry), replicas.classes):
        names.setdefault(entry.partition("/")[0], []).append(entry)
    found = [_registered(name, _alike(replicas, entries), sum(sizes.get(e, 0) for e in entries)) for name, entries in sorted(names.items())]
    found += [_registered(name, None, 0) for name in sorted(state.loaders)]
    found += [_stream(name, state.names) for name in state.randomness.names()]
    for one in sorted(state.unregistered.listed(replicas.classes), key=lambda one: (one.kind != "adopted", one.kind, one.root, one.name)):
        same = _alike(replicas, [one.entry]) if one.entry in replicas.classes else None
        found.append(StateItem(_short(one.name), _short(one.root), one.kind, same, one.size, one.why))
    return found


def changing(state: State) -> tuple[tuple[str, str], ...]:
    """Return place and name, as in `items_of`, of values that are known to change and are not registered."""
    streams = [_stream(name, state.names) for name in state.randomness.names()]
    found = {(item.root, item.shown) for item in streams if item.kind != "registered"}
    every = sorted(found | {(_short(one.root), _short(one.name)) for one in state.unregistered.listed(())})
    room, fit = ROOM, list[tuple[str, str]]()
    for root, name in every:
        room -= size(root) + size(name) + _SHORTEST
        if room < 0:
            break  # a drill that does not report all that it has seen counts for less
        fit.append((root, name))
    return tuple(fit)


def that_fit(items: list[StateItem]) -> tuple[StateItem, ...]:
    """Return the first items that fit into `ROOM`."""
    room = ROOM
    for number, item in enumerate(items):
        room -= size(item.shown) + size(item.root) + size(item.reason) + _LONGEST
        if room < 0:
            return tuple(items[:number])
    return tuple(items)


def adopted(state: State, replicas: Replicas) -> str:
    """Return a notice for the coverage report: what a newcomer gets though it is not registered; "" if there is nothing."""
    known = sorted((one.root, one.name) for one in state.unregistered.listed(replicas.classes) if one.kind == "adopted")
    if not known:
        return ""
    shown = [f"{', '.join(name for _, name in group)} ({root})" for root, group in groupby(known[:_SHOWN], lambda one: one[0])]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return coverage.ADOPTED(names=f"{', '.join(shown)}{more}")


def _registered(name: str, same: bool | None, size: int) -> StateItem:
    return StateItem(_short(name), "", "registered", same, size)


def _stream(name: str, registered: set[str]) -> StateItem:
    """Return the item of a random stream; those that the script has, but has not registered, have the place in their names."""
    if name.partition(".")[0] in registered:
        return _registered(name, None, 0)
    shown, _, root = name.removeprefix(FOUND).partition(" (")
    return StateItem(_short(shown), _short(root.removesuffix(")")), "adopted", None, 0)


def _alike(replicas: Replicas, entries: list[str]) -> bool:
    """Return whether all ranks have the same of each entry."""
    return all(len(set(replicas.classes[entry])) == 1 for entry in entries)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
