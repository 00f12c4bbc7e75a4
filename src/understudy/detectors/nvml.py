"""Read NVIDIA's management library (NVML): memory errors, Xids, slowdown, links, and devices that are gone, of the GPUs of a node.

Each look reads counters and states of every device. A counter counts by its rise: one that does not change gives no evidence, and one that
goes down was reset (volatile counters are, when the driver is loaded). A state gives evidence at every look, with the time it began.
What a device does not support is not queried again. Any other error counts against the device, never against the detector.

A device is identified by its UUID and named by the index that it had when it was first seen; NVML may renumber others when one is gone.

Known limits: none of this has run on a real GPU, only on a stand-in for the library. Xids from before the detector began are not
seen. With MIG, NVML does not report row remaps, and without privileges not every Xid. The counters of NVLink are those of the
whole device; up to Hopper they are replays, recoveries and CRC errors, from Blackwell on recoveries only. Xids 144 to 150 are
all suspect: NVML does not give the status by which NVIDIA's catalogue distinguishes the harmless ones. While NVML is in use, the
driver may refuse to reset a GPU: stop the agent first. A driver older than 535 does not report slowdown.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from understudy.detectors.base import Evidence, NodeDetector, Severity
from understudy.detectors.device_watch import WatchedDevice
from understudy.detectors.nvml_limits import DEFAULT, RECOVERY_ACTIONS, SLOWDOWNS, XIDS, Limits
from understudy.messages import gpu_evidence

# Fields of nvmlDeviceGetFieldValues with their scopes, and the kind that each counts for.
_RECOVERY_ACTION = (230, 0)  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_OF_DEVICE = {
    (38, 0): "nvlink-crc",  # NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    (45, 0): "nvlink-crc",  # NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    (52, 0): "nvlink-replay",  # NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
    (59, 0): "nvlink-recovery",  # NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
}
# NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS; its scope is the link, up to NVML_NVLINK_MAX_LINKS.
_OF_LINKS = {(215, link): "nvlink-recovery" for link in range(36)}
_KINDS = {**_OF_DEVICE, **_OF_LINKS}
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # of nvmlValue_t, by nvmlValueType_t


class Nvml(NodeDetector):
    name = "nvml"

    def __init__(self, limits: Limits = DEFAULT, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._nvml: Any = importlib.import_module("pynvml")
        self._nvml.nvmlInit()
        self._devices: dict[str, _Device] = {}  # by UUID

    @classmethod
    def missing(cls) -> str:
        try:
            nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return gpu_evidence.NO_PACKAGE()
        try:
            nvml.nvmlInit()
            try:
                return "" if nvml.nvmlDeviceGetCount() else gpu_evidence.NO_DEVICE()
            finally:
                nvml.nvmlShutdown()
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                return gpu_evidence.NO_LIBRARY()
            return gpu_evidence.UNUSABLE(error=str(error))

    def look(self) -> list[Evidence]:
        now = self._clock()
        present, failed = self._listed()
        for uuid, (index, handle) in present.items():
            if uuid not in self._devices:
                self._add(uuid, index, handle, present)
            self._devices[uuid].handle = handle
        for index, error in failed.items():
            known = any(device.index == index for device in self._devices.values())
            if not known and error.value != self._nvml.NVML_ERROR_NO_PERMISSION:  # another user's device, if it was never ours
                self._devices[f"index {index}"] = _Device(self._nvml, self._limits, index, "UUID not known")
        found: list[Evidence] = []
        for uuid, device in self._devices.items():
            self.reading = f"gpu{device.index}"
            found += device.look(now) if uuid in present else device.absent(now, failed.get(device.index))
        self.reading = ""
        return found

    def _listed(self) -> tuple[dict[str, tuple[int, Any]], dict[int, Any]]:
        """Return index and handle of each device by its UUID, and the error of each index that has no device to show."""
        present: dict[str, tuple[int, Any]] = {}
        failed: dict[int, Any] = {}
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                present[self._nvml.nvmlDeviceGetUUID(handle)] = index, handle
            except self._nvml.NVMLError as error:
                failed[index] = error
        return present, failed

    def _add(self, uuid: str, index: int, handle: Any, present: dict[str, tuple[int, Any]]) -> None:
        """Add a new device. It replaces the one that had its index and is gone."""
        taken = {device.index for known, device in self._devices.items() if known in present}
        while index in taken:
            index += 1
        self._devices = {known: device for known, device in self._devices.items() if device.index != index}
        address = ""
        with contextlib.suppress(self._nvml.NVMLError):
            address = f" at {_text(self._nvml.nvmlDeviceGetPciInfo(handle).busId)}"
        self._devices[uuid] = _Device(self._nvml, self._limits, index, f"{uuid}{address}")


class _Device(WatchedDevice):
    def __init__(self, nvml: Any, limits: Limits, index: int, title: str) -> None:
        super().__init__(Nvml.name, index, title, limits.wears_off)
        self._nvml = nvml
        self._limits = limits
        self._events: Any = None  # its event set; one for each, so that a device that is gone does not spoil those of others
        self._left_out: set[Any] = set()  # queries and fields that it does not support
        self._unsupported = {
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_INVALID_ARGUMENT,  # the driver does not know the field, or there is no such link
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            22,  # NVML_ERROR_VGPU_ECC_NOT_SUPPORTED
            25,  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH: the driver's, too
            26,  # NVML_ERROR_DEPRECATED
        }
        self.handle: Any = None

    def look(self, now: float) -> list[Evidence]:
        self._begin(now)
        try:
            self._xids()
            self._ecc()
            self._memory()
            self._clocks()
            self._links()
        except self._nvml.NVMLError as error:  # `_failed` lets only this one through
            self._gone(error)
        return self._end()

    def absent(self, now: float, error: Any) -> list[Evidence]:
        """Report that NVML does not list the device any more, or has `error` in its place."""
        self._begin(now)
        try:
            if error is None:
                self._gone(None)
            else:
                self._failed("handle", error)
        except self._nvml.NVMLError:
            self._gone(error)
        return self._end()

    # Queries

    def _xids(self) -> None:
        if self._events is None and "events" not in self._left_out:
            self._events = self._ask("events", self._watch)
        for _ in range(self._limits.events if self._events is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, self._limits.event_wait)
            except self._nvml.NVMLError as error:
                if error.value != self._nvml.NVML_ERROR_TIMEOUT:
                    self._forget_events()  # its state is not known: another one is created at the next look
                    self._failed("events", error)
                return
            if event.eventType & self._nvml.nvmlEventTypeXidCriticalError:
                self._xid(int(event.eventData))

    def _watch(self, handle: Any) -> Any:
        events = self._nvml.nvmlEventSetCreate()
        try:
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        except self._nvml.NVMLError:
            self._free(events)
            raise
        return events

    def _xid(self, xid: int) -> None:
        kind, meaning = f"xid-{xid}", XIDS.get(xid)
        if meaning is not None:
            self._tell(Severity.SUSPECT, kind, gpu_evidence.XID(xid=xid, meaning=meaning, gpu=self.title))
        else:
            self._tell(Severity.NOTE, kind, gpu_evidence.XID_NO_FAULT(xid=xid, gpu=self.title))

    def _ecc(self) -> None:
        query, volatile = self._nvml.nvmlDeviceGetTotalEccErrors, self._nvml.NVML_VOLATILE_ECC
        count = self._ask("uncorrected ECC", query, self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile)
        if count is not None:
            if "uncorrected ECC" not in self._values and count:
                self._tell(Severity.NOTE, "ecc-uncorrected-before", gpu_evidence.UNCORRECTED_BEFORE(count=count, gpu=self.title))
            if rise := self._rise("uncorrected ECC", count):
                detail = gpu_evidence.UNCORRECTED(rise=rise, count=count, gpu=self.title)
                self._tell(Severity.SUSPECT, "ecc-uncorrected", detail)
        count = self._ask("corrected ECC", query, self._nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile)
        if count is not None:
            self._rate("ecc-corrected-rate", "corrected ECC errors", self._rise("corrected ECC", count), self._limits.corrected_ecc)

    def _memory(self) -> None:
        rows = self._ask("row remaps", self._nvml.nvmlDeviceGetRemappedRows)
        if rows is not None:
            corrected, uncorrected, pending, failed = rows
            if failed:
                self._state(Severity.SUSPECT, "row-remap-failed", gpu_evidence.ROW_NOT_REMAPPED(gpu=self.title))
            if pending:
                detail = gpu_evidence.ROW_WAITS(remapped=corrected + uncorrected, gpu=self.title)
                self._state(Severity.SUSPECT, "row-remap-pending", detail)
        if self._ask("retired pages", self._nvml.nvmlDeviceGetRetiredPagesPendingStatus):
            self._state(Severity.SUSPECT, "page-retirement-pending", gpu_evidence.PAGES_WAIT(gpu=self.title))

    def _clocks(self) -> None:
        reasons = self._ask("clocks", self._nvml.nvmlDeviceGetCurrentClocksEventReasons) or 0
        for bit, kind, message, halved in SLOWDOWNS:
            if reasons & bit:
                severity, until = Severity.SUSPECT if halved else Severity.NOTE, self._passing
                self._state(severity, kind, message(gpu=self.title), until, after=self._limits.slowdown)

    def _links(self) -> None:
        count = self._ask("PCIe replays", self._nvml.nvmlDeviceGetPcieReplayCounter)
        if count is not None:
            self._rate("pcie-replay-rate", "PCIe replays", self._rise("PCIe replays", count), self._limits.pcie_replays)
        values = self._fields("fields", (*_OF_DEVICE, _RECOVERY_ACTION)) | self._fields("fields of links", _OF_LINKS)
        action = values.pop(_RECOVERY_ACTION, 0)
        if action:
            asked = RECOVERY_ACTIONS.get(action, f"recovery action {action}")
            detail = gpu_evidence.RECOVERY_ASKED(action=asked, gpu=self.title)
            self._state(Severity.SUSPECT, f"recovery-action-{action}", detail)
        rises = dict.fromkeys(_KINDS.values(), 0)
        for field, value in values.items():
            rises[_KINDS[field]] += self._rise(field, value)
        until = self._passing
        for kind, message in (("nvlink-replay", gpu_evidence.NVLINK_REPLAYS), ("nvlink-recovery", gpu_evidence.NVLINK_RECOVERIES)):
            if rises[kind]:
                self._tell(Severity.SUSPECT, kind, message(count=rises[kind], gpu=self.title), until)
        crc = rises["nvlink-crc"]
        if not self._rate("nvlink-crc-rate", "NVLink CRC errors", crc, self._limits.nvlink_crc) and crc:
            self._tell(Severity.NOTE, "nvlink-crc", gpu_evidence.NVLINK_CRC(count=crc, gpu=self.title), until)

    def _fields(self, query: str, fields: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Return the values of those of `fields` that the device has."""
        asked = [field for field in fields if field not in self._left_out]
        values: dict[tuple[int, int], int] = {}
        answers = self._ask(query, self._nvml.nvmlDeviceGetFieldValues, asked) if asked else None
        for field, answer in zip(asked, answers or (), strict=False):
            if answer.nvmlReturn == self._nvml.NVML_SUCCESS:
                values[field] = int(getattr(answer.value, _VALUES[answer.valueType]))
            else:
                self._failed(field, self._nvml.NVMLError(answer.nvmlReturn))
        return values

    def _ask(self, query: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Query the library; None if there is no answer."""
        if query in self._left_out:
            return None
        try:
            return call(self.handle, *arguments)
        except self._nvml.NVMLError as error:
            self._failed(query, error)
            return None

    # Evidence

    def _failed(self, query: Any, error: Any) -> None:
        """Note an error. Raises it if it means that the device is gone."""
        if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
            raise error
        if error.value in self._unsupported:
            self._left_out.add(query)
            return
        severity = Severity.NOTE if error.value == self._nvml.NVML_ERROR_NO_PERMISSION else Severity.SUSPECT
        detail = gpu_evidence.NVML_ERROR(error=str(error), gpu=self.title)
        self._state(severity, f"nvml-error-{error.value}", detail, self._passing)

    def _gone(self, error: Any) -> None:
        self._forget_events()
        known = error is not None
        detail = gpu_evidence.NVML_ERROR(error=str(error), gpu=self.title) if known else gpu_evidence.NOT_LISTED(gpu=self.title)
        self._state(Severity.SUSPECT, "gpu-lost", detail)

    def _forget_events(self) -> None:
        if self._events is not None:
            self._free(self._events)
            self._events = None

    def _free(self, events: Any) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(events)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
