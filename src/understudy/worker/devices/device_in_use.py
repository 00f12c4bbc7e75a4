"""The device of its node that this rank computes on, under the names that the node's detectors use: gpu1 by its index, its UUID and its
PCI address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Device:
    """A device. `name`: empty if it is not known, as on a CPU. `others`: its other names."""

    name: str
    others: tuple[str, ...] = ()


def assumed(environment: Mapping[str, str]) -> str:
    """Return the device by the environment alone: that of the local rank, which a script uses as under torchrun.

    The device itself is not queried: it may be lost, and every call to it may hang.
    """
    local = int(environment.get("LOCAL_RANK", "0"))
    return _named(local) or (f"gpu{local}" if _listed() is None and (torch.version.cuda or torch.version.hip) else "")


def in_use(environment: Mapping[str, str]) -> Device:
    """Return the device that the script has chosen, if it uses any by now. Between two steps, on a device that works."""
    cuda: Any = torch.cuda
    if not cuda.is_initialized():
        return Device(assumed(environment))
    index = cuda.current_device()
    found = cuda.get_device_properties(index)
    others = []
    if hasattr(found, "uuid"):
        others.append(f"GPU-{found.uuid}")
    if hasattr(found, "pci_bus_id"):
        others.append(f"{getattr(found, 'pci_domain_id', 0):08x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0")
    return Device(_named(index) or f"gpu{index}", tuple(others))


def _listed() -> list[str] | None:
    given = next((os.environ[name] for name in _VISIBLE if name in os.environ), None)
    return [name.strip() for name in given.split(",")] if given is not None else None


def _named(index: int) -> str:
    """Return the device by its place in the list of devices that this process may see; a process that sees one has no other place."""
    names = _listed() or []
    name = names[0] if len(names) == 1 else names[index] if index < len(names) else ""
    return f"gpu{name}" if name.isdecimal() else name
