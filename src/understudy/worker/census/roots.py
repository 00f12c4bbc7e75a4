"""The roots of a walk: the globals of the script's modules, attributes of its classes and functions, locals of the frames that call loops
and transactions, and what transactions have captured.

`understudy.worker.script_files` decides what belongs to the script.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import sys
import types
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any, Protocol

from understudy.worker.callables import name_of as name_of_callable
from understudy.worker.callables import parts_of
from understudy.worker.census.carried import names_set_first
from understudy.worker.census.settings import Settings
from understudy.worker.script_files import is_of_script

MODULE, CLASS, FRAME, CLOSURE, FUNCTION, PROCESS = "module", "class", "frame", "closure", "function", "process"
RootKey = tuple[str, str]  # one of these, and its name
_PLACES = 1024  # of a script that are remembered


class Table(Protocol):
    """Names and their values, at one root."""

    @property
    def of(self) -> Any:
        """Return the object that has these names."""
        ...

    def items(self) -> Mapping[str, Any]:
        """Return the present items. Must not be changed."""
        ...

    def put(self, name: str, value: Any) -> None:
        """Bind a name."""
        ...


class ModuleNames:
    """The names of a module."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.of = self._names = names

    def items(self) -> Mapping[str, Any]:
        return self._names

    def put(self, name: str, value: Any) -> None:
        self._names[name] = value


class _Class:
    def __init__(self, kind: type) -> None:
        self.of = self._kind = kind

    def items(self) -> Mapping[str, Any]:
        return vars(self._kind)

    def put(self, name: str, value: Any) -> None:
        type.__setattr__(self._kind, name, value)


class Locals:
    """The locals of a running frame."""

    def __init__(self, frame: FrameType) -> None:
        self.of = self._frame = frame
        self._names: Mapping[str, Any] = frame.f_locals

    def items(self) -> Mapping[str, Any]:
        return self._names

    def put(self, name: str, value: Any) -> None:
        self._frame.f_locals[name] = value
        if sys.version_info < (3, 13):
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(self._frame), ctypes.c_int(0))


class _Function:
    """The attributes of a function, and the defaults of its arguments."""

    def __init__(self, function: FunctionType) -> None:
        self.of = self._function = function

    def items(self) -> Mapping[str, Any]:
        code, defaults = self._function.__code__, self._function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        given = {**dict(zip(names, defaults, strict=True)), **(self._function.__kwdefaults__ or {})}
        return {**{f"{name}=": value for name, value in given.items()}, **self._function.__dict__}

    def put(self, name: str, value: Any) -> None:
        if not name.endswith("="):  # the content of a default may change, but it is always the same object
            self._function.__dict__[name] = value


class _BoundObjects:
    """The objects that a partial, a method or a callable object is bound to."""

    def __init__(self, bound: Mapping[str, Any]) -> None:
        self.of = self._bound = bound

    def items(self) -> Mapping[str, Any]:
        return self._bound

    def put(self, name: str, value: Any) -> None: ...  # their content may change, but they are always the same objects


class _Closure:
    """The variables that a function has captured."""

    def __init__(self, function: FunctionType) -> None:
        self.of = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def items(self) -> Mapping[str, Any]:
        found = {}
        for name, cell in self._cells.items():
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not set yet
                continue
        return found

    def put(self, name: str, value: Any) -> None:
        self._cells[name].cell_contents = value


def prepare() -> None:
    """Classify the modules that exist by now, so that a recovery does not have to wait for that."""
    modules()


_MAIN = "__main__"
_looked_at: set[str] = set()  # names of modules, except the main one, which becomes another when the script begins
_own: list[str] = []  # those of the script
_there = (-1, -1)  # as of the last call: how many modules, and which main one


def modules() -> list[tuple[str, dict[str, Any]]]:
    """Return the script's modules, by name. Only modules that were imported since the last call are checked."""
    global _there
    there = len(sys.modules), id(sys.modules.get(_MAIN))
    if _there != there:
        new = [name for name in list(sys.modules) if name not in _looked_at and name != _MAIN]
        _looked_at.update(new)
        _own.extend(name for name in new if is_own(name))
        _there = there
    names = [*([_MAIN] if is_own(_MAIN) else []), *_own]
    return [(name, vars(module)) for name in names if (module := sys.modules.get(name)) is not None]


def is_own(name: str) -> bool:
    """Return whether a module of this name is one of the script's."""
    module = sys.modules.get(name)
    names = getattr(module, "__dict__", None)
    file = names.get("__file__") if isinstance(names, dict) and (type(module) is types.ModuleType or name == _MAIN) else None
    return isinstance(file, str) and is_of_script(file)


def frames_here(boundary: Container[CodeType], around: FrameType | None = None) -> list[FrameType]:
    """Return the frames of the script, from the innermost on, without those that run in a transaction, and without lambdas and
    comprehensions, which carry nothing from one call to the next. `boundary`: the codes that run a transaction. `around`: the
    frame that contains the running transaction. Called several times in every step.
    """
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if frame is around:
            found.clear()
        if code in boundary:
            found.clear()
        elif _carries(code.co_filename, code.co_name):
            found.append(frame)
        frame = frame.f_back
    return found


@functools.cache
def _carries(file: str, name: str) -> bool:
    return is_of_script(file) and (name == "<module>" or not name.startswith("<"))


def name_of(frame: FrameType) -> str:
    return _name_of(frame.f_code.co_filename, frame.f_code.co_qualname)


@functools.cache
def _name_of(file: str, name: str) -> str:
    return f"{Path(file).name}:{name}"


def _is_set(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_captured(name: str, running: Iterable[RootKey]) -> bool:
    """Return whether what a function of this name captures are locals of a frame that runs."""
    outer = name.rpartition(".<locals>.")[0]
    return any(qualified.partition(":")[2] == outer for kind, qualified in running if kind == FRAME)


class Roots:
    """All roots of the script."""

    def __init__(self, boundary: Container[CodeType]) -> None:
        self._boundary = boundary
        self.around: FrameType | None = None  # that contains the running transaction, if its code is a block of the script
        self.functions: list[FunctionType] = []  # of transactions
        self._bound: dict[str, _BoundObjects] = {}  # by the name of the transaction
        self._lasting: dict[RootKey, Table] = {}  # all but frames, as of the last complete search
        self._places: dict[tuple[tuple[int, int], ...], _Place] = {}  # by code and line of each scope

    def add(self, transaction: Any) -> None:
        """Add the function or object of a transaction as a root."""
        parts = parts_of(transaction)
        self.functions += parts.functions
        if parts.bound:
            self._bound[f"{name_of_callable(transaction)} number {len(self._bound) + 1}"] = _BoundObjects(parts.bound)

    def cells(self) -> dict[str, CellType]:
        """Return what transactions have captured, by name, where it is set."""
        named = [pair for one in self.functions for pair in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True)]
        return {name: cell for name, cell in named if _is_set(cell)}

    def all(self) -> dict[RootKey, Table]:
        """Return all roots as of now."""
        found: dict[RootKey, Table] = {}
        for name, names in modules():
            found[MODULE, name] = ModuleNames(names)
            for thing in list(names.values()):
                plain = inspect.unwrap(thing) if isinstance(thing, FunctionType) else thing
                if isinstance(plain, type) and plain.__module__ == name:
                    found[CLASS, f"{name}.{plain.__qualname__}"] = _Class(plain)
                elif isinstance(plain, FunctionType) and plain.__module__ == name:
                    found[FUNCTION, f"{name}.{plain.__qualname__}"] = _Function(plain)
        for function in self.functions:
            found.setdefault((FUNCTION, f"{function.__module__}.{function.__qualname__}"), _Function(function))
        running, last = self._frames(), dict[RootKey, Table]()
        for function in self.functions:
            if function.__closure__ and not _is_captured(function.__qualname__, running):
                last[CLOSURE, function.__qualname__] = _Closure(function)
        last |= {(FUNCTION, name): table for name, table in self._bound.items()}
        last[PROCESS, "the process"] = Settings(lambda: modules())
        self._lasting = {**found, **last}
        # Most of what these hold has a name elsewhere. A closure is a root only while no frame of its function runs: if it came first, what
        # longer-lived frames hold would have another first name whenever it comes and goes.
        return {**found, **running, **last}

    def some(self, keys: Collection[RootKey], scopes: Scopes | None = None) -> dict[RootKey, Table]:
        """Return only these roots, without a search. `scopes`: those that run, if they are known."""
        if any(key[0] != FRAME and key not in self._lasting for key in keys):
            self.all()
        found = {key: self._lasting[key] for key in keys if key in self._lasting}
        if frames := [key for key in keys if key[0] == FRAME]:
            scopes = scopes or self.scopes()
            found |= {key: Locals(frame) for key in frames if (frame := scopes.frame_of(key)) is not None}
        if closures := [key for key in found if key[0] == CLOSURE]:
            scopes = scopes or self.scopes()
            for key in closures:
                if _is_captured(key[1], scopes.place.frames):  # since that search
                    del found[key]
        return found

    def of_kinds(self, kinds: Container[str], scopes: Scopes) -> dict[RootKey, Table]:
        """Return the roots of these kinds, as of the last complete search, without frames. `scopes`: those that run."""
        running = scopes.place.frames
        found = {key: table for key, table in self._lasting.items() if key[0] in kinds}
        return {key: table for key, table in found.items() if key[0] != CLOSURE or not _is_captured(key[1], running)}

    def source_of(self, root: RootKey) -> tuple[str, int] | None:
        """Return the file of a module or of a frame that runs, and the line where its function begins (of a module 0)."""
        if root[0] == MODULE:
            file = getattr(sys.modules.get(root[1]), "__file__", None)
            return (file, 0) if isinstance(file, str) else None
        frame = self.scopes().frame_of(root)
        return (frame.f_code.co_filename, frame.f_code.co_firstlineno) if frame is not None else None

    def scopes(self) -> Scopes:
        """Return the scopes of the script that run."""
        frames = frames_here(self._boundary, self.around)
        lines = tuple([(id(frame.f_code), frame.f_lineno) for frame in frames])
        known = self._places.get(lines)
        if known is None:
            if len(self._places) >= _PLACES:
                self._places.clear()
            known = self._places[lines] = _Place.of(frames)
        return Scopes(frames, known)

    def _frames(self) -> dict[RootKey, Table]:
        """Return the frames with names of their own, the outermost first: what several reach is known by the longest-lived one."""
        scopes = self.scopes()
        return {key: Locals(scopes.frames[number]) for key, number in scopes.place.frames.items()}


@dataclass(frozen=True)
class _Place:
    """The position of the script, in all scopes that run: what follows from its source alone, and is the same at every visit."""

    codes: list[CodeType]  # kept, so that a place is known by their ids
    frames: dict[RootKey, int]  # those with names of their own, by number, the outermost first
    set_first: dict[RootKey, frozenset[str] | None]  # names that need not be carried; None if that is unknown

    @staticmethod
    def of(frames: Sequence[FrameType]) -> _Place:
        set_first: dict[RootKey, frozenset[str] | None] = {}
        numbers: dict[RootKey, int] = {}
        for number, frame in reversed(list(enumerate(frames))):
            if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                numbers[FRAME, name_of(frame)] = number
        for frame in frames:
            of_module = not frame.f_code.co_flags & inspect.CO_OPTIMIZED
            key = (MODULE, str(frame.f_globals.get("__name__"))) if of_module else (FRAME, name_of(frame))
            set_first.setdefault(key, names_set_first(frame))
        return _Place([frame.f_code for frame in frames], numbers, set_first)


@dataclass(frozen=True)
class Scopes:
    """The scopes of the script that run. Looked up several times in every step."""

    frames: Sequence[FrameType]  # the innermost first
    place: _Place

    def frame_of(self, key: RootKey) -> FrameType | None:
        number = self.place.frames.get(key)
        return self.frames[number] if number is not None else None

    def is_set_each_iteration(self, root: RootKey, name: str) -> bool:
        """Return whether the running iteration sets the name again, or that is unknown."""
        names = self.place.set_first.get(root, frozenset())
        return names is None or name in names


def names_in(code: CodeType) -> set[str]:
    """Return the globals, attributes and captured names that a function, or one inside it, uses."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*inner)
