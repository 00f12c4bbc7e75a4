"""An internal of torch that the worker relies on, and the result of trying it.

A probe calls torch itself and not our code that uses it, so that it shows which of both has changed. It imports what it needs when it
runs: a name that is gone must not prevent the others from being tried. Probes leave nothing in the process, except for threads of Gloo.
There must be no default process group.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from understudy.common.tested import minor

OK, MISSING, NOT_HERE = "ok", "missing", "not here"
LONGEST = 300  # characters of a reason


class Changed(Exception):
    """Raised when torch is not as the worker relies on; the text describes the difference."""


class NotHere(Exception):
    """Raised when there is nothing to try in this build of torch, or with the installed packages; the text gives the reason."""


@dataclass(frozen=True)
class Probe:
    """An internal of torch. `names`: all that is used of it, as it is written in our sources; a test compares those with an underscore
    with the sources.
    """

    name: str
    purpose: str  # its use
    used_by: tuple[str, ...]  # modules, below `understudy.worker`
    names: tuple[str, ...]
    run: Callable[[], None]  # raises any exception if torch is not as the worker relies on
    without: str = ""  # what jobs lack if it is missing; "": there are no jobs then
    since: str = ""  # the first minor version that has it
    instead: str = ""  # its replacement in earlier versions


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe."""

    name: str
    status: str
    purpose: str
    used_by: tuple[str, ...]
    reason: str = ""  # why it is not ok
    without: str = ""

    @property
    def fatal(self) -> bool:
        return self.status == MISSING and not self.without


def run_probe(internal: Probe, torch_version: str) -> ProbeResult:
    """Run the probe. Never raises. `torch_version`: the one that runs."""

    def found(status: str, reason: str = "") -> ProbeResult:
        return ProbeResult(internal.name, status, internal.purpose, internal.used_by, " ".join(reason.split())[:LONGEST], internal.without)

    if internal.since and minor(torch_version) < minor(internal.since):
        return found(NOT_HERE, f"from torch {internal.since} on; until then {internal.instead}")
    try:
        with module("torch").random.fork_rng(devices=[]):
            internal.run()
    except NotHere as nothing:
        return found(NOT_HERE, str(nothing))
    except Changed as changed:
        return found(MISSING, str(changed))
    except Exception as error:
        return found(MISSING, f"{type(error).__name__}: {error}")
    return found(OK)


def has(owner: object, *names: str) -> None:
    """Check for `names`. Raises `Changed` if one is missing."""
    for name in names:
        if not hasattr(owner, name):
            shown = getattr(owner, "__name__", None) or type(owner).__name__
            raise Changed(f"{shown} has no {name}")


def expect(true: object, what: str) -> None:
    """Check a condition. Raises `Changed` if it is not `true`; `what`: the behavior relied on."""
    if not true:
        raise Changed(f"not so any more: {what}")


def expect_signature(function: Callable[..., Any], *names: str) -> None:
    """Check a signature. Raises `Changed` unless `function` has parameters with these names, in this order, before any others."""
    there = list(inspect.signature(function).parameters)
    if there[: len(names)] != list(names):
        raise Changed(f"{getattr(function, '__qualname__', function)} takes ({', '.join(there)}), not ({', '.join(names)}, ...)")


def module(name: str) -> Any:
    """Import a module as `Any`: most of the names that are used here are in no stub."""
    return importlib.import_module(name)


@contextlib.contextmanager
def replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Replace `name` of `owner`, in its own dictionary, by `other`."""
    own = vars(owner)[name]
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, own)


@contextlib.contextmanager
def loopback() -> Iterator[None]:
    """Make Gloo listen on loopback, so that no resolver and no firewall is involved."""
    name = "GLOO_SOCKET_IFNAME"
    before = os.environ.get(name)
    if any(interface == "lo" for _, interface in socket.if_nameindex()):
        os.environ[name] = "lo"
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


@contextlib.contextmanager
def world() -> Iterator[Any]:
    """Make the default process group, of this process alone, over Gloo."""
    dist, store = module("torch.distributed"), module("torch._C._distributed_c10d").HashStore()
    if dist.is_initialized():
        raise RuntimeError("this process has a default process group already")
    with loopback():
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    KEPT.append(dist.group.WORLD)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


# Communicators that are never freed: their destructor waits for Gloo's thread, and that for Python's lock, if it just frees a tensor of the
# last collective.
KEPT: list[Any] = []


def gloo() -> Any:
    """Return a Gloo communicator of this process alone, made as `transport.backends.gloo` makes its own."""
    kind, store = module("torch.distributed").ProcessGroupGloo, module("torch._C._distributed_c10d").HashStore()
    options = kind._Options()
    options._devices = [kind.create_device(hostname="127.0.0.1")]
    options._threads = 1
    options._timeout = timedelta(seconds=30)
    made = kind(store, 0, 1, options)
    KEPT.append(made)
    return made
