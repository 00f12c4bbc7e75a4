"""A bounded walk over everything that is reachable from the roots: only dictionaries, slots, containers and cells, and no code of the
script is run.

It visits objects whose class is Python's own or the script's, or that of a library that keeps state of a training. Objects that it does
not go into, such as functions, objects of other libraries and registered ones, are its ends: `reach` compares what is reachable from
them.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from understudy.messages import encoding
from understudy.worker.census.leaves import LONGEST, Room, is_address, is_bound, is_leaf
from understudy.worker.census.roots import CLASS, FRAME, RootKey, Table
from understudy.worker.encoding.codec import decode, encode
from understudy.worker.errors import BadMessage
from understudy.worker.state.history import has_history
from understudy.worker.state.unregistered import PREFIX

MOST = 20_000  # objects of one walk; running frames may have as many more
_ROOM = 20 * MOST  # items of values in one walk
_DEEPEST = 12
_FOREIGN = frozenset(
    [
        *("torch", "numpy", "understudy", "wandb", "mlflow", "tensorboard", "tensorboardX", "tqdm", "rich", "pytest", "_pytest"),
        *sys.stdlib_module_names,
    ]
)
# Objects of these keep state of a training.
_OF_TORCH = ("torch.optim.lr_scheduler", "torch.amp", "torch.optim.swa_utils", "torch.distributed.algorithms.model_averaging")
_CONSTANTS = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN_OBJECTS = (types.SimpleNamespace, argparse.Namespace)
_EMPTY: tuple[Any, ...] = ([], (), {}, set(), range(1), "")
_ITERATORS = tuple(type(iter(some)) for some in _EMPTY)
OPAQUE = (itertools.cycle, itertools.chain, itertools.islice, zip, map, filter, enumerate)  # their position cannot be read
_MOVING: tuple[type, ...] = (_BaseDataLoaderIter, types.GeneratorType, types.CoroutineType, itertools.count, *OPAQUE, *_ITERATORS)
_NO_STATE = (
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, property, staticmethod, classmethod),
    *(torch.optim.Optimizer, torch.distributed.ProcessGroup, torch.device),
)
_LEFT_OUT = ("__", "_torch", "_dynamo", "_abc_", "@py_")  # names that Python, compilers and pytest keep in objects and frames
_OF_MODULES = frozenset(torch.nn.Module().__dict__) - {"training", "_parameters", "_buffers", "_modules"}
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE

# ("attribute", name), ("slot", name), ("item", key), or ("place", "NUMBER TYPE") of an item whose key is an object, as a parameter: each
# worker has its own, so it is known by its number among the keys.
Step = tuple[str, Any]
OF_CONTAINERS = ("item", "place")  # kinds of steps to a thing without a name


@dataclass(frozen=True)
class Path:
    root: RootKey
    name: str  # at the root
    steps: tuple[Step, ...] = ()

    def owners(self) -> Iterator[Path]:
        """Return the paths of its owners, the nearest first."""
        return (Path(self.root, self.name, self.steps[:number]) for number in range(len(self.steps) - 1, -1, -1))

    @property
    def entry(self) -> str:
        """Return the entry, which is unique in a script, and the same on every rank."""
        return f"{PREFIX}{self.root[0]}:{self.root[1]}:{self.shown}".replace("/", "|")

    @property
    def shown(self) -> str:
        """Return the path as a person would write it."""
        parts = [f"[{key!r}]" if kind == "item" else f"[{key}]" if kind == "place" else f".{key}" for kind, key in self.steps]
        return self.name + "".join(parts)

    @functools.cached_property
    def encoded(self) -> bytes:
        """Return the path encoded, so that another worker can decode it."""
        return encode([self.root, self.name, [list(step) for step in self.steps]])

    @staticmethod
    def decoded(data: bytes) -> Path:
        """Decode a path. Raises `BadMessage`."""
        try:
            (kind, root), name, steps = decode(data)
            found = Path((str(kind), str(root)), str(name), tuple((str(how), key) for how, key in steps))
            hash(found)
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadMessage(encoding.MALFORMED_PATH(error=repr(error))) from error
        return found

    def then(self, kind: str, key: Any) -> Path:
        return Path(self.root, self.name, (*self.steps, (kind, key)))


def described_entry(entry: str) -> tuple[RootKey, str]:
    """Return the root, and the name for a person, of an entry that another rank has."""
    _, kind, rest = entry.split(":", 2)
    parts = rest.split(":", 2 if kind == FRAME else 1)
    return (kind, ":".join(parts[:-1])), parts[-1]


class Gone(LookupError):
    """Raised when there is nothing at a path any more."""


def read(path: Path, tables: Mapping[RootKey, Table]) -> Any:
    """Return the value at `path`. Raises `Gone`."""
    try:
        thing = tables[path.root].items()[path.name]
        for kind, key in path.steps:
            thing = _step(thing, kind, key)
    except (LookupError, AttributeError, TypeError) as error:
        raise Gone(path.shown) from error
    return thing


def owner_with_attributes(path: Path, tables: Mapping[RootKey, Table]) -> dict[str, Any] | None:
    """Return the attributes of the object whose attribute the last step of `path` is; None if it is no attribute. Raises `Gone`."""
    if path.steps[-1][0] != "attribute":
        return None
    owner = read(Path(path.root, path.name, path.steps[:-1]), tables)
    attributes = getattr(owner, "__dict__", None) if not isinstance(owner, _NO_STATE) else None
    return attributes if type(attributes) is dict else None


def write(path: Path, tables: Mapping[RootKey, Table], value: Any) -> None:
    """Set the value at `path`. Raises `Gone` if its owner does not exist."""
    if not path.steps:
        if path.root not in tables:
            raise Gone(path.shown)
        tables[path.root].put(path.name, value)
        return
    owner = read(Path(path.root, path.name, path.steps[:-1]), tables)
    if isinstance(owner, _NO_STATE):
        raise Gone(path.shown)
    kind, key = path.steps[-1]
    try:
        if kind == "item":
            owner[key] = value
        elif kind == "place":
            owner[_key_at(owner, key)] = value
        elif kind == "slot":
            object.__setattr__(owner, key, value)
        else:
            owner.__dict__[key] = value
    except (LookupError, AttributeError, TypeError) as error:
        raise Gone(path.shown) from error


def _step(thing: Any, kind: str, key: Any) -> Any:
    if _has_no_state(type(thing)):  # no walk goes this way
        raise LookupError(key)
    if kind == "item":
        if isinstance(thing, dict) and not dict.__contains__(thing, key):
            raise LookupError(key)  # a defaultdict would make the item
        return thing[key]
    if kind == "place":
        return thing[_key_at(thing, key)]
    return thing.__dict__[key] if kind == "attribute" else object.__getattribute__(thing, key)


_stateless: dict[type, bool] = {}


def _has_no_state(kind: type) -> bool:
    """Return whether a type has no state. Called once for every type: torch checks in Python, slowly, whether something is a process
    group.
    """
    found = _stateless.get(kind)
    if found is None:
        if len(_stateless) >= 1024:
            _stateless.clear()
        found = _stateless[kind] = issubclass(kind, _NO_STATE)
    return found


def _place(number: int, key: Any) -> str:
    return f"{number} {type(key).__qualname__}"


def is_number(text: str) -> bool:
    """Return whether a text is a number. Another worker may send anything."""
    return text.isdecimal() and len(text) < 10


def _key_at(thing: Any, place: str) -> Any:
    """Return the key at a place. Raises `LookupError` if there is none."""
    number, _, _ = place.partition(" ")
    for key in itertools.islice(thing, int(number), None) if isinstance(thing, dict) and is_number(number) else ():
        if _place(int(number), key) != place:
            break
        return key
    raise LookupError(place)


@dataclass
class WalkResult:
    """The result of one walk."""

    leaves: dict[str, tuple[Path, Any]] = field(default_factory=dict)
    moving: dict[str, tuple[Path, Any]] = field(default_factory=dict)  # iterators and the like: seen to move, but cannot be set
    histories: dict[str, tuple[Path, torch.Tensor]] = field(default_factory=dict)  # tensors that a backward could go through
    ends: list[tuple[Path, Any]] = field(default_factory=list)  # not gone into
    bound: dict[Path, Path | str] = field(default_factory=dict)  # its type, of another name of a thing the first name
    seen: dict[int, Path] = field(default_factory=dict)  # all that was met, by id
    owners: list[tuple[Path, Any]] = field(default_factory=list)  # objects with attributes, and containers
    kept: list[Any] = field(default_factory=list)  # objects made for the walk, which must last as long as their ids
    objects: int = 0
    beyond: Path | None = None  # where the walk stopped, if it did
    unreadable: Path | None = None  # the first thing that raised when it was read


def look(
    tables: Mapping[RootKey, Table], is_covered: Callable[[Any], bool], is_ignored: Callable[[Path], bool] = lambda path: False
) -> WalkResult:
    """Walk from the roots. `is_covered`: whether a thing, with all its parts, is covered elsewhere. `is_ignored`: whether the value at a
    path need not be covered.
    """
    found, room = WalkResult(), Room(_ROOM, is_covered)
    for root, table in tables.items():
        most = 2 * MOST if root[0] == FRAME else MOST
        if found.objects >= most:
            continue
        for name, value in list(table.items().items()):
            if name.startswith(_LEFT_OUT):
                continue
            todo: list[tuple[Path, Any]] = [(Path(root, name), value)]
            while todo:
                path, thing = todo.pop()
                if is_ignored(path):
                    continue
                found.objects += 1
                if found.objects > most or room.items < 0:
                    found.beyond = found.beyond or path
                    break
                try:
                    todo.extend(_at(path, thing, found, room, root[0] == CLASS))
                except Exception:  # an object of the script's own that cannot be read; it must not end a step
                    found.unreadable = found.unreadable or path
    return found


def _at(path: Path, thing: Any, found: WalkResult, room: Room, of_class: bool) -> Iterator[tuple[Path, Any]]:
    kind = type(thing)
    if kind in _CONSTANTS:
        found.leaves[path.entry] = path, thing
        return
    if isinstance(thing, _MOVING):
        found.moving[path.entry] = path, thing
        found.ends.append((path, thing))  # for its sources
        return
    if isinstance(thing, _NO_STATE) or room.is_covered(thing):
        found.ends.append((path, thing))
        return
    first = found.seen.get(id(thing))
    if is_leaf(thing, room):
        if first is not None and not is_bound(thing):
            found.bound[path] = first
            return
        found.seen[id(thing)] = path
        found.leaves[path.entry] = path, thing
        if not path.steps and isinstance(thing, list | dict | set | deque):
            found.owners.append((path, thing))
        if isinstance(thing, torch.Tensor | Enum):
            found.ends.append((path, thing))  # for its attributes
        return
    if first is not None:
        found.bound[path] = first
        return
    if len(path.steps) > _DEEPEST:
        found.ends.append((path, thing))
        return
    found.seen[id(thing)] = path
    if isinstance(thing, torch.Tensor) and has_history(thing):
        found.histories[path.entry] = path, thing
    elif kind in (dict, OrderedDict, Counter, defaultdict) and len(thing) <= LONGEST:
        if any(map(_is_of_worker, list(thing))):
            found.bound[path] = f"{len(thing)} keys"  # a key more cannot be given to another worker
        found.owners.append((path, thing))
        yield from items_of(path, thing)
    elif kind in (list, tuple, deque) and len(thing) <= LONGEST:
        found.owners.append((path, thing))
        yield from ((path.then("item", number), item) for number, item in enumerate(list(thing)))
    elif isinstance(thing, torch.nn.Module):
        found.bound[path] = kind.__qualname__
        found.ends.append((path, thing))  # for its hooks
        yield from ((path.then("attribute", k), v) for k, v in list(thing.__dict__.items()) if k not in _OF_MODULES)
    elif not of_class and _is_gone_into(kind):  # type: ignore[arg-type]
        found.bound[path] = kind.__qualname__
        found.owners.append((path, thing))
        if kind.__base__ is not object:
            found.ends.append((path, thing))  # for the state of a base of its class, as the items of a dict
        yield from attributes_of(path, thing)
    else:
        del found.seen[id(thing)]  # it has not been read yet
        found.ends.append((path, thing))


def _is_of_worker(key: Any) -> bool:
    """Return whether another worker has another key in its place: an object, or its id."""
    return type(key) not in (str, int) or is_address(key)


def items_of(path: Path, thing: dict[Any, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the items of a dict, with their paths."""
    for number, (key, item) in enumerate(list(dict.items(thing))):
        yield (path.then("place", _place(number, key)) if _is_of_worker(key) else path.then("item", key)), item


def attributes_of(path: Path, thing: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the attributes of an object of a class written in Python, with their paths."""
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is dict:
        yield from (
            (path.then("attribute", name), item)
            for name, item in list(attributes.items())
            if isinstance(name, str) and not name.startswith(_LEFT_OUT)
        )
    for name in _slots(type(thing)):  # type: ignore[arg-type]
        try:
            yield path.then("slot", name), object.__getattribute__(thing, name)
        except AttributeError:  # not set
            continue


@functools.cache
def _is_gone_into(kind: Any) -> bool:
    if issubclass(kind, _PLAIN_OBJECTS):
        return True
    module = kind.__module__
    return bool(kind.__flags__ & _HEAP_TYPE) and (module.partition(".")[0] not in _FOREIGN or module.startswith(_OF_TORCH))


@functools.cache
def _slots(kind: Any) -> list[str]:
    found: list[str] = []
    for part in kind.__mro__:
        slots = part.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else [name for name in slots if isinstance(name, str)]
    return [name for name in found if name not in ("__dict__", "__weakref__")]
