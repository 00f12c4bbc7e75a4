"""The known backends: ours, then those of other packages by name."""

from __future__ import annotations

from contextlib import suppress

from understudy import extensions
from understudy.messages import worker_processes
from understudy.worker.transport.backends.base import Backend
from understudy.worker.transport.backends.gloo import Gloo
from understudy.worker.transport.backends.nccl import Nccl, Nccl2

GROUP = "understudy.backends"


def backends() -> dict[str, Backend]:
    """Return one object of each, by name. Raises `ValueError` for an error of another package."""
    found: dict[str, Backend] = {}
    kinds: list[type[Backend]] = [Gloo, Nccl, Nccl2, *extensions.classes(GROUP, Backend)]  # type: ignore[type-abstract]
    for kind in kinds:
        backend = kind()
        if (other := found.get(backend.name)) is not None:
            both = {"one": type(other).__qualname__, "two": kind.__qualname__}
            raise ValueError(worker_processes.TWO_BACKENDS(name=backend.name, **both))
        found[backend.name] = backend
    return found


def rejoining() -> tuple[str, ...]:
    """Return the names of the backends of this process that join again in place. An error of another package is reported when a script
    joins.
    """
    with suppress(ValueError):
        return tuple(sorted(name for name, backend in backends().items() if backend.available() and backend.rejoins()))
    return ()
