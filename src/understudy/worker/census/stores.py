"""Finds the line of the script's source that stores what the census has found, so that a notice can name it.

A thing is known by its last name: `counter`, or `noise` of `settings.noise`, or `meters` of `trainer.meters['top5']`. The search is for
code that sets that name, or an item of it, or calls what changes it (`.append`, `.add_`, `next(...)`): for a variable in its scope, for
an attribute in all modules of the script. In a loop, or in a function that is no constructor, it is more likely to be where the
training does it.

Known limits: names only. What is changed under another name (an alias, an argument) is not found, and of two objects with an attribute
of the same name the wrong line may be named, unless one is set as `self.NAME` in a class of another thing. Without source nothing is
found, nor in modules after the first `SOURCE` characters of those in which the name occurs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path as File

from understudy.worker.census import roots
from understudy.worker.census.carried import is_of_job
from understudy.worker.census.roots import CLASS, CLOSURE, FRAME, FUNCTION, MODULE, PROCESS, RootKey
from understudy.worker.census.walk import OF_CONTAINERS, Path, described_entry
from understudy.worker.guards.loop_variables import inside, nodes_of, text_of
from understudy.worker.state.unregistered import is_unregistered

_CHANGE = {
    "append",
    "appendleft",
    "extend",
    "insert",
    "add",
    "update",
    "pop",
    "popleft",
    "remove",
    "discard",
    "clear",
    "setdefault",
    "sort",
}
_CHANGE |= {"reverse", "fill", "send", "__next__"}
_CONSTRUCTORS = ("__init__", "__post_init__", "__new__")
_LONGEST = 30  # characters of a first value
SOURCE = 1 << 17  # characters of all sources that are searched for a name: the ranks wait meanwhile
_PLAIN = ("float", "int", "list", "dict", "torch", "numpy", "np")  # that may be called in a plain value
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Store:
    """A place in a source that stores a name."""

    file: str
    line: int
    value: str  # the value that it is set to, if the statement does nothing else, and is short
    training: bool  # probably while the script trains, not before
    likely: bool  # it is where the thing's owner suggests
    drawn: bool  # nothing is stored: an item is drawn from it
    of_job: bool  # it is in a loop of the job
    prefix: str  # of names that would be defined there

    @property
    def shown(self) -> str:
        return f"{File(self.file).name}:{self.line}"


def where(path: Path, owner: type | None) -> str:
    """Return the place, as `train.py:41`; if no visible code stores it, the module or function that contains it. `owner`: the type whose
    attribute has the name.
    """
    found = sorted(_stores(path, owner), key=lambda one: (not one.training, not one.likely, bool(one.value), one.file, one.line))
    return found[0].shown if found else home(path.root)


def is_drawn(path: Path, owner: type | None, transactions: Iterable[str]) -> bool:
    """Return whether it is drawn from, by `next` or in a `for`, in a loop of the job or in one of the `transactions` (qualified names)."""
    inside_of = tuple(f"{name}.<locals>." for name in transactions)
    return any(one.drawn and (one.of_job or one.prefix.startswith(inside_of)) for one in _stores(path, owner))


def first_value(path: Path, owner: type | None) -> str:
    """Return the source of the value that the set-up sets it to; "" if that is unknown."""
    found = [one for one in _stores(path, owner) if one.value and not one.training]
    return min(found, key=lambda one: (not one.likely, one.file, one.line)).value if found else ""


def home(root: RootKey) -> str:
    """Return the module, class or function, for a person."""
    kind, name = root
    if kind == PROCESS:
        return name
    if kind != MODULE:
        return name if kind == FRAME else f"{'class' if kind == CLASS else 'function'} {name.removeprefix('__main__.')}"
    file = getattr(sys.modules.get(name), "__file__", None)
    return File(file).name if file else name


def called(entry: str) -> str:
    """Return the name of an entry for a person: for an unregistered one the script's name for it, and its place."""
    if not is_unregistered(entry):
        return entry
    root, name = described_entry(entry)
    return f"{name} ({home(root)})"


def last_name(path: Path) -> str:
    """Return the name by which it is stored."""
    steps = _named(path).steps
    return str(steps[-1][1]) if steps else path.name.removesuffix("=")


def owner_of(path: Path) -> Path | None:
    """Return the path of the object whose attribute has its last name; None for a variable."""
    named = _named(path)
    return Path(path.root, path.name, named.steps[:-1]) if named.steps else None


def _named(path: Path) -> Path:
    """Return the path up to its last name, without the items after it."""
    names = [number for number, (kind, _) in enumerate(path.steps, 1) if kind not in OF_CONTAINERS]
    return Path(path.root, path.name, path.steps[: names[-1] if names else 0])


@dataclass(frozen=True)
class _Where:
    """The place of a node in a source."""

    file: str
    prefix: str = ""  # of names that are defined there, in their qualified names
    kind: str = ""  # the class, if there is one
    in_body: bool = False  # of that class, and in no function
    looping: bool = False
    of_job: bool = False  # in a loop of the job
    called: bool = False  # in a function that runs while the script trains, as far as can be seen
    visible: bool = True  # a variable of the searched scope is visible here


def _stores(path: Path, owner: type | None) -> Iterator[Store]:
    name, holder, last = last_name(path), owner_of(path), path.root[1].rpartition(".")[2]
    of_object = holder is not None or (path.root[0] in (CLASS, FUNCTION) and not path.name.endswith("="))
    kinds = {kind.__name__ for kind in owner.__mro__} if owner is not None else {last} if path.root[0] == CLASS else set()
    near = {"self", "cls", last_name(holder) if holder is not None else last}
    for node, at in _nodes(path, name, of_object):
        for target, value in _stored(node, name):
            base = _without_items(target)
            if of_object and isinstance(base, ast.Attribute) and base.attr == name:
                likely = (base.value.attr if isinstance(base.value, ast.Attribute) else getattr(base.value, "id", "")) in near
                if kinds and at.kind and at.kind not in kinds and getattr(base.value, "id", "") in ("self", "cls"):
                    continue
            elif isinstance(base, ast.Name) and base.id == name and (at.in_body and at.kind in kinds if of_object else at.visible):
                likely = True
            else:
                continue
            text = ast.unparse(value) if value is not None and target is base and _is_plain(value) else ""
            drawn = isinstance(base.ctx, ast.Load) and (isinstance(node, ast.For) or isinstance(getattr(node, "func", None), ast.Name))
            yield Store(at.file, target.lineno, text, at.looping or at.called, likely, drawn, at.of_job, at.prefix)


def _is_plain(value: ast.expr) -> bool:
    """Return whether a value is short, and no object that might not be movable."""
    if value.end_lineno != value.lineno or (value.end_col_offset or 0) - value.col_offset > _LONGEST:
        return False
    return all(ast.unparse(node.func).partition(".")[0] in _PLAIN for node in ast.walk(value) if isinstance(node, ast.Call))


def _nodes(path: Path, name: str, of_object: bool) -> Iterator[tuple[ast.AST, _Where]]:
    """Yield the nodes that may store it."""
    kind, root = path.root
    room = SOURCE
    for module, names in roots.modules():
        file = str(names["__file__"])
        text = text_of(file)
        if name not in text:
            continue
        room -= len(text)
        if room < 0 and module != "__main__":
            return
        tree = next(iter(nodes_of(file)), None)
        if tree is None:
            continue
        if of_object:
            yield from _below(tree, _Where(file), "")
        elif kind == MODULE:
            yield from _below(tree, _Where(file), name) if module == root else ()
        else:
            short, _, inner = root.partition(":") if kind == FRAME else (File(file).name, "", root)
            inner = inner.removeprefix(f"{module}.") if kind == FUNCTION else inner
            wanted = inner.rpartition(".<locals>.")[0] if kind == CLOSURE else inner
            for node, at in _below(tree, _Where(file), "") if short == File(file).name else ():
                if isinstance(node, _Function) and at.prefix == f"{wanted}.<locals>.":
                    yield from _below(node, _Where(file, prefix=at.prefix, called=kind == FUNCTION), name)


def _below(node: ast.AST, at: _Where, variable: str) -> Iterator[tuple[ast.AST, _Where]]:
    """Yield all nodes below, each with its place. `variable`: hidden where a function has its own variable with this name."""
    waiting = [(node, at)]
    while waiting:
        node, at = waiting.pop()
        for child in ast.iter_child_nodes(node):
            below = _inside(child, at, variable)
            yield child, below
            waiting.append((child, below))


def _inside(node: ast.AST, at: _Where, variable: str) -> _Where:
    """Return the place of the nodes below one."""
    if isinstance(node, ast.ClassDef):
        return replace(at, prefix=f"{at.prefix}{node.name}.", kind=node.name, in_body=True, looping=False)
    if isinstance(node, _Function):
        name, visible = getattr(node, "name", "<lambda>"), at.visible and not _has_own(node, variable)
        prefix = f"{at.prefix}{name}.<locals>."
        return replace(at, prefix=prefix, in_body=False, looping=False, called=name not in _CONSTRUCTORS, visible=visible)
    if isinstance(node, ast.For | ast.AsyncFor):
        return replace(at, looping=True, of_job=at.of_job or is_of_job(node.iter))
    return replace(at, looping=True) if isinstance(node, ast.While) else at


def _has_own(function: _Function, name: str) -> bool:
    """Return whether a variable of that name is the function's own."""
    own = inside(function)
    if any(isinstance(node, ast.Global | ast.Nonlocal) and name in node.names for node in own):
        return False
    names = {node.arg for node in own if isinstance(node, ast.arg)}
    return name in names | {node.id for node in own if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _without_items(target: ast.AST) -> ast.AST:
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    return target


def _stored(node: ast.AST, name: str) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield the names that are stored or changed there, and their new values."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                yield from ((part, None) for part in target.elts)
            else:
                yield target, node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        yield from [(node.target, node.value)] if node.value is not None else ()
    elif isinstance(node, ast.AugAssign):
        yield node.target, None
    elif isinstance(node, ast.Delete):
        yield from ((target, None) for target in node.targets)
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from ((part, None) for part in ast.walk(node.target) if isinstance(part, ast.expr))
        yield from ((part, None) for part in ast.walk(node.iter) if isinstance(part, ast.Name | ast.Attribute))  # its source
    elif isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and (called.attr in _CHANGE or (called.attr[-1:] == "_" and called.attr[:1] != "_")):
            yield called.value, None
        elif isinstance(called, ast.Name) and called.id == "next" and node.args:
            yield node.args[0], None
        elif isinstance(called, ast.Name) and called.id == "setattr" and len(node.args) == 3:
            key = node.args[1]
            if isinstance(key, ast.Constant) and key.value == name:
                yield ast.copy_location(ast.Attribute(node.args[0], name, ast.Store()), node), node.args[2]
