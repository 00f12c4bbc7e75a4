"""All messages by code, collected from the modules of this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType

import understudy.messages
from understudy.messages.base import Message

AREAS = {
    "US1": "the training script: join, register, steps, loaders",
    "US2": "starting a job and the command line",
    "US3": "evidence, detectors, policies and node checks",
    "US4": "losses, recoveries, drills and disputes",
    "US5": "the orchestrator, its journal and its HTTP interface; agents",
    "US6": "schedulers: Slurm and Kubernetes",
    "US7": "fault injection (understudy chaos)",
    "US8": "extensions of other packages",
    "US9": "installation: versions, doctor",
}


@cache
def registry() -> Mapping[str, Message]:
    """Return every message by its code, in the order of codes. Raises `ValueError` for a code that two messages have."""
    found: dict[str, Message] = {}
    for module in walk_packages(understudy.messages.__path__, "understudy.messages."):
        for name, message in vars(import_module(module.name)).items():
            if not isinstance(message, Message):
                continue
            if found.setdefault(message.code, message) is not message:
                raise ValueError(f"{module.name}.{name}: {message.code} is taken")
    return MappingProxyType(dict(sorted(found.items())))
