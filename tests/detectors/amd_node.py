"""A node with AMD GPUs for tests of the detector `amdsmi`: a stand-in for the package of that name, because no GPU is there.

`test_amdsmi.py` compares its names with those of the package where that is installed. The package reads structures of a library that is
not there either, so it is never imported.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from understudy.detectors.amdsmi import AmdSmi
from understudy.detectors.base import Evidence, Subject

START = 1000.0
NOT_SUPPORTED, NO_PERMISSION, BUSY, NOT_FOUND, DRIVER_NOT_LOADED = 2, 10, 30, 31, 34
AMD = b"\x02\x10"  # its vendor's number, as configuration space begins


class AmdSmiTemperatureType(IntEnum):
    EDGE, HOTSPOT, VRAM = 0, 1, 3


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT, CRITICAL = 0, 5


class AmdSmiMemoryPageStatus(IntEnum):
    RESERVED, PENDING, UNRESERVABLE = 0, 1, 2


class AmdSmiLibraryException(Exception):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code

    def get_error_code(self) -> int:
        return self.err_code

    def get_error_info(self, detailed: bool = True) -> str:
        return f"AMDSMI_STATUS {self.err_code}"


ECC, PAGES, XGMI, METRICS = (
    "amdsmi_get_gpu_total_ecc_count",
    "amdsmi_get_gpu_bad_page_info",
    "amdsmi_gpu_xgmi_error_status",
    "amdsmi_get_gpu_metrics_info",
)
TEMPERATURE = "amdsmi_get_temp_metric"
QUERIES = ("amdsmi_get_gpu_device_bdf", "amdsmi_get_gpu_device_uuid", ECC, PAGES, XGMI, METRICS)


class Smi(ModuleType):
    """The package. `answers` are by handle and query, with the sensor and the metric of a temperature; an int below 0 is an error."""

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.handles: list[object] = []
        self.answers: dict[tuple[object, ...], Any] = {}
        self.asked: list[tuple[object, ...]] = []
        self.refuses = 0  # a status; 0: it starts
        for kind in (AmdSmiTemperatureType, AmdSmiTemperatureMetric, AmdSmiMemoryPageStatus, AmdSmiLibraryException):
            setattr(self, kind.__name__, kind)
        for name in QUERIES:
            setattr(self, name, lambda handle, name=name: self.answer(handle, name))

    def answer(self, *query: object) -> Any:
        self.asked.append(query)
        answer = self.answers.get(query, -NOT_SUPPORTED)
        if isinstance(answer, int) and answer < 0:
            raise AmdSmiLibraryException(-answer)
        return answer

    def amdsmi_init(self) -> None:
        if self.refuses:
            raise AmdSmiLibraryException(self.refuses)

    def amdsmi_get_processor_handles(self) -> list[object]:
        return self.handles

    def amdsmi_get_temp_metric(self, handle: object, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric) -> Any:
        return self.answer(handle, TEMPERATURE, sensor.name, metric.name)


class Node:
    def __init__(self, smi: Smi, pci: Path, gpus: int = 1) -> None:
        self.smi = smi
        self.pci = pci
        self.now = START
        smi.handles = [f"handle {number}" for number in range(gpus)]
        for number in range(gpus):
            self.healthy(number)
        self.make()

    def make(self) -> None:
        self.detector = AmdSmi(clock=lambda: self.now, pci=self.pci)

    def answers(self, query: str, answer: Any, number: int = 0) -> None:
        self.smi.answers[self.smi.handles[number], query] = answer

    def temperature(self, sensor: str, metric: str, answer: int, number: int = 0) -> None:
        self.smi.answers[self.smi.handles[number], TEMPERATURE, sensor, metric] = answer

    def ecc(self, uncorrectable: int = 0, correctable: int = 0, deferred: int = 0, number: int = 0) -> None:
        counts = {"correctable_count": correctable, "uncorrectable_count": uncorrectable, "deferred_count": deferred}
        self.answers(ECC, counts, number)

    def metrics(self, number: int = 0, **fields: object) -> None:
        """Set the given fields; the others are those of an idle MI300X."""
        idle = {"prochot_residency_acc": 0, "socket_thm_residency_acc": 0, "hbm_thm_residency_acc": 0, "vr_thm_residency_acc": 0}
        self.answers(METRICS, {"accumulation_counter": 0, "ppt_residency_acc": 0, "pcie_replay_count_acc": 0, **idle, **fields}, number)

    def bus(self, content: bytes | None, number: int = 0) -> None:
        """What configuration space begins with; None: the bus does not list the device."""
        file = self.pci / f"0000:{number}c:00.0" / "config"
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)

    def healthy(self, number: int) -> None:
        self.answers("amdsmi_get_gpu_device_bdf", f"0000:{number}c:00.0", number)
        self.answers("amdsmi_get_gpu_device_uuid", f"uuid-{number}", number)
        self.ecc(number=number)
        self.metrics(number)
        self.answers(PAGES, [], number)
        self.answers(XGMI, 0, number)
        for sensor in ("HOTSPOT", "VRAM"):
            self.temperature(sensor, "CURRENT", 60, number)
            self.temperature(sensor, "CRITICAL", 100, number)
        self.bus(AMD, number)

    def look(self, after: float = 1.0) -> list[Evidence]:
        """Return the detector's evidence `after` seconds from the last look."""
        self.now += after
        found = self.detector.look()
        assert all((one.detector, one.subject, one.name) == ("amdsmi", Subject.DEVICE, "") for one in found)
        return found

    def kinds(self, after: float = 1.0) -> list[tuple[str, str, str]]:
        return [(one.part, one.kind, one.severity) for one in self.look(after)]
