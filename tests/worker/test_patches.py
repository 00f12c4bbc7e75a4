"""What is put in the place of something of torch's or Python's: by one module only, and taken away without harm to what others put."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import understudy.worker
from understudy.worker import patches

WORKER = Path(understudy.worker.__file__).parent
MODULES = [path for path in sorted(WORKER.rglob("*.py")) if path.name != "patches.py" and path.parent.name != "doctor"]
# What else assigns to something that was imported, and why.
ELSEWHERE = {
    ("__main__", "sys.argv"): "what a script is given",
    ("process.template", "sys.argv"): "likewise",
}


def assigned(tree: ast.AST) -> Iterator[str]:
    """Attributes of what was imported from outside of Understudy that are assigned to, or deleted, by whatever statement or call."""
    foreign: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            foreign |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names if not alias.name.startswith("understudy")}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("understudy"):
            foreign |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and _root(node) in foreign:
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr") and node.args and _root(node.args[0]) in foreign:
            yield f"{ast.unparse(node.args[0])}.{ast.unparse(node.args[1])}"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(path.relative_to(WORKER).with_suffix("").parts))
def test_nothing_else_assigns_to_torch_or_python(path: Path) -> None:
    name = ".".join(path.relative_to(WORKER).with_suffix("").parts)
    found = {target for target in assigned(ast.parse(path.read_text())) if (name, target) not in ELSEWHERE}
    assert not found, f"{name} assigns to {sorted(found)}: `understudy.worker.patches` is the one that does"


def test_assignments_are_found_however_they_are_written() -> None:
    source = """
import torch
import torch.distributed as dist
from torch.distributed import Work
from understudy.worker import session
torch.save = 1
dist.barrier: int = 2
Work.wait = None
del Work.wait
setattr(torch.nn.Module, "to", 3)
session.current = 4
local = torch.nn.Module(); local.value = 5
"""
    expected = ["Work.wait", "Work.wait", "dist.barrier", "torch.nn.Module.'to'", "torch.save"]
    assert sorted(assigned(ast.parse(source))) == expected


class Owner:
    def double(self, number: int) -> int:
        return 2 * number


class Heir(Owner):
    pass


def add(amount: int) -> Any:
    return lambda function, owner, number: function(owner, number) + amount


def test_patches_of_one_function_are_a_stack() -> None:
    stock = Owner.double
    lower, upper = patches.wrap(Owner, "double", add(1), "one"), patches.wrap(Owner, "double", add(10), "ten")
    assert Owner().double(3) == 17
    assert [(patch.target, patch.why, patch.by) for patch in patches.installed()[-2:]] == [
        (f"{__name__}.Owner.double", "one", __name__),
        (f"{__name__}.Owner.double", "ten", __name__),
    ]
    lower.remove()
    assert Owner().double(3) == 16, "the one below does nothing any more"
    upper.remove()
    assert Owner().double(3) == 6
    lower.remove()
    assert lower not in patches.installed() and upper not in patches.installed()
    assert Owner().double(3) == stock(Owner(), 3)


def test_a_later_patch_of_another_library_stays() -> None:
    patch = patches.wrap(Owner, "double", add(1), "one")
    below = Owner.double
    Owner.double = lambda self, number: 100 * below(self, number)  # type: ignore[method-assign]
    patch.remove()
    assert Owner().double(3) == 600
    Owner.double = below  # type: ignore[method-assign]
    assert Owner().double(3) == 6


def test_an_inherited_attribute_is_inherited_again() -> None:
    patch = patches.wrap(Heir, "double", add(1), "one")
    assert (Heir().double(3), Owner().double(3)) == (7, 6)
    patch.remove()
    assert "double" not in vars(Heir)


def test_another_object_in_its_place() -> None:
    owner: Any = ModuleType("module")
    owner.thing = 1
    patch = patches.put(owner, "thing", 2, "two")
    assert (owner.thing, patch.target) == (2, "module.thing")
    patch.remove()
    assert owner.thing == 1


def test_a_method_of_one_object() -> None:
    class Counts:
        def count(self) -> int:
            return 1

    one, other = Counts(), Counts()
    patch = patches.wrap(one, "count", lambda stock: stock() + 1, "one more")
    assert (one.count(), other.count(), patch.target.rpartition(".")[2]) == (2, 1, "count")
    patch.remove()
    assert one.count() == 1 and vars(one) == {}


def test_after_join_every_patch_is_known() -> None:
    """All that a rank has put in place in its set-up, with a reason for each."""
    program = """
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from understudy.worker import patches
from understudy.worker.collectives.interception import intercept
from understudy.worker.transport.groups import Groups
stock = dist.distributed_c10d.ProcessGroupGloo
Groups().install()
intercept()
names = {patch.target for patch in patches.installed()}
assert {"torch.distributed.distributed_c10d.ProcessGroupGloo", "torch.distributed.distributed_c10d.Work.wait"} <= names, names
assert all(patch.why and patch.by.startswith("understudy.worker.") for patch in patches.installed())
for patch in reversed(patches.installed()):
    patch.remove()
assert dist.distributed_c10d.ProcessGroupGloo is stock and patches.installed() == []
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ), timeout=120)
    assert done.returncode == 0, done.stderr
