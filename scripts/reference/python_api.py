"""python.md: the public names of the package `understudy`, with their signatures and docstrings, read from the sources without torch."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

from scripts.generated import ROOT
from scripts.reference.markdown import code, paragraphs, table

import understudy

JOB = "understudy.worker.api.job"  # the module of `Job` and `join`
PACKAGE = ROOT / "src"
ABOUT = """
The API for training scripts. `import understudy` does not import torch; the first use of `join` does.
[Your script](../script/index.md) explains how to use it.
"""
_Definition = ast.FunctionDef | ast.ClassDef


def pages() -> dict[str, str]:
    found = definitions()
    job, join, error = (found[name] for name in ("Job", "join", "UnderstudyError"))
    assert isinstance(job, ast.ClassDef) and isinstance(join, ast.FunctionDef)
    lines = [
        "# Python",
        "",
        *paragraphs(ABOUT),
        "",
        "## understudy.join",
        "",
        *_function(join),
        "",
        "## understudy.Job",
        "",
        *_prose(job),
        "",
        *table(["attribute", "type", "meaning"], _properties(job)),
    ]
    for method in _methods(job):
        lines += ["", f"### job.{method.name}", "", *_function(method)]
    lines += ["", "## understudy.UnderstudyError", "", *_prose(error), "", "It is a `RuntimeError`."]
    return {"python.md": "\n".join(lines)}


def definitions() -> dict[str, _Definition]:
    """Of each public name but the version, from the module that the package imports it from for type checkers."""
    tree = ast.parse((PACKAGE / "understudy" / "__init__.py").read_text())
    modules = {name.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module for name in node.names}
    return {name: _definition(modules[name], name) for name in understudy.__all__ if name != "__version__"}


def _definition(module: str, name: str) -> _Definition:
    tree = ast.parse(_source(module))
    return next(node for node in tree.body if isinstance(node, _Definition) and node.name == name)


def _source(module: str) -> str:
    return (PACKAGE / f"{module.replace('.', '/')}.py").read_text()


def _methods(of: ast.ClassDef) -> list[ast.FunctionDef]:
    """The public ones. Of an overloaded one the implementation, which comes last."""
    found = {node.name: node for node in of.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    return [node for node in found.values() if not _is_property(node)]


def _properties(of: ast.ClassDef) -> Iterator[list[str]]:
    for node in of.body:
        if isinstance(node, ast.FunctionDef) and _is_property(node):
            kind = ast.unparse(node.returns) if node.returns else ""
            yield [code(f"job.{node.name}"), code(kind), " ".join(_docstring(node).split())]


def _is_property(node: ast.FunctionDef) -> bool:
    return "property" in map(ast.unparse, node.decorator_list)


def _function(node: ast.FunctionDef) -> Iterator[str]:
    lines = _source(JOB).splitlines()[node.lineno - 1 : node.body[0].lineno - 1]
    yield from ("```python", *f"{textwrap.dedent(chr(10).join(lines))} ...".splitlines(), "```", "", *_prose(node))


def _prose(node: _Definition) -> list[str]:
    return paragraphs(inspect.cleandoc(_docstring(node)))


def _docstring(node: _Definition) -> str:
    found = ast.get_docstring(node)
    if not found:
        raise ValueError(f"{node.name} has no docstring")
    return found
