"""The attributes of registered modules other than parameters and buffers: train or eval mode, `requires_grad`, dropout rates, counters, a
hidden state that is kept as an attribute, extra state. Also the parts of each module and the class of each part, because a script may
replace a part under the same name; and the attributes of registered optimizers that the script has written.

Two uses:

- *Redo*: at every begin the attributes of all modules are noted, shallowly (a copy of each `__dict__`, of the tables of parts,
  parameters and buffers, and of the script's own plain containers), and `restore` binds them again. Objects stay the same: nothing is
  replaced.
- *Newcomer*: a plain attribute that has changed since the set-up is an entry like a registered value. These entries are searched for
  when all state is compared and in every recovery; an entry that was found once is then read in every step, because it may differ from
  rank to rank.

Known limits: a redo binds attributes of other kinds (own objects, tensors larger than `LARGEST` or on a device) again, but they are not
given to a newcomer. A tensor of such a kind is reported, and so is one that has a graph at one of the first begins. Attributes that
each forward pass computes are left out (`_computed`), and so are the frameworks' own attributes (`sharding`). Hooks that a script adds
in an attempt are not removed, nor are those of a part that was replaced by one of another class.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.optim import Optimizer

from understudy.messages import registered
from understudy.worker.encoding.codec import Unencodable, decode, encode
from understudy.worker.errors import UnderstudyError
from understudy.worker.state.history import has_history
from understudy.worker.state.part_classes import give_class, is_found, named
from understudy.worker.state.sharding import Sharding, Whole

LARGEST = 1 << 20  # bytes of one attribute
CLOSELY = 3  # begins at which tensors with a history are searched for
_OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__) - {"training"}
_OF_EVERY_OPTIMIZER = frozenset(torch.optim.SGD([torch.zeros(1)]).__dict__) | {"grad_scale", "found_inf", "_opt_called"}
_LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS = (list, dict, set)
_ABSENT = object()
_CLASS = "__class__"  # takes the place of an attribute's name


def is_of_module(entry: str) -> bool:
    """Return whether an entry belongs to a registered module, and not to something that was registered as a value."""
    return "/attribute/" in entry or "/extra/" in entry or entry.endswith("/attribute-requires_grad")


@dataclass(frozen=True)
class _Places:
    """The containers and objects whose attributes are noted at a begin."""

    dicts: list[dict[Any, Any]]  # of attributes, parts, parameters, buffers; plain dicts
    lists: list[Any]  # plain lists and sets
    parameters: list[torch.Tensor]
    wrappers: list[torch.nn.Module]  # whose other attributes a framework keeps
    tables: list[dict[str, Any]]  # of parts

    def parts(self) -> list[int]:
        """Return the identities of the parts, which show whether some were added or removed."""
        return list(map(id, chain.from_iterable(table.values() for table in self.tables)))


@dataclass(frozen=True)
class NotedAttributes:
    """The attributes as of a begin."""

    places: _Places
    dicts: list[dict[Any, Any]]
    lists: list[Any]
    trained: list[bool]  # of each parameter: requires_grad
    training: list[bool]  # of each wrapper: its mode


class Attributes:
    def __init__(
        self, modules: Mapping[str, torch.nn.Module], sharding: Sharding | None = None, optimizers: Mapping[str, Optimizer] | None = None
    ) -> None:
        self._modules = modules
        self._optimizers = {} if optimizers is None else optimizers
        self._sharding = sharding or Whole()
        self.left_out: dict[int, set[str]] = {}  # by the identity of a part: attributes that something else answers for
        self._parts: list[tuple[str, torch.nn.Module]] = []  # with the prefix of their entries
        self._places = _Places([], [], [], [], [])
        self._known: list[int] | None = None  # parts, by identity
        self._extra: list[tuple[str, torch.nn.Module]] = []  # those with a `get_extra_state` of their own
        self._first: dict[str, bytes] | None = None  # as of the end of the set-up
        self._first_parts: set[str] = set()
        self._changed: list[str] = []  # those of them that were added or removed since then
        self._first_large: dict[str, int] = {}  # entries that are too large, or not on the host, with the addresses of their memory
        self._watched: set[str] = set()  # entries that have changed since then
        self._large: list[str] = []  # those of them that have changed
        self._first_histories: dict[str, weakref.ref[torch.Tensor]] = {}
        self._histories: list[str] = []  # entries with a history from the step before
        self._notes = 0

    def refresh(self) -> None:
        """Find the parts again."""
        self._parts = [
            (f"{key}/attribute/{path}", part)
            for key, module in self._modules.items()
            for path, part in module.named_modules(remove_duplicate=True)
        ]
        places = self._places = _Places([], [], [], [], [])
        for _, part in self._parts:
            if part._modules:
                places.tables.append(part._modules)
            if self._sharding.keeps_attributes(part):
                places.wrappers.append(part)
                continue
            tables = [part.__dict__, part._modules, part._buffers]
            if not self._sharding.keeps_parameters(part):
                tables.append(part._parameters)
            places.dicts.extend(table for table in tables if table)
            self._note_containers(part, _OF_EVERY_MODULE)
        for optimizer in self._optimizers.values():
            places.dicts.append(optimizer.__dict__)
            self._note_containers(optimizer, _OF_EVERY_OPTIMIZER)
        places.parameters.extend(parameter for module in self._modules.values() for parameter in module.parameters())
        self._extra = [
            (entry.replace("/attribute/", "/extra/", 1), part)
            for entry, part in self._parts
            if type(part).get_extra_state is not torch.nn.Module.get_extra_state
        ]
        self._known = places.parts()
        self._changed = sorted(self._first_parts ^ self._names()) if self._first is not None else []

    def _note_containers(self, holder: Any, left_out: Container[str]) -> None:
        for name, value in holder.__dict__.items():
            if name not in left_out and type(value) in _CONTAINERS:
                (self._places.dicts if type(value) is dict else self._places.lists).append(value)

    def _names(self) -> set[str]:
        """Return parts, with classes that another worker cannot find by their name, and the parameters and buffers that they have."""
        tensors = {f"{entry}.{name}" for entry, part in self._parts for name in (*part._parameters, *part._buffers)}
        return tensors | {entry if is_found(type(part)) else f"{entry} ({type(part).__qualname__})" for entry, part in self._parts}

    # -- redo ------------------------------------------------------------------------------------------------------------

    def note(self) -> NotedAttributes:
        """Note the attributes at begin. Takes some tens of microseconds for a hundred modules."""
        if self.moved:
            self.refresh()
        if self._notes < CLOSELY:
            self._notes += 1
            self._find_histories()
        places = self._places
        return NotedAttributes(
            places,
            [table.copy() for table in places.dicts],
            [value.copy() for value in places.lists],
            [parameter.requires_grad for parameter in places.parameters],
            [wrapper.training for wrapper in places.wrappers],
        )

    def restore(self, noted: NotedAttributes) -> None:
        """Bind again what was noted."""
        places = noted.places
        for table, before in zip(places.dicts, noted.dicts, strict=True):
            _bind(table, before)
        for value, earlier in zip(places.lists, noted.lists, strict=True):
            if type(value) is list:
                value[:] = earlier
            else:
                value.clear()
                value.update(earlier)
        for parameter, trained in zip(places.parameters, noted.trained, strict=True):
            if parameter.requires_grad != trained:
                parameter.requires_grad_(trained)
        for wrapper, training in zip(places.wrappers, noted.training, strict=True):
            wrapper.training = training
        self.refresh()

    # -- entries ---------------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Record the attributes at the end of the set-up. Changes count from now on."""
        self.refresh()
        self._first = dict(self._plain())
        self._first_parts = self._names()
        self._first_histories = {entry: weakref.ref(tensor) for entry, tensor in self._with_history()}

    def news(self) -> list[str]:
        """Return the warnings about changes that a newcomer could not follow. Cheap while there are none."""
        found: list[str] = []
        if changed := self._changed:
            part = changed[0].replace("/attribute/", ".").replace("..", ".")
            found.append(registered.PARTS_CHANGED(part=part, count=len(changed)))
        if self._large:
            found.append(registered.ATTRIBUTE_LARGE(attribute=self._large[0].replace("/attribute/", ".")))
        if self._histories:
            found.append(registered.ATTRIBUTE_KEEPS_GRAPH(attribute=self._histories[0].replace("/attribute/", ".")))
        return found

    def _with_history(self) -> Iterator[tuple[str, torch.Tensor]]:
        wrappers = set(map(id, self._places.wrappers))
        for prefix, part in self._parts:
            for name, value in part.__dict__.items() if id(part) not in wrappers else ():
                items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
                found = next((one for one in items if isinstance(one, torch.Tensor) and has_history(one)), None)
                if found is not None and name not in _computed(part):
                    yield f"{prefix}:{name}", found

    def _find_histories(self) -> None:
        for entry, tensor in self._with_history():
            first = self._first_histories.get(entry)
            if (first is None or first() is not tensor) and entry not in self._histories:
                self._histories.append(entry)

    @property
    def moved(self) -> bool:
        """Return whether parts were added or removed since the last check. Takes some microseconds."""
        return self._places.parts() != self._known

    def encoded(self, only: Container[str] | None, closely: bool) -> dict[str, bytes]:
        """Return the extra state and the attributes that have changed since the set-up: all if `closely`, else those found before."""
        found = {entry: encode(part.get_extra_state()) for entry, part in self._extra if only is None or entry in only}
        if self._first is None:
            return found
        if closely:
            self.refresh()
            now = dict(self._plain())
            self._watched |= {entry for entry in now.keys() | self._first.keys() if now.get(entry) != self._first.get(entry)}
            return found | {entry: now.get(entry, encode([])) for entry in self._watched if only is None or entry in only}
        if self._watched:
            wanted = {entry for entry in self._watched if only is None or entry in only}
            there = dict(self._plain(wanted))
            found |= {entry: there.get(entry, encode([])) for entry in wanted}
        return found

    def load(self, entry: str, data: bytes) -> None:
        """Set an entry on a newcomer. Raises `UnderstudyError` for a part that it does not have."""
        if "/extra/" in entry:
            next(part for name, part in self._extra if name == entry).set_extra_state(decode(data))
            return
        self._watched.add(entry)
        if entry.endswith("/attribute-requires_grad"):
            self._load_trained(entry, decode(data)[0])
            return
        prefix, _, name = entry.rpartition(":")
        part = next((part for known, part in (*self._parts, *self._others()) if known == prefix), None)
        if part is None:
            raise UnderstudyError(registered.PART_MISSING(entry=entry))
        value = decode(data)
        if name == _CLASS and isinstance(part, torch.nn.Module):
            if value:  # else there is no such part
                give_class(part, entry, value)
            return
        if not value:
            part.__dict__.pop(name, None)
            return
        mine = part.__dict__.get(name, _ABSENT)
        new = value[0]
        if type(mine) is list and type(new) is list:
            mine[:] = new
        elif type(mine) in (dict, set) and type(mine) is type(new):
            mine.clear()
            mine.update(new)
        elif isinstance(new, torch.Tensor) and _is_plain(mine, 0) and _is_alike(mine, new):
            with torch.no_grad():
                mine.copy_(new)
        else:
            part.__dict__[name] = new

    def undo(self, given: Container[str]) -> None:
        """Undo, on a newcomer, what its way through the script has changed and no rank has `given` to it: set it as the set-up left it."""
        for entry in self.encoded(None, closely=True):
            if "/extra/" not in entry and entry not in given:
                self.load(entry, (self._first or {}).get(entry, encode([])))

    def _load_trained(self, entry: str, frozen: list[str]) -> None:
        key = entry.removesuffix("/attribute-requires_grad")
        for name, parameter in self._modules[key].named_parameters():
            if parameter.requires_grad is (name in frozen):
                parameter.requires_grad_(name not in frozen)

    def everything(self) -> dict[str, bytes]:
        """Return every attribute that could be moved, whether it has changed or not."""
        self.refresh()
        return self.present()

    def present(self) -> dict[str, bytes]:
        """Return every attribute of the known parts that could be moved, without searching for other parts."""
        return dict(self._plain())

    def _plain(self, only: Set[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """Return every attribute that can be moved, encoded; or `only` some."""
        for key, module in self._modules.items():
            entry = f"{key}/attribute-requires_grad"
            if only is None or entry in only:
                yield entry, encode([[name for name, parameter in module.named_parameters() if not parameter.requires_grad]])
        wrappers = set(map(id, self._places.wrappers))
        prefixes = None if only is None else {entry.rpartition(":")[0] for entry in only}
        for prefix, part in self._parts:
            if prefixes is not None and prefix not in prefixes:
                continue
            if id(part) in wrappers:
                yield f"{prefix}:training", encode([part.training])
                continue
            if only is None or f"{prefix}:{_CLASS}" in only:
                yield f"{prefix}:{_CLASS}", named(type(part))
            yield from self._plain_of(prefix, part, _OF_EVERY_MODULE | _computed(part) | self.left_out.get(id(part), set()), only)
        for prefix, optimizer in self._others():
            yield from self._plain_of(prefix, optimizer, _OF_EVERY_OPTIMIZER, only)

    def _others(self) -> list[tuple[str, Optimizer]]:
        return [(f"{key}/attribute/", optimizer) for key, optimizer in self._optimizers.items()]

    def _plain_of(self, prefix: str, holder: Any, left_out: Container[str], only: Container[str] | None) -> Iterator[tuple[str, bytes]]:
        for name, value in list(holder.__dict__.items()):
            entry = f"{prefix}:{name}"
            if name in left_out or (only is not None and entry not in only) or not _is_plain(value, 0):
                continue
            if isinstance(value, torch.Tensor) and self._is_large(value):
                if self._first is None:
                    self._first_large[entry] = value.data_ptr()
                elif self._first_large.get(entry) != value.data_ptr() and entry not in self._large:
                    self._large.append(entry)
                continue
            try:
                data = encode([value])
            except (Unencodable, ValueError):
                continue
            if len(data) <= LARGEST:
                yield entry, data

    @staticmethod
    def _is_large(value: torch.Tensor) -> bool:
        return value.device.type != "cpu" or value.numel() * value.element_size() > LARGEST


def _computed(part: torch.nn.Module) -> set[str]:
    """Return the attributes that each forward pass computes from parameters: torch's older weight norm, spectral norm, and pruning."""
    if not part._forward_pre_hooks:
        return set()
    hooks = [hook for hook in part._forward_pre_hooks.values() if type(hook).__module__.startswith("torch.nn.utils.")]
    return {str(getattr(hook, "name", None) or getattr(hook, "_tensor_name", None)) for hook in hooks}


def _is_alike(mine: Any, new: torch.Tensor) -> bool:
    return isinstance(mine, torch.Tensor) and mine.shape == new.shape and mine.dtype == new.dtype


def _bind(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Set `table` to its earlier content `before`, without touching entries that are the same."""
    for name in [name for name in table if name not in before]:
        del table[name]
    for name, value in before.items():
        if table.get(name, _ABSENT) is not value:
            table[name] = value
    if list(table) != list(before):
        table.clear()
        table.update(before)


def is_plain_attribute(value: Any) -> bool:
    """Return whether an attribute of a registered module can be given to a newcomer, regardless of its size."""
    return _is_plain(value, 0)


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _LEAVES:
        return True
    if kind is torch.Tensor:
        small = depth == 0 or (value.device.type == "cpu" and value.numel() * value.element_size() <= LARGEST)
        return small and value.layout is torch.strided and not (value.requires_grad if value.is_leaf else has_history(value))
    if depth > 4:
        return False
    if kind in (list, tuple, set, frozenset):
        return len(value) <= 1024 and all(_is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return len(value) <= 1024 and all(type(k) in _LEAVES and _is_plain(v, depth + 1) for k, v in value.items())
    return False
