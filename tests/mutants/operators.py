"""What is changed: one place of a syntax tree at a time, so that the program means something else.

Left alone are texts for people (literals, f-strings, calls of `tell` and `note`), annotations, docstrings and what is only declared (fields
of classes, constants of a module's top): a change there is either no change of meaning or one that every test would see.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FOR_PEOPLE = ("tell", "note")

_NOT_IN = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """`number`: of this change among all in its file, always the same for the same source."""

    number: int
    line: int
    function: str
    what: str

    def __str__(self) -> str:
        return f"{self.function}:{self.what}"


def mutants(source: str) -> list[Mutant]:
    """All of one file, in the order of its lines."""
    return [Mutant(number, line, function, what) for number, (line, function, what, _) in enumerate(_changes(ast.parse(source)))]


def mutated(source: str, number: int) -> ast.Module:
    """The file with one change."""
    tree = ast.parse(source)
    for index, (_, _, _, change) in enumerate(_changes(tree)):
        if index == number:
            change()
            return ast.fix_missing_locations(tree)
    raise IndexError(f"there is no mutant {number}")


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, str, Callable[[], None]]]:
    """Line, function, words and the change itself, which must be made before the next is asked for."""
    for function, node in _inside_functions(tree):
        for field, value in ast.iter_fields(node):
            if field in _NOT_IN or (isinstance(node, ast.FunctionDef) and field != "body"):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.expr | ast.stmt) or _for_people(child):
                    continue
                for what, changed in _of(child):
                    yield child.lineno, function, what, _replacing(node, field, index, changed)
                if isinstance(child, ast.stmt) and _can_go(child):
                    line = ast.unparse(child).partition("\n")[0]
                    yield child.lineno, function, f"without {line}", _replacing(node, field, index, ast.Pass())


def _replacing(node: ast.AST, field: str, index: int | None, changed: ast.AST) -> Callable[[], None]:
    def apply() -> None:
        siblings = getattr(node, field)
        old = siblings if index is None else siblings[index]
        ast.copy_location(changed, old)
        if index is None:
            setattr(node, field, changed)
        else:
            siblings[index] = changed

    return apply


def _inside_functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every function and every node in its body, with its name."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            if not _for_people(child):
                yield from walk(child)

    for top in tree.body:
        for one in top.body if isinstance(top, ast.ClassDef) else [top]:
            if isinstance(one, ast.FunctionDef):
                name = f"{top.name}.{one.name}" if isinstance(top, ast.ClassDef) else one.name
                yield from ((name, node) for node in walk(one))


def _for_people(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Expr):
        value = node.value
        if isinstance(value, ast.Constant):
            return True
        return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _FOR_PEOPLE
    return False


def _can_go(statement: ast.stmt) -> bool:
    if _for_people(statement):
        return False
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    if isinstance(statement, ast.Return):
        return statement.value is None
    return isinstance(statement, ast.Expr | ast.AugAssign | ast.Continue | ast.Break | ast.Delete | ast.Raise)


def _of(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """What could stand in the place of `node`, and what is changed, in words."""
    text = ast.unparse(node) if isinstance(node, ast.expr) else ""
    for other in _others(node) if isinstance(node, ast.expr) else ():
        yield f"{text} -> {ast.unparse(other)}", other
    if isinstance(node, ast.If):
        for answer in (True, False):
            yield f"if {ast.unparse(node.test)} -> if {answer}", ast.If(ast.Constant(answer), node.body, node.orelse)


def _others(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            ops = [*node.ops[:number], _OTHER[type(operator)](), *node.ops[number + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        for number in range(len(node.values)):
            rest = [value for index, value in enumerate(node.values) if index != number]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield ast.Call(ast.Name(_CALLS[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        for number, part in enumerate(node.generators):
            for at in range(len(part.ifs)):
                without = ast.comprehension(part.target, part.iter, [*part.ifs[:at], *part.ifs[at + 1 :]], part.is_async)
                yield type(node)(node.elt, [*node.generators[:number], without, *node.generators[number + 1 :]])
