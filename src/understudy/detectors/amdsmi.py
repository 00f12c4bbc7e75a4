"""Read AMD's management library (AMD SMI): memory errors, heat, throttling, links, and devices that are gone, of the GPUs of a node.

Each look reads counters and states of every device, as the detector of NVIDIA's library does (`nvml`). Unlike NVIDIA's, AMD SMI lists its
devices once, and has no error for one that is gone: a file of such a device is missing, which is also what a device looks like that does
not support something, or is being reset. So the PCI bus is read: a device that was there at an earlier look is gone if its
configuration space is not listed any more, or reads only ones. A query that was answered before and is temporarily not supported is
ignored.

An error of the library is a note. Too little is known about what it means on real devices to move a rank because of it.

Known limits: none of this has run on a real GPU, only on a stand-in for the package `amdsmi`, whose names and answers are those of its
version 7.0. Throttling is known from MI300 on, from accumulated times; the flags of older GPUs are not read. Only the superuser can read
bad pages. An error of XGMI stays reported until it is reset, so another one does not show. Partitions of a GPU count as devices here, and
one without its own place on the PCI bus is never known to be gone. Some GPUs that sleep report large counts of memory errors that never
happened, at each query.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from understudy.detectors.base import Evidence, NodeDetector, Severity
from understudy.detectors.device_watch import Rate, WatchedDevice
from understudy.messages import amd_evidence

DRIVER = Path("/sys/module/amdgpu")
PCI = Path("/sys/bus/pci/devices")
DAY = 86400.0

# amdsmi_status_t. The library returns NOT_SUPPORTED for a file that is missing, or whose driver refuses to read it during a reset.
_INVALID, _NOT_SUPPORTED, _NOT_IMPLEMENTED, _NO_SYMBOL, _RETRY, _NO_PERMISSION, _BUSY, _NO_DATA = 1, 2, 3, 5, 9, 10, 30, 40
_UNSUPPORTED = {_INVALID, _NOT_SUPPORTED, _NOT_IMPLEMENTED, _NO_SYMBOL, _NO_DATA}
_FOR_A_MOMENT = {_NOT_SUPPORTED, _RETRY, _NO_PERMISSION, _BUSY, _NO_DATA}

_SENSORS = ("HOTSPOT", "VRAM")  # of AmdSmiTemperatureType
# Fields of amdsmi_get_gpu_metrics_info, kind, what it is in words, severity. The limit of power (ppt_residency_acc) is reached by any hard
# work and is no fault. PROCHOT is a line of the board: something outside the GPU requests throttling.
_THROTTLERS = (
    ("prochot_residency_acc", "throttled-prochot", "the board (PROCHOT)", Severity.SUSPECT),
    ("socket_thm_residency_acc", "throttled-thermal", "the heat of the GPU", Severity.NOTE),
    ("hbm_thm_residency_acc", "throttled-memory-thermal", "the heat of its memory", Severity.NOTE),
    ("vr_thm_residency_acc", "throttled-regulator-thermal", "the heat of a voltage regulator", Severity.NOTE),
)


@dataclass(frozen=True)
class AmdLimits:
    """The limits of this detector. AMD publishes no rates: the two are NVIDIA's (`nvml_limits`), for the same memory and the same bus."""

    corrected_ecc: Rate = Rate(10, 60.0)
    pcie_replays: Rate = Rate(8, 60.0)
    # Part of the time between two looks during which the clocks are throttled. Our choice.
    throttled: float = 0.1
    # Seconds that throttling, or a critical temperature, has to last. Our choice.
    slowdown: float = 5.0
    # Seconds for which evidence of passing conditions is valid. Our choice.
    wears_off: float = 600.0


DEFAULT = AmdLimits()


class AmdSmi(NodeDetector):
    name = "amdsmi"

    def __init__(self, limits: AmdLimits = DEFAULT, clock: Callable[[], float] = time.time, pci: Path = PCI) -> None:
        self._clock = clock
        smi = _load()
        self._devices = [_Device(smi, limits, index, handle, pci) for index, handle in enumerate(_handles(smi))]

    @classmethod
    def missing(cls, driver: Path = DRIVER) -> str:
        if not driver.exists():
            return amd_evidence.AMD_NO_DRIVER()
        if "amdsmi" not in sys.modules and find_spec("amdsmi") is None:
            return amd_evidence.AMD_NO_PACKAGE()
        try:
            smi = _load()
        except Exception as error:  # a KeyError, an AttributeError or an OSError, depending on its version
            return amd_evidence.AMD_NO_LIBRARY(error=f"{type(error).__name__}: {error}")
        try:
            return "" if _handles(smi) else amd_evidence.AMD_NO_DEVICE()
        except smi.AmdSmiLibraryException as error:
            return amd_evidence.AMD_UNUSABLE(error=error.get_error_info())

    def look(self) -> list[Evidence]:
        now = self._clock()
        found: list[Evidence] = []
        for device in self._devices:
            self.reading = f"gpu{device.index}"
            found += device.look(now)
        self.reading = ""
        return found


def _load() -> Any:
    with contextlib.redirect_stdout(sys.stderr):  # it prints what it does not find
        return importlib.import_module("amdsmi")


@cache
def _handles(smi: Any) -> tuple[Any, ...]:
    """Return the handles of all devices. The library is opened once in a process and never closed: that would take the handles from
    another user of it.
    """
    smi.amdsmi_init()
    return tuple(smi.amdsmi_get_processor_handles())


class _Device(WatchedDevice):
    def __init__(self, smi: Any, limits: AmdLimits, index: int, handle: Any, pci: Path) -> None:
        super().__init__(AmdSmi.name, index, "", limits.wears_off)
        self._smi = smi
        self._limits = limits
        self._handle = handle
        self._left_out: set[Hashable] = set()  # queries that it does not support
        self._answered: set[Hashable] = set()  # queries that it has answered
        self._was_there = False  # on the PCI bus
        address = self._ask("amdsmi_get_gpu_device_bdf") or ""
        uuid = self._ask("amdsmi_get_gpu_device_uuid") or "UUID not known"
        self.title = f"{uuid} at {address}" if address else uuid
        self._config = pci / address / "config" if address else None

    def look(self, now: float) -> list[Evidence]:
        self._begin(now)
        if self._gone():
            self._state(Severity.SUSPECT, "gpu-lost", amd_evidence.AMD_GONE(gpu=self.title))
        else:
            self._ecc()
            self._pages()
            self._heat()
            self._metrics()
            self._links()
        return self._end()

    # Queries

    def _gone(self) -> bool:
        vendor = b""
        if self._config is not None:
            with contextlib.suppress(OSError), self._config.open("rb") as file:
                vendor = file.read(2)
        there = len(vendor) == 2 and vendor != b"\xff\xff"
        self._was_there |= there
        return self._was_there and not there

    def _ecc(self) -> None:
        counts = self._ask("amdsmi_get_gpu_total_ecc_count") or {}
        if (count := _number(counts, "uncorrectable_count")) is not None:
            if "uncorrected ECC" not in self._values and count:
                detail = amd_evidence.AMD_UNCORRECTED_BEFORE(count=count, gpu=self.title)
                self._tell(Severity.NOTE, "ecc-uncorrected-before", detail)
            if rise := self._rise("uncorrected ECC", count):
                detail = amd_evidence.AMD_UNCORRECTED(rise=rise, count=count, gpu=self.title)
                self._tell(Severity.SUSPECT, "ecc-uncorrected", detail)
        if (count := _number(counts, "deferred_count")) is not None and (rise := self._rise("deferred ECC", count)):
            detail = amd_evidence.AMD_DEFERRED(rise=rise, count=count, gpu=self.title)
            self._tell(Severity.SUSPECT, "ecc-deferred", detail, self._now + DAY)
        if (count := _number(counts, "correctable_count")) is not None:
            self._rate("ecc-corrected-rate", "corrected ECC errors", self._rise("corrected ECC", count), self._limits.corrected_ecc)

    def _pages(self) -> None:
        pages = self._ask("amdsmi_get_gpu_bad_page_info")
        statuses = [int(page["status"]) for page in pages] if isinstance(pages, list) else []
        if count := statuses.count(int(self._smi.AmdSmiMemoryPageStatus.PENDING)):
            detail = amd_evidence.AMD_PAGES_PENDING(count=count, gpu=self.title)
            self._state(Severity.SUSPECT, "page-retirement-pending", detail)
        if count := statuses.count(int(self._smi.AmdSmiMemoryPageStatus.UNRESERVABLE)):
            detail = amd_evidence.AMD_PAGES_KEPT(count=count, gpu=self.title)
            self._state(Severity.SUSPECT, "page-retirement-failed", detail)

    def _heat(self) -> None:
        metric = self._smi.AmdSmiTemperatureMetric
        for name in _SENSORS:
            sensor = getattr(self._smi.AmdSmiTemperatureType, name)
            critical = self._ask("amdsmi_get_temp_metric", sensor, metric.CRITICAL)
            current = self._ask("amdsmi_get_temp_metric", sensor, metric.CURRENT)
            if critical and current is not None and current >= critical > 0:
                words = {"sensor": name.lower(), "temperature": current, "critical": critical}
                detail = amd_evidence.AMD_TOO_HOT(**words, gpu=self.title)
                self._state(Severity.SUSPECT, f"too-hot-{name.lower()}", detail, self._passing, after=self._limits.slowdown)

    def _metrics(self) -> None:
        metrics = self._ask("amdsmi_get_gpu_metrics_info") or {}
        if (replays := _number(metrics, "pcie_replay_count_acc")) is not None:
            self._rate("pcie-replay-rate", "PCIe replays", self._rise("PCIe replays", replays), self._limits.pcie_replays)
        if (total := _number(metrics, "accumulation_counter")) is None:
            return
        passed = self._rise("accumulation", total)
        for field, kind, reason, severity in _THROTTLERS:
            if (count := _number(metrics, field)) is None:
                continue
            rise = self._rise(field, count)
            share = min(1.0, rise / passed) if passed else 0.0
            if share > self._limits.throttled:
                detail = amd_evidence.AMD_THROTTLED(share=share, reason=reason, gpu=self.title)
                self._state(severity, kind, detail, self._passing, after=self._limits.slowdown)

    def _links(self) -> None:
        status = self._ask("amdsmi_gpu_xgmi_error_status")
        if status is None:
            return
        if "XGMI" not in self._values and status:
            self._tell(Severity.NOTE, "xgmi-error-before", amd_evidence.AMD_XGMI_BEFORE(gpu=self.title))
        if self._rise("XGMI", int(status)):
            self._tell(Severity.SUSPECT, "xgmi-error", amd_evidence.AMD_XGMI(gpu=self.title), self._passing)

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Query the library; None if there is no answer."""
        query = (name, *arguments)
        call = getattr(self._smi, name, None)
        if call is None or query in self._left_out:
            return None
        try:
            answer = call(self._handle, *arguments)
        except self._smi.AmdSmiLibraryException as error:
            self._failed(query, error)
            return None
        self._answered.add(query)
        return answer

    # Evidence

    def _failed(self, query: tuple[Any, ...], error: Any) -> None:
        code = error.get_error_code()
        if query in self._answered and code in _FOR_A_MOMENT:
            return
        if code in _UNSUPPORTED:
            self._left_out.add(query)
            return
        detail = amd_evidence.AMD_ERROR(query=query[0], error=error.get_error_info(), gpu=self.title)
        self._state(Severity.NOTE, f"amdsmi-error-{code}", detail, self._passing)


def _number(answer: Mapping[str, Any], name: str) -> int | None:
    """Return a number, or None if the device does not have it: the package returns text or the largest number then, depending on its
    version.
    """
    value = answer.get(name)
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64 - 1 and value != 2**32 - 1
    return value if known else None
