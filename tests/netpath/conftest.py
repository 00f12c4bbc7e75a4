"""Fixtures: the plugin with its driver, and hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.netpath import builds
from tests.netpath import hosts as namespaces
from tests.netpath.builds import Build
from tests.netpath.hosts import Hosts


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[..., Build]:
    """`builder(name, *options)` compiles, once for all workers of this run."""
    if why := builds.missing_compiler():
        pytest.skip(why)
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "netpath"
    return lambda name, *options: builds.build(folder, name, *options)


@pytest.fixture(scope="session")
def plugin(builder: Callable[..., Build]) -> Build:
    return builder("plain", *builds.FAST)


@pytest.fixture
def hosts() -> Iterator[Callable[[int], Hosts]]:
    """`hosts(rails)` makes two of them."""
    if why := namespaces.missing():
        pytest.skip(why)
    with ExitStack() as stack:
        yield lambda rails: stack.enter_context(namespaces.hosts(rails))
