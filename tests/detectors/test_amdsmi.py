"""Evidence from the counters and states of an AMD GPU, on a stand-in for the package `amdsmi`; and nodes that have none."""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.detectors import amd_node
from tests.detectors.amd_node import AMD, ECC, METRICS, PAGES, QUERIES, TEMPERATURE, XGMI, Node, Smi
from tests.message_texts import has

from understudy.detectors.amdsmi import DAY, DEFAULT, AmdSmi
from understudy.detectors.base import Evidence, Severity
from understudy.messages import amd_evidence, gpu_evidence

NOTE, SUSPECT = Severity.NOTE, Severity.SUSPECT
TITLE = "uuid-0 at 0000:0c:00.0"


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Smi:
    smi = Smi()
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    return smi


@pytest.fixture
def node(smi: Smi, tmp_path: Path) -> Node:
    return Node(smi, tmp_path)


def only(found: list[Evidence]) -> Evidence:
    assert len(found) == 1, found
    return found[0]


def test_a_healthy_node_gives_nothing(smi: Smi, tmp_path: Path) -> None:
    node = Node(smi, tmp_path, gpus=2)
    assert [node.look() for _ in range(3)] == [[], [], []]


def test_it_names_the_device_it_waits_for(smi: Smi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver call that does not return speaks against that one (`agent.detection`)."""
    node, waits = Node(smi, tmp_path, gpus=2), set[tuple[str, str]]()
    answer = smi.answer

    def noted(*query: object) -> object:
        waits.add((str(query[0]), node.detector.reading))
        return answer(*query)

    monkeypatch.setattr(smi, "answer", noted)
    node.look()
    assert waits == {("handle 0", "gpu0"), ("handle 1", "gpu1")} and not node.detector.reading


def test_uncorrected_errors(node: Node) -> None:
    node.look()
    node.ecc(uncorrectable=2)
    found = only(node.look())
    assert (found.part, found.kind, found.severity) == ("gpu0", "ecc-uncorrected", SUSPECT)
    assert found.happened == node.now and found.until == 0, "it does not wear off"
    assert found.detail == amd_evidence.AMD_UNCORRECTED(rise=2, count=2, gpu=TITLE)
    assert node.look() == [], "a counter that stands still"
    node.ecc(uncorrectable=0)
    assert node.look() == [], "the driver was loaded again"
    node.ecc(uncorrectable=1)
    assert has(only(node.look()).detail, amd_evidence.AMD_UNCORRECTED, rise=1, count=1)


def test_uncorrected_errors_from_before_are_a_note_once(node: Node) -> None:
    node.ecc(uncorrectable=4)
    assert node.kinds() == [("gpu0", "ecc-uncorrected-before", NOTE)]
    assert node.look() == []


def test_deferred_errors_are_suspect_for_a_day(node: Node) -> None:
    node.ecc(deferred=1)
    assert node.look() == [], "from before"
    node.ecc(deferred=3)
    found = only(node.look())
    assert (found.kind, found.severity, found.until) == ("ecc-deferred", SUSPECT, node.now + DAY)
    assert has(found.detail, amd_evidence.AMD_DEFERRED, rise=2, count=3)


def test_corrected_errors_count_by_their_rate(node: Node) -> None:
    node.ecc(correctable=100)
    assert node.look() == [], "those from before"
    node.ecc(correctable=110)
    assert node.look() == [], "ten in a minute are borne"
    node.ecc(correctable=111)
    found = only(node.look())
    assert (found.kind, found.severity, found.until) == ("ecc-corrected-rate", SUSPECT, node.now + DEFAULT.wears_off)
    assert has(found.detail, gpu_evidence.TOO_MANY, count=11, errors="corrected ECC errors", limit=10, within=60)


def test_bad_pages(node: Node) -> None:
    reserved, pending, kept = ({"page_address": number, "page_size": 4096, "status": number} for number in range(3))
    node.answers(PAGES, [reserved])
    assert node.look() == [], "those that are out of use are no fault"
    node.answers(PAGES, [reserved, pending, pending])
    found = only(node.look())
    since = node.now
    assert (found.kind, found.severity, found.until) == ("page-retirement-pending", SUSPECT, 0)
    assert has(found.detail, amd_evidence.AMD_PAGES_PENDING, count=2)
    assert only(node.look()).happened == since, "a state is reported at every look"
    node.answers(PAGES, [kept])
    assert node.kinds() == [("gpu0", "page-retirement-failed", SUSPECT)]
    node.answers(PAGES, "No bad pages found.")
    assert node.look() == [], "an earlier version says so"


@pytest.mark.parametrize("sensor", ["HOTSPOT", "VRAM"])
def test_a_critical_temperature_that_lasts(node: Node, sensor: str) -> None:
    node.temperature(sensor, "CURRENT", 99)
    assert node.look(after=60.0) == []
    node.temperature(sensor, "CURRENT", 100)
    began = node.now + 1.0
    for _ in range(5):
        assert node.look() == [], "for a moment"
    found = only(node.look())
    assert (found.kind, found.severity) == (f"too-hot-{sensor.lower()}", SUSPECT)
    assert (found.happened, found.until) == (began, node.now + DEFAULT.wears_off)
    assert has(found.detail, amd_evidence.AMD_TOO_HOT, sensor=sensor.lower(), temperature=100, critical=100)
    node.temperature(sensor, "CURRENT", 90)
    assert node.look() == []


@pytest.mark.parametrize("critical", [0, -amd_node.NOT_SUPPORTED])
def test_a_device_without_a_critical_temperature_is_never_too_hot(node: Node, critical: int) -> None:
    node.temperature("VRAM", "CRITICAL", critical)
    node.temperature("VRAM", "CURRENT", 500)
    assert [node.look(after=10.0) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("field", "kind", "severity"),
    [
        ("prochot_residency_acc", "throttled-prochot", SUSPECT),
        ("socket_thm_residency_acc", "throttled-thermal", NOTE),
        ("hbm_thm_residency_acc", "throttled-memory-thermal", NOTE),
        ("vr_thm_residency_acc", "throttled-regulator-thermal", NOTE),
    ],
)
def test_throttling_that_lasts(node: Node, field: str, kind: str, severity: Severity) -> None:
    node.metrics(accumulation_counter=1000, **{field: 900})
    assert node.look() == [], "how long it was so before is not known"
    for second in range(1, 7):
        node.metrics(accumulation_counter=1000 * second, **{field: 900 + 100 * second})
        assert node.look() == [], "a tenth of the time is borne"
    began = node.now + 1.0
    for second in range(7, 12):
        node.metrics(accumulation_counter=1000 * second, **{field: 400 * second})
        assert node.look() == [], "for a moment"
    node.metrics(accumulation_counter=12000, **{field: 4800})
    found = only(node.look())
    assert (found.kind, found.severity, found.happened, found.until) == (kind, severity, began, node.now + DEFAULT.wears_off)
    assert found.detail.endswith(f"({TITLE})") and "40%" in found.detail
    node.metrics(accumulation_counter=13000, **{field: 4800})
    assert node.look() == []


def test_the_limit_of_power_is_no_fault(node: Node) -> None:
    for second in range(10):
        node.metrics(accumulation_counter=1000 * second, ppt_residency_acc=1000 * second)
        assert node.look(after=10.0) == []


@pytest.mark.parametrize("unknown", ["N/A", 2**64 - 1, 2**32 - 1, None])
def test_what_the_metrics_do_not_have_counts_for_nothing(node: Node, unknown: object) -> None:
    for second in range(10):
        node.metrics(accumulation_counter=1000 * second, prochot_residency_acc=unknown, pcie_replay_count_acc=unknown)
        assert node.look() == []
        node.metrics(accumulation_counter=unknown, prochot_residency_acc=1000 * second, pcie_replay_count_acc=0)
        assert node.look() == []


def test_pcie_replays_count_by_their_rate(node: Node) -> None:
    node.metrics(pcie_replay_count_acc=100)
    assert node.look() == []
    node.metrics(pcie_replay_count_acc=108)
    assert node.look() == []
    node.metrics(pcie_replay_count_acc=109)
    found = only(node.look())
    assert (found.kind, found.severity, found.until) == ("pcie-replay-rate", SUSPECT, node.now + DEFAULT.wears_off)


def test_errors_of_xgmi(node: Node) -> None:
    node.look()
    node.answers(XGMI, 1)
    assert node.kinds() == [("gpu0", "xgmi-error", SUSPECT)]
    assert node.look() == [], "it stays reported"
    node.answers(XGMI, 2)
    assert node.kinds() == [("gpu0", "xgmi-error", SUSPECT)]
    node.make()
    assert node.kinds() == [("gpu0", "xgmi-error-before", NOTE)]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xff"])
def test_a_device_that_is_gone(smi: Smi, tmp_path: Path, content: bytes | None) -> None:
    node = Node(smi, tmp_path, gpus=2)
    node.look()
    node.bus(content)
    node.answers(ECC, -amd_node.NOT_SUPPORTED)
    first = only(node.look())
    assert (first.part, first.kind, first.severity, first.until) == ("gpu0", "gpu-lost", SUSPECT, 0)
    assert first.detail == amd_evidence.AMD_GONE(gpu=TITLE)
    assert node.look() == [first]
    node.ecc(uncorrectable=1, number=1)
    assert node.kinds() == [("gpu0", "gpu-lost", SUSPECT), ("gpu1", "ecc-uncorrected", SUSPECT)], "the others are still looked at"
    node.bus(AMD)
    node.ecc()
    assert node.look() == [], "it is back"
    node.ecc(uncorrectable=1)
    assert node.kinds() == [("gpu0", "ecc-uncorrected", SUSPECT)], "and is asked again"


def test_a_device_that_never_had_a_place_on_the_bus_is_not_gone(node: Node) -> None:
    node.bus(None)
    assert [node.look() for _ in range(3)] == [[], [], []]


def test_a_device_without_support_is_quiet_and_asked_once(smi: Smi, tmp_path: Path) -> None:
    node = Node(smi, tmp_path)
    smi.answers.clear()
    node.make()
    assert node.look() == []
    asked = len(smi.asked)
    assert [node.look() for _ in range(3)] == [[], [], []]
    assert len(smi.asked) == asked


@pytest.mark.parametrize("error", [amd_node.NOT_SUPPORTED, amd_node.NO_PERMISSION, amd_node.BUSY])
def test_a_device_that_is_reset_is_quiet_and_asked_again(node: Node, error: int) -> None:
    node.look()
    for query in (ECC, PAGES, METRICS, XGMI):
        node.answers(query, -error)
    assert [node.look() for _ in range(3)] == [[], [], []]
    node.ecc(uncorrectable=1)
    assert node.kinds() == [("gpu0", "ecc-uncorrected", SUSPECT)]


@pytest.mark.parametrize("query", [ECC, PAGES, METRICS, XGMI])
def test_an_error_is_a_note_and_does_not_end_the_look(node: Node, query: str) -> None:
    node.answers(query, -amd_node.NOT_FOUND)
    node.temperature("VRAM", "CURRENT", 101)
    found = only(node.look())
    assert (found.kind, found.severity, found.until) == ("amdsmi-error-31", NOTE, node.now + DEFAULT.wears_off)
    assert has(found.detail, amd_evidence.AMD_ERROR, query=query)
    assert {one.kind for one in node.look(after=DEFAULT.slowdown)} == {"amdsmi-error-31", "too-hot-vram"}


def test_what_this_version_of_the_package_does_not_have_is_quiet(smi: Smi, tmp_path: Path) -> None:
    node = Node(smi, tmp_path)
    for name in (ECC, XGMI):
        delattr(smi, name)
    assert [node.look() for _ in range(2)] == [[], []]


# Nodes that have none


def test_a_node_with_gpus_misses_nothing(node: Node, tmp_path: Path) -> None:
    assert AmdSmi.missing(tmp_path) == ""


def test_a_node_without_the_driver(smi: Smi, tmp_path: Path) -> None:
    assert has(AmdSmi.missing(tmp_path / "amdgpu"), amd_evidence.AMD_NO_DRIVER)
    assert smi.asked == []


def test_a_node_without_devices(smi: Smi, tmp_path: Path) -> None:
    assert has(AmdSmi.missing(tmp_path), amd_evidence.AMD_NO_DEVICE)


def test_a_library_that_refuses(smi: Smi, tmp_path: Path) -> None:
    smi.refuses = amd_node.DRIVER_NOT_LOADED
    assert has(AmdSmi.missing(tmp_path), amd_evidence.AMD_UNUSABLE, error="AMDSMI_STATUS 34")
    smi.refuses, smi.handles = 0, ["one"]
    assert AmdSmi.missing(tmp_path) == "", "it may start later"


@pytest.mark.parametrize("error", [KeyError("libamd_smi.so"), OSError("libamd_smi.so"), AttributeError("amdsmi_init")])
def test_a_package_without_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "amdsmi.py").write_text(f"print('not found')\nraise {error!r}\n")
    assert has(AmdSmi.missing(tmp_path), amd_evidence.AMD_NO_LIBRARY, error=f"{type(error).__name__}: {error}")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "not found\n"), "a program may read what we print"


def test_a_node_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.setattr("understudy.detectors.amdsmi.find_spec", lambda name: None)
    assert has(AmdSmi.missing(tmp_path), amd_evidence.AMD_NO_PACKAGE)


# The stand-in


def _names(source: ast.Module) -> dict[str, Any]:
    """Functions, and what each class assigns or defines."""
    found: dict[str, Any] = {one.name: None for one in source.body if isinstance(one, ast.FunctionDef)}
    for one in source.body:
        if isinstance(one, ast.ClassDef):
            found[one.name] = {
                name.id for part in one.body if isinstance(part, ast.Assign) for name in part.targets if isinstance(name, ast.Name)
            } | {part.name for part in one.body if isinstance(part, ast.FunctionDef)}
    return found


def test_the_package_has_the_names_of_its_stand_in() -> None:
    spec = find_spec("amdsmi")
    if spec is None or spec.origin is None:
        pytest.skip("amdsmi is not installed")
    folder = Path(spec.origin).parent
    interface = (folder / "amdsmi_interface.py").read_text()
    names = _names(ast.parse(interface)) | _names(ast.parse((folder / "amdsmi_exception.py").read_text()))
    assert {*QUERIES, TEMPERATURE, "amdsmi_init", "amdsmi_get_processor_handles"} <= names.keys()
    for kind in (amd_node.AmdSmiTemperatureType, amd_node.AmdSmiTemperatureMetric, amd_node.AmdSmiMemoryPageStatus):
        assert set(kind.__members__) <= names[kind.__name__]
    assert {"get_error_code", "get_error_info"} <= names["AmdSmiLibraryException"]
    keys = {one.value for one in ast.walk(ast.parse(interface)) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    fields = {"correctable_count", "uncorrectable_count", "deferred_count", "status", "accumulation_counter", "pcie_replay_count_acc"}
    assert fields | {f"{name}_residency_acc" for name in ("prochot", "ppt", "socket_thm", "hbm_thm", "vr_thm")} <= keys
