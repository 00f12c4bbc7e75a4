"""Test that every GPU computes the same and that its memory keeps its content: run by a process that imports torch
(`worker.doctor.devices`), judged here.

The digests of repeats, and those of all devices of one model, must be equal. If two differ, it is unknown which is wrong; of more,
those in the minority are named.

Known limit: none of this has run on a real GPU yet. The tests judge the output of a stand-in for that program, and run the
program's parts on torch's CPU device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import Field

from understudy.checks.base import Check, Figure, Result, Text
from understudy.checks.options import MIB, Options
from understudy.detectors.configuration import Configured, first_line, read
from understudy.messages import node_checks

COMMAND = (sys.executable, "-P", "-m", "understudy.worker.doctor.devices")
MOST_OUTPUT = 1 << 24  # characters
LIMIT = 240.0  # seconds; importing torch and opening many devices takes long
PLACES = ("nvidia[0-9]*", "kfd")  # in /dev: NVIDIA's devices, AMD's

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Device(Configured):
    """The program's report about one device."""

    device: Text
    model: Text
    digests: dict[str, Annotated[list[Digest], Field(max_length=10_000)]]  # of each repeat, by precision
    seconds: dict[str, Seconds]  # for all repeats
    bytes: Annotated[int, Field(ge=0)]  # of memory tested
    wrong: Annotated[int, Field(ge=0)]  # words of it
    error: Text


class Devices(Configured):
    built: Text  # the devices that this torch supports; "" if only CPUs
    devices: Annotated[list[Device], Field(max_length=256)]


class Gpu(Check):
    name = "gpu"

    def __init__(self, options: Options, token: str = "", command: Sequence[str] = COMMAND, places: Path = Path("/dev")) -> None:
        super().__init__(options, token)
        self._command = [*command, "--repeats", str(options.gpu_repeats), "--share", str(options.gpu_share)]
        self._places = places
        self.limit = LIMIT + 30.0

    def missing(self) -> str:
        if not any(found for pattern in PLACES for found in self._places.glob(pattern)):
            return node_checks.NO_GPU()
        if find_spec("torch") is None:  # searched for, not imported
            return node_checks.NO_TORCH(python=sys.executable)
        return ""

    def run(self) -> Result:
        done = subprocess.run(
            self._command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT,
            env={**os.environ, **_only(self.options.devices)},
        )
        if done.returncode or len(done.stdout) > MOST_OUTPUT:
            how = f"was ended by signal {-done.returncode}" if done.returncode < 0 else f"ended with exit code {done.returncode}"
            last = first_line((done.stderr.strip().splitlines() or [""])[-1])
            return self.judged([node_checks.PROGRAM_FAILED(how=how, last=f": {last}" if last else "")], "")
        found = read(Devices, json.loads(done.stdout))
        if not found.devices:
            return self.judged([_unseen(found.built)], "")
        failures = [words for device in found.devices for words in _alone(device)]
        failures += _together(found.devices)
        figures = [
            Figure(name=f"{one.device} {kind}", value=1000 * seconds / self.options.gpu_repeats, unit="ms")
            for one in found.devices
            for kind, seconds in one.seconds.items()
        ]
        figures += [Figure(name=f"{one.device} memory", value=one.bytes / MIB, unit="MiB") for one in found.devices]
        models = ", ".join(f"{count} x {model}" for model, count in Counter(one.model for one in found.devices).items())
        return self.judged(failures, node_checks.GPUS_COMPUTE(models=models), figures)


def _only(devices: Sequence[str]) -> dict[str, str]:
    """Return the variables that let a process see only these GPUs, NVIDIA's and AMD's alike."""
    if not devices:
        return {}
    names = ",".join(name.removeprefix("gpu") for name in devices)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": names, "HIP_VISIBLE_DEVICES": names}


def _unseen(built: str) -> str:
    hidden = [name for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") if name in os.environ]
    why = f"; {', '.join(hidden)} is set" * bool(hidden)
    return node_checks.GPUS_UNSEEN(built=built or "CPUs only", hidden=why)


def _alone(one: Device) -> Iterator[str]:
    """Yield the failures of one device by itself."""
    if one.error:
        yield node_checks.GPU_ERROR(device=one.device, error=first_line(one.error))
    for kind, digests in one.digests.items():
        if len(set(digests)) > 1:
            yield node_checks.GPU_UNSTEADY(device=one.device, results=len(set(digests)), repeats=len(digests), kind=kind)
    if one.wrong:
        yield node_checks.GPU_MEMORY_WRONG(device=one.device, words=one.wrong)


def _together(devices: Sequence[Device]) -> Iterator[str]:
    """Yield the devices that differ from others of their model, although each gives the same result every time."""
    steady = [(one, kind, digests[0]) for one in devices for kind, digests in one.digests.items() if len(set(digests)) == 1]
    for model, kind in dict.fromkeys((one.model, kind) for one, kind, _ in steady):
        of = {one.device: digest for one, of_kind, digest in steady if (one.model, of_kind) == (model, kind)}
        votes = Counter(of.values())
        usual, most = votes.most_common(1)[0]
        if len(votes) == 1:
            continue
        if 2 * most > len(of):
            names = ", ".join(device for device, digest in of.items() if digest != usual)
            yield node_checks.GPUS_DIFFER(devices=names, kind=kind, others=most, model=model)
        else:
            yield node_checks.NO_MAJORITY(devices=", ".join(of), results=len(votes), kind=kind, model=model)
