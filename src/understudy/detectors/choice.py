"""Choose the detectors of a node: those that are built in, those of an operator's file, and those of other packages.

The file is TOML. Every part of it, and the file itself, is optional: without it, the built-in and the installed detectors run, each where
there is something to look at.

    off = ["nvml"]                    # these do not run: kernel, nvml, amdsmi, or one of another package by its name

    [kernel]
    history = true                    # entries of the log from before the job count, too

    [nvml]                            # limits; default: those of `nvml_limits`
    pcie_replays = {count = 8, seconds = 60}

    [amdsmi]                          # limits; default: those of `amdsmi.AmdLimits`
    throttled = 0.1

    [nccl-ras]                        # only with this section: NCCL's own view of a job (`nccl_ras`)
    every = 60

    [network]                         # only with this section: rails that stay down (`rails`)
    after = 600

    [[command]]                       # any number: a program of yours that is run (`command.CommandCheck`)
    name = "disk"
    argv = ["/usr/local/bin/check-disk", "/scratch"]

    [[prometheus]]                    # any number: rules about metrics (`prometheus_here.Rules`)
    name = "dcgm"
    exporters = [{url = "http://localhost:9400/metrics"}]

    [[prometheus.rules]]
    name = "hot"
    sample = "DCGM_FI_DEV_GPU_TEMP"
    ...

`docs/operate/detectors-and-policy.md` has a complete one. The command line passes its text on, so that a restarted agent has it, too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from understudy import extensions
from understudy.common import rail_state
from understudy.common.bounds import plain
from understudy.detectors import amdsmi
from understudy.detectors.amdsmi import AmdLimits, AmdSmi
from understudy.detectors.base import GROUP, AnyDetector, NodeDetector
from understudy.detectors.command import Command, CommandCheck
from understudy.detectors.configuration import Configured, Period, read
from understudy.detectors.device_watch import Rate
from understudy.detectors.kernel import Kernel
from understudy.detectors.nccl_ras import NcclRas
from understudy.detectors.nvml import Nvml
from understudy.detectors.nvml_limits import DEFAULT, Limits
from understudy.detectors.rails import AFTER, Rails
from understudy.messages import detector_files

LONGEST = 1 << 20  # characters of a file
MOST = 64  # entries of one kind: each runs on its own thread
BUILT_IN = "built in"

M = TypeVar("M", bound=BaseModel)


class BadFile(ValueError):
    """The text has a line for each mistake, with the file and the entry."""


@dataclass(frozen=True)
class Choice:
    """A detector that may look on this node."""

    name: str
    origin: str  # built in, a file, or another package
    every: float  # seconds between two looks
    make: Callable[[], NodeDetector]  # slow, as is the next one: they query drivers and devices
    missing: Callable[[], str] = lambda: ""  # why there is nothing to look at; "" if there is
    off: bool = False  # disabled by the file

    @staticmethod
    def of(kind: type[NodeDetector], origin: str = BUILT_IN) -> Choice:
        return Choice(str(getattr(kind, "name", kind.__qualname__)), origin, kind.every, kind, kind.missing)


class NcclRasSettings(Configured):
    """Settings of the NCCL detector. A look makes all processes of a job exchange their progress, so it runs only where a file has its
    section.
    """

    every: Period = NcclRas.every
    address: Annotated[str, Field(pattern=r"^\S{1,250}:\d{1,5}$")] | None = None  # None: the value of NCCL_RAS_ADDR


class RailsSettings(Configured):
    """Settings of the detector of rails."""

    every: Period = Rails.every
    state: Annotated[str, Field(min_length=1, max_length=4096)] = str(rail_state.DEFAULT)  # the file of the rail agent
    after: Period = AFTER  # seconds for which a rail has to be down


class KernelSettings(Configured):
    history: bool = False  # suspicions from before the job count, too


class RateSettings(Configured):
    count: Annotated[int, Field(ge=0, le=1 << 40)]
    seconds: Period

    def rate(self) -> Rate:
        return Rate(self.count, self.seconds)


class _LimitSettings(Configured):
    """Limits; those that are left out keep the detector's defaults."""

    def _given(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                given[name] = value.rate() if isinstance(value, RateSettings) else value
        return given


class NvmlSettings(_LimitSettings):
    corrected_ecc: RateSettings | None = None
    pcie_replays: RateSettings | None = None
    nvlink_crc: RateSettings | None = None
    slowdown: Period | None = None  # seconds for which the clocks have to be throttled
    wears_off: Period | None = None  # seconds for which evidence of passing conditions is valid

    def limits(self) -> Limits:
        return replace(DEFAULT, **self._given())


class AmdSmiSettings(_LimitSettings):
    corrected_ecc: RateSettings | None = None
    pcie_replays: RateSettings | None = None
    throttled: Annotated[float, Field(gt=0, le=1)] | None = None  # part of the time during which the clocks are throttled
    slowdown: Period | None = None  # seconds that throttling, or a critical temperature, has to last
    wears_off: Period | None = None  # seconds for which evidence of passing conditions is valid

    def limits(self) -> AmdLimits:
        return replace(amdsmi.DEFAULT, **self._given())


def _several(value: object) -> object:
    if isinstance(value, Mapping):
        raise ValueError(detector_files.NOT_SEVERAL())
    return value


Entries = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_several), Field(max_length=MOST)]


class Settings(Configured):
    off: Annotated[tuple[str, ...], Field(max_length=MOST)] = ()
    kernel: KernelSettings = KernelSettings()
    nvml: NvmlSettings = NvmlSettings()
    amdsmi: AmdSmiSettings = AmdSmiSettings()
    nccl_ras: NcclRasSettings | None = Field(None, alias="nccl-ras")
    network: RailsSettings | None = None
    command: Entries = ()  # each a `CommandCheck`
    prometheus: Entries = ()  # each a `prometheus_here.Rules`


def read_file(path: Path) -> str:
    """Return the text of a valid file. Raises `BadFile`."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise BadFile(detector_files.UNREADABLE_FILE(path=path, reason=reason)) from error
    if len(text) > LONGEST:
        raise BadFile(detector_files.LONG_FILE(path=path, most=LONGEST))
    choose(text, str(path))
    return text


def choose(text: str = "", file: str = "the detectors' file", names: Sequence[str] = (), since: float = 0.0) -> list[Choice]:
    """Return all detectors of this node. `names`: the names of this node in labels of metrics; `since`: unix time at which the job, or the
    node's agent, began here. Creates none and queries no device. Raises `BadFile`; `ValueError` for a mistake of another package.
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadFile(detector_files.NOT_TOML(path=file, problem=plain(str(error)))) from None
    mistakes: list[str] = []
    settings = _read(Settings, found, f"{file}: ", mistakes)
    if settings is None:
        raise BadFile("\n".join(mistakes))
    kernel = partial(Kernel, since=0.0 if settings.kernel.history else since)
    choices = [
        replace(Choice.of(Kernel), make=kernel),
        replace(Choice.of(Nvml), make=partial(Nvml, settings.nvml.limits())),
        replace(Choice.of(AmdSmi), make=partial(AmdSmi, settings.amdsmi.limits())),
        *_installed(),
    ]
    if (ras := settings.nccl_ras) is not None:
        choices.append(Choice(NcclRas.name, file, ras.every, partial(NcclRas, ras.address or ""), NcclRas.missing))
    if (rails := settings.network) is not None:
        choices.append(Choice(Rails.name, file, rails.every, partial(Rails, Path(rails.state), rails.after), Rails.missing))
    known = [choice.name for choice in choices]
    for name in sorted(set(settings.off).difference(known)):
        mistakes.append(detector_files.NO_SUCH_DETECTOR(path=file, name=plain(name[:64]), known=", ".join(known)))
    choices = [replace(choice, off=choice.name in settings.off) for choice in choices]
    for check in _entries(CommandCheck, "command", settings.command, file, mistakes):
        choices.append(Choice(f"command:{check.name}", file, check.every, partial(Command, check)))
    if settings.prometheus:
        from understudy.detectors.prometheus_here import PrometheusHere, Rules  # it imports an HTTP client, which the others do without

        for rules in _entries(Rules, "prometheus", settings.prometheus, file, mistakes):
            choices.append(Choice(f"prometheus:{rules.name}", file, rules.every, partial(PrometheusHere, rules, tuple(names))))
    if mistakes:
        raise BadFile("\n".join(mistakes))
    taken = [choice.name for choice in choices]
    if twice := next((choice for choice in choices if taken.count(choice.name) > 1 and choice.origin not in (BUILT_IN, file)), None):
        raise ValueError(detector_files.NAME_TAKEN(name=twice.name, origin=twice.origin))
    return choices


def _installed() -> Iterator[Choice]:
    """Yield the node detectors of other packages. Detectors of jobs, in the same group, run at the orchestrator."""
    kinds = extensions.classes(GROUP, AnyDetector)
    for entry, kind in zip(extensions.entries(GROUP), kinds, strict=True):
        if issubclass(kind, NodeDetector):
            yield Choice.of(kind, f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value)


def _entries(model: type[M], what: str, entries: Sequence[Mapping[str, Any]], file: str, mistakes: list[str]) -> Iterator[M]:
    names: set[object] = set()
    for number, entry in enumerate(entries, 1):
        name = entry.get("name")
        where = f"{file}: {what} {number}" + (f" ({plain(name[:64])})" if isinstance(name, str) and name else "") + ": "
        made = _read(model, entry, where, mistakes)
        if made is not None and name in names:
            mistakes.append(where + detector_files.TWO_ENTRIES())
        elif made is not None:
            names.add(name)
            yield made


def _read(model: type[M], found: Mapping[str, Any], where: str, mistakes: list[str]) -> M | None:
    try:
        return read(model, found)
    except ValueError as error:
        mistakes += [f"{where}{line}" for line in str(error).splitlines()]
        return None
