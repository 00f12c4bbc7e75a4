"""Everything of torch's insides that the worker relies on, one by one: a new torch fails here, with the name of what it has changed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import understudy.worker
from understudy.worker.doctor import base
from understudy.worker.doctor.base import Changed, Probe, module, run_probe
from understudy.worker.doctor.internals import INTERNALS, REJOINED, REPLACED, try_all, way_of_joining

WORKER = Path(understudy.worker.__file__).parent
BY_NAME = {internal.name: internal for internal in INTERNALS}
MODULES = sorted(path for path in WORKER.rglob("*.py") if "doctor" not in path.relative_to(WORKER).parts)
PYTHONS_OWN = {"sys", "os", "atexit"}  # modules with private names that are no torch's
NOT_TORCHS = {  # private names that are strings in our sources
    "_understudy",  # a mark of ours on a function of torch
    "_pytest",  # a package
    *(
        "_shutdown",
        "_threading_atexits",
        "_GeneratorContextManager",
        "_pydevd_bundle",
    ),  # of Python's threading and contextlib, and of a debugger
    "_abc_",  # Python keeps it in classes
    "_object",  # a part of names of functions that are public
    *("_thread", "_io", "_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2"),  # modules of Python
    *("_frame", "_code", "_lru_list_elem"),  # of Python's generators and caches
}
EVERY_INTERNAL = pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.name)


@EVERY_INTERNAL
def test_it_is_as_the_worker_needs_it(internal: Probe) -> None:
    found = run_probe(internal, torch.__version__)
    if found.status == base.NOT_HERE:
        pytest.skip(found.reason)
    assert found.status == base.OK, f"{internal.name} ({internal.purpose}; {', '.join(internal.used_by)}): {found.reason}"
    assert not dist.is_initialized()


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(WORKER).with_suffix("").parts)


def private_names(source: str) -> set[str]:
    """Names with an underscore that a module does not define itself: attributes, imports from torch, and strings that name attributes."""
    tree = ast.parse(source)
    own, found = set(_defined(tree)), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_ours(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            found |= {*str(node.module).split("."), *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {part for alias in node.names if alias.name.startswith("torch") for part in alias.name.split(".")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"_[a-z]\w*", node.value):
            found.add(node.value)
    return {name for name in found if re.match(r"_[^_]", name)} - own - NOT_TORCHS


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_ours(node.value):
            yield node.attr


def _is_ours(owner: ast.expr) -> bool:
    """Whether an attribute of `owner` is none of torch's: of the object itself, or of a module of Python."""
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls", *PYTHONS_OWN}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_private_name_has_an_entry(path: Path) -> None:
    known = {name for internal in INTERNALS if name_of(path) in internal.used_by for name in internal.names}
    missing = private_names(path.read_text()) - known
    assert not missing, f"{name_of(path)} uses {sorted(missing)}: add them to an entry in understudy.worker.doctor, with a probe"


def test_private_names_are_found_however_they_are_written() -> None:
    source = """
import torch._dynamo
from torch.utils.data.dataloader import _BaseDataLoaderIter as base
from torch._C import thing

class Own:
    def __init__(self): self._kept = base._made
    def look(self, other): return other._kept, self._anything, getattr(torch, "_foreach_copy_"), other.__dict__

def _helper(): sys._getframe(); _helper()._tensor()
"""
    assert private_names(source) == {"_dynamo", "_BaseDataLoaderIter", "_C", "_made", "_foreach_copy_", "_tensor"}


@EVERY_INTERNAL
def test_an_entry_names_its_users(internal: Probe) -> None:
    """The table has no entry that is not used any more."""
    sources = []
    for name in internal.used_by:
        path = WORKER.joinpath(*name.split(".")).with_suffix(".py")
        assert path.exists(), f"{internal.name} is said to be used by {name}"
        sources.append(path.read_text())
    unused = [name for name in internal.names if not any(re.search(rf"(?<!\w){name}", source) for source in sources)]
    assert not unused, f"{internal.name}: none of {internal.used_by} uses {unused}"


def test_entries_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(INTERNALS)
    assert all(internal.purpose and internal.run for internal in INTERNALS)


GONE = [  # entry, where, what is taken away there
    ("register-backend", "torch._C._distributed_c10d:ProcessGroup", "_register_backend"),
    ("group-tables", "torch.distributed.distributed_c10d", "_world"),
    ("group-helper", "torch.distributed.distributed_c10d", "_new_process_group_helper"),
    ("gloo-class", "torch.distributed.distributed_c10d", "ProcessGroupGloo"),
    ("work-from-future", "torch._C._distributed_c10d", "_create_work_from_future"),
    ("broadcast-coalesced", "torch.distributed", "_broadcast_coalesced"),
    ("ddp-reducer", "torch.distributed:Reducer", "_push_all_rebuilt_params"),
    ("ddp-new-reducer", "torch.nn.parallel:DistributedDataParallel", "_ddp_init_helper"),
    ("ddp-hooks", "torch.distributed", "_register_comm_hook"),
    ("fsdp2-reset", "torch.distributed.fsdp:FSDPModule", "reset_iter_state"),
    ("fsdp2-states", "torch.distributed.fsdp:FSDPModule", "_get_fsdp_state"),
    ("pipeline-shapes", "torch.distributed.pipelining._utils", "InferenceMode"),
    ("data-loader", "torch.utils.data:DataLoader", "_index_sampler"),
    ("save-writer", "torch.serialization", "_open_zipfile_writer"),
    ("foreach-copy", "torch", "_foreach_copy_"),
]


@pytest.mark.parametrize(("name", "where", "what"), GONE, ids=lambda value: value if ":" not in value else value.partition(":")[2])
def test_a_missing_internal_is_found(monkeypatch: pytest.MonkeyPatch, name: str, where: str, what: str) -> None:
    home, _, kind = where.partition(":")
    module("torch.distributed.fsdp"), module("torch.distributed.pipelining")
    owner: Any = getattr(module(home), kind) if kind else module(home)
    monkeypatch.delattr(owner, what)
    found = run_probe(BY_NAME[name], torch.__version__)
    assert found.status == base.MISSING
    assert found.reason


def test_what_does_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names alone are not enough."""
    fsdp, data = module("torch.distributed.fsdp"), module("torch.utils.data")
    cases = [
        ("fsdp2-reset", fsdp.FSDPModule, "reset_iter_state", lambda self: None),
        ("data-loader", data.DataLoader, "_index_sampler", property(lambda self: self.sampler)),
        ("step-hooks", torch.optim.SGD, "step", lambda self, closure=None: None),
        ("foreach-copy", torch, "_foreach_copy_", lambda targets, sources: None),
        ("save-writer", torch, "save", lambda thing, file: None),
        ("pytree", torch.utils._pytree, "tree_leaves", lambda thing: [thing]),
    ]
    for name, owner, attribute, other in cases:
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, other)
            assert run_probe(BY_NAME[name], torch.__version__).status == base.MISSING, name
        assert run_probe(BY_NAME[name], torch.__version__).status == base.OK, name


def one_of(probe: Any, **more: Any) -> Probe:
    return Probe("one", "something", (), (), probe, **more)


def test_a_probe_that_raises_is_reported_and_does_not_raise() -> None:
    def changed() -> None:
        raise Changed("other\nwords")

    def broken() -> None:
        raise KeyError("key")

    found = run_probe(one_of(changed), "2.13.0")
    assert (found.status, found.reason, found.fatal) == (base.MISSING, "other words", True)
    found = run_probe(one_of(broken, without="slower"), "2.13.0")
    assert (found.status, found.reason, found.fatal) == (base.MISSING, "KeyError: 'key'", False)


def test_an_internal_of_a_later_torch_is_not_asked_for() -> None:
    def never() -> None:
        raise AssertionError

    later = one_of(never, since="2.14", instead="another way")
    found = run_probe(later, "2.13.1+cpu")
    assert (found.status, found.reason, found.fatal) == (base.NOT_HERE, "from torch 2.14 on; until then another way", False)
    assert run_probe(later, "2.14.0").status == base.MISSING


def test_probes_leave_the_process_as_it_was() -> None:
    before, loaded = torch.get_rng_state(), dist.Work.wait
    found = list(try_all())
    assert not [one for one in found if one.status == base.MISSING]
    assert torch.equal(torch.get_rng_state(), before)
    assert dist.Work.wait is loaded and not dist.is_initialized() and "GLOO_SOCKET_IFNAME" not in os.environ


def test_the_way_of_joining_follows_from_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDERSTUDY_REJOIN", raising=False)
    asked = [run_probe(BY_NAME["reconfigure"], torch.__version__)]
    can = hasattr(torch._C._distributed_c10d, "ReconfigureOptions")
    assert way_of_joining(asked) == (REJOINED if can else REPLACED)
    assert way_of_joining([]) == REPLACED
    monkeypatch.setenv("UNDERSTUDY_REJOIN", "0")
    assert way_of_joining(asked) == REPLACED
