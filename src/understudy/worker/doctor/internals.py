"""All of torch's internals that the worker relies on: private names, undocumented uses of public objects, observed behaviour of calls.

Each is in the table of its subject with its purpose, its users, and a probe. Code that uses another internal must add it there:
`tests/worker/doctor/test_torch_internals.py` reads the worker's sources for private names that no entry has, and tries every entry.

Known limits: undocumented uses of public objects, and behaviour, are only checked if they were entered. What needs peers or a GPU is
checked by name and signature only.
"""

from __future__ import annotations

from collections.abc import Iterator

from understudy.worker.doctor.accelerate import ACCELERATE
from understudy.worker.doctor.base import Probe, ProbeResult, module, run_probe
from understudy.worker.doctor.ddp import DDP
from understudy.worker.doctor.fsdp2 import FSDP2
from understudy.worker.doctor.groups import GROUPS
from understudy.worker.doctor.lightning import LIGHTNING
from understudy.worker.doctor.pipelines import PIPELINES
from understudy.worker.doctor.script import SCRIPT
from understudy.worker.doctor.state import STATE
from understudy.worker.doctor.transformers import TRANSFORMERS

INTERNALS: tuple[Probe, ...] = (*GROUPS, *SCRIPT, *STATE, *DDP, *FSDP2, *PIPELINES, *ACCELERATE, *LIGHTNING, *TRANSFORMERS)
REJOINED = "in place, by torch's _reconfigure"
REPLACED = "by a new communicator under a fresh backend number"


def try_all() -> Iterator[ProbeResult]:
    """Try all, one after the other, in the order of the table."""
    version = str(module("torch").__version__)
    for internal in INTERNALS:
        yield run_probe(internal, version)


def way_of_joining(found: list[ProbeResult]) -> str:
    """Return how groups are joined again after a loss: the way that this torch has, unless it was turned off."""
    can = any(one.name == "reconfigure" and one.status == "ok" for one in found)
    return REJOINED if can and module("understudy.worker.transport.backends.rejoining").available() else REPLACED
