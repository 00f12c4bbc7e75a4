"""The options of checks: which, and how much. The defaults take some seconds for each check.

An agent passes them as JSON, so they have bounds. They contain no token, because command lines are visible.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from understudy.detectors.configuration import Configured
from understudy.messages import node_checks

MIB = 1 << 20
Name = Literal["detectors", "compute", "memory", "disk", "gpu", "network"]
NAMES: tuple[Name, ...] = get_args(Name)  # in the order in which they run: quick ones first
_DEVICE = re.compile(r"gpu[0-9]{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]+")
_PEER = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>[0-9]{1,5})")


def address(peer: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [HOST]:PORT. Raises `ValueError`."""
    match = _PEER.fullmatch(peer)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError(node_checks.NO_PEER_ADDRESS(peer=peer[:80]))
    return match["bracketed"] or match["host"], int(match["port"])


def _is_peer(peer: str) -> str:
    address(peer)
    return peer


def _is_device(name: str) -> str:
    if _DEVICE.fullmatch(name) is None:
        raise ValueError(node_checks.NO_DEVICE_NAME(name=name[:80]))
    return name


Peer = Annotated[str, Field(max_length=300), AfterValidator(_is_peer)]
Names = Annotated[tuple[Name, ...], Field(max_length=100)]
Share = Annotated[float, Field(gt=0, le=0.9, allow_inf_nan=False)]


DeviceName = Annotated[str, Field(max_length=100), AfterValidator(_is_device)]


class Options(Configured):
    only: Names = ()  # names of checks; none: all
    skip: Names = ()
    compute_passes: Annotated[int, Field(ge=1, le=1_000_000)] = 25  # of the known work, on each CPU
    memory_share: Share = 0.25  # of free memory
    memory_most: Annotated[int, Field(ge=64, le=1 << 24)] = 2048  # MiB
    folder: Annotated[str, Field(min_length=1, max_length=4096)] = "."  # on the disk that is tested
    disk_size: Annotated[int, Field(ge=4, le=1 << 20)] = 128  # MiB
    min_free: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 1.0  # GiB on that disk
    peers: Annotated[tuple[Peer, ...], Field(max_length=64)] = ()
    network_seconds: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 2.0  # in each direction, for each peer
    min_gbits: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0  # 10^9 bits a second
    gpu_share: Share = 0.25  # of each device's free memory
    devices: Annotated[tuple[DeviceName, ...], Field(max_length=64)] = ()  # GPUs to test; none: all
    gpu_repeats: Annotated[int, Field(ge=2, le=10_000)] = 5

    def chosen(self) -> list[Name]:
        """Return the checks to run, in their order."""
        return [name for name in NAMES if name in (self.only or NAMES) and name not in self.skip]

    @model_validator(mode="after")
    def _something_is_left(self) -> Options:
        if not self.chosen():
            raise ValueError(node_checks.NO_CHECKS())
        return self
