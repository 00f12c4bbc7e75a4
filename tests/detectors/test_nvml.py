"""Evidence from the counters, states and events of a GPU, on a stand-in for NVIDIA's library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.detectors.nvml_node import Node, only, started
from tests.message_texts import has

from understudy.detectors.base import Severity
from understudy.detectors.device_watch import Rate
from understudy.detectors.nvml_limits import DEFAULT, RECOVERY_ACTIONS, XIDS
from understudy.messages import gpu_evidence

NOTE, SUSPECT = Severity.NOTE, Severity.SUSPECT
UNKNOWN, NOT_SUPPORTED = "!999", "!3"


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with started(tmp_path_factory.mktemp("nvml")) as node:
        yield node


@pytest.fixture
def node(child: Node) -> Node:
    return child.fresh()


def test_a_healthy_node_gives_nothing(node: Node) -> None:
    node.healthy(1)
    node.lines["order"] = "0 1"
    assert [node.look() for _ in range(3)] == [[], [], []]


def test_it_names_the_device_it_waits_for(node: Node) -> None:
    """A driver call that does not return speaks against that one (`agent.detection`)."""
    node.healthy(1)
    node.lines["order"] = "0 1"
    assert node.ask("reading") == {"at a query": ["gpu0", "gpu1"], "after": ""}


def test_a_device_without_support_is_quiet(node: Node) -> None:
    node.lines = {"order": "0", "gpu0.uuid": "GPU-0"}
    assert [node.look() for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("error", [2, 3, 13, 22, 25, 26])
def test_what_the_driver_or_the_device_does_not_know_is_quiet(node: Node, error: int) -> None:
    calls = ("uncorrected", "corrected", "rows", "pages", "clocks", "replays", "fields", "xids")
    node.gpu(0, **dict.fromkeys(calls, f"!{error}"))
    assert [node.look() for _ in range(3)] == [[], [], []]


def test_what_is_not_supported_is_not_asked_for_again(node: Node) -> None:
    node.gpu(0, uncorrected=NOT_SUPPORTED, rows=NOT_SUPPORTED, xids=NOT_SUPPORTED, field__52__0=NOT_SUPPORTED, field__38__0="!2")
    assert node.look() == []
    node.gpu(0, uncorrected=7, rows="0 0 1 1", xids="79", field__52__0=7, field__38__0=7, corrected=0)
    assert node.look() == []
    node.gpu(0, uncorrected=9, field__52__0=9, field__38__0=9, xids="79 79")
    assert node.look() == []
    node.gpu(0, pages=1)
    assert node.kinds() == [("gpu0", "page-retirement-pending", SUSPECT)], "the others are asked for"


def test_uncorrected_errors(node: Node) -> None:
    node.look()
    node.gpu(0, uncorrected=2)
    found = only(node.look())
    assert (found["part"], found["kind"], found["severity"]) == ("gpu0", "ecc-uncorrected", SUSPECT)
    assert found["happened"] == node.now and found["until"] == 0, "it does not wear off"
    assert found["detail"] == gpu_evidence.UNCORRECTED(rise=2, count=2, gpu="GPU-0 at 00000000:0B:00.0")
    assert node.look() == [], "a counter that stands still"
    node.gpu(0, uncorrected=3)
    assert has(only(node.look())["detail"], gpu_evidence.UNCORRECTED, rise=1, count=3)


def test_uncorrected_errors_from_before_are_a_note_once(node: Node) -> None:
    node.gpu(0, uncorrected=4)
    assert node.kinds() == [("gpu0", "ecc-uncorrected-before", NOTE)]
    assert node.look() == []
    node.gpu(0, uncorrected=5)
    assert node.kinds() == [("gpu0", "ecc-uncorrected", SUSPECT)]


def test_a_counter_that_goes_down_was_reset(node: Node) -> None:
    high = {"uncorrected": 50, "corrected": 5000, "replays": 500, "field__38__0": 10**6, "field__52__0": 50, "field__59__0": 50}
    node.gpu(0, **high)
    assert node.kinds() == [("gpu0", "ecc-uncorrected-before", NOTE)]
    node.gpu(0, **dict.fromkeys(high, 1))
    assert node.look() == []
    assert node.look() == []
    node.gpu(0, uncorrected=2, field__52__0=2)
    assert node.kinds() == [("gpu0", "ecc-uncorrected", SUSPECT), ("gpu0", "nvlink-replay", SUSPECT)], "it counts on from there"


def test_corrected_errors_count_by_their_rate(node: Node) -> None:
    node.gpu(0, corrected=100)
    assert node.look() == [], "those from before"
    for count in range(101, 111):
        node.gpu(0, corrected=count)
        assert node.look() == [], "ten in a minute are borne"
    node.gpu(0, corrected=111)
    found = only(node.look())
    assert (found["kind"], found["severity"], found["until"]) == ("ecc-corrected-rate", SUSPECT, node.now + DEFAULT.wears_off)
    assert has(found["detail"], gpu_evidence.TOO_MANY, count=11, errors="corrected ECC errors", seconds=11, limit=10, within=60)
    assert node.look() == [], "no more have come"


def test_corrected_errors_that_come_slowly_are_borne(node: Node) -> None:
    for count in range(60):
        node.gpu(0, corrected=count)
        assert node.look(after=7.0) == []


def test_a_time_without_looks_makes_no_rate(node: Node) -> None:
    node.look()
    node.gpu(0, corrected=100)
    assert node.look(after=600.0) == [], "ten a minute"
    node.gpu(0, corrected=300)
    assert node.kinds(after=600.0) == [("gpu0", "ecc-corrected-rate", SUSPECT)]


def test_a_quiet_time_grants_nothing(node: Node) -> None:
    for _ in range(60):
        assert node.look(after=10.0) == []
    node.gpu(0, corrected=11)
    assert node.kinds() == [("gpu0", "ecc-corrected-rate", SUSPECT)]


def test_row_remaps(node: Node) -> None:
    node.look()
    node.gpu(0, rows="1 1 1 0")
    found = only(node.look())
    since = node.now
    assert (found["kind"], found["severity"], found["until"]) == ("row-remap-pending", SUSPECT, 0)
    assert has(found["detail"], gpu_evidence.ROW_WAITS, remapped=2)
    assert only(node.look())["happened"] == since, "a state is reported at every look"
    node.gpu(0, rows="1 1 1 1")
    assert node.kinds() == [("gpu0", "row-remap-failed", SUSPECT), ("gpu0", "row-remap-pending", SUSPECT)]
    node.gpu(0, rows="2 2 0 0")
    assert node.look() == [], "rows that are remapped are no fault"
    node.gpu(0, rows="2 2 1 0")
    assert only(node.look())["happened"] == node.now, "another time"


def test_pages_that_wait_to_be_retired(node: Node) -> None:
    node.look()
    node.gpu(0, pages=1)
    found = only(node.look())
    assert (found["kind"], found["severity"]) == ("page-retirement-pending", SUSPECT)
    assert has(found["detail"], gpu_evidence.PAGES_WAIT)


def test_xids(node: Node) -> None:
    node.gpu(0, xids="48")
    assert node.look() == [], "one from before"
    node.gpu(0, xids="48 31 79")
    assert node.kinds() == [("gpu0", "xid-31", NOTE), ("gpu0", "xid-79", SUSPECT)]
    assert node.look() == []
    node.gpu(0, xids="48 31 79 79 9999")
    assert node.kinds() == [("gpu0", "xid-79", SUSPECT), ("gpu0", "xid-9999", NOTE)]


def test_a_flood_of_xids_is_read_over_several_looks(node: Node) -> None:
    node.look()
    node.gpu(0, xids=" ".join(["13"] * (DEFAULT.events + 3)))
    assert [len(node.look()) for _ in range(3)] == [DEFAULT.events, 3, 0]


@pytest.mark.parametrize(
    ("bit", "kind", "severity"),
    [(0x40, "slowdown-hw-thermal", SUSPECT), (0x80, "slowdown-power-brake", SUSPECT), (0x20, "slowdown-sw-thermal", NOTE)],
)
def test_slowdown_that_lasts(node: Node, bit: int, kind: str, severity: Severity) -> None:
    node.look()
    node.gpu(0, clocks=bit | 0x4)
    began = node.now + 1.0
    for _ in range(5):
        assert node.look() == [], "for a moment it costs nothing"
    found = only(node.look())
    assert (found["kind"], found["severity"], found["happened"], found["until"]) == (kind, severity, began, node.now + DEFAULT.wears_off)
    node.gpu(0, clocks=0x4)
    assert node.look() == []
    node.gpu(0, clocks=bit)
    assert node.look() == [], "it begins again"


@pytest.mark.parametrize("bit", [0x1, 0x2, 0x4, 0x8, 0x10, 0x100])
def test_clocks_that_are_low_for_another_reason(node: Node, bit: int) -> None:
    node.gpu(0, clocks=bit)
    assert [node.look(after=10.0) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("field", "kind"),
    [("52__0", "nvlink-replay"), ("59__0", "nvlink-recovery"), ("215__0", "nvlink-recovery"), ("215__35", "nvlink-recovery")],
)
def test_replays_and_recoveries_of_nvlink(node: Node, field: str, kind: str) -> None:
    node.gpu(0, **{f"field__{field}": 5})
    assert node.look() == []
    node.gpu(0, **{f"field__{field}": 6})
    found = only(node.look())
    assert (found["kind"], found["severity"], found["until"]) == (kind, SUSPECT, node.now + DEFAULT.wears_off)
    message = gpu_evidence.NVLINK_REPLAYS if kind == "nvlink-replay" else gpu_evidence.NVLINK_RECOVERIES
    assert has(found["detail"], message, count=1)
    assert node.look() == []


def test_recoveries_of_several_links_are_one_piece_of_evidence(node: Node) -> None:
    node.look()
    node.gpu(0, field__215__3=2, field__215__4=1)
    assert only(node.look())["detail"] == gpu_evidence.NVLINK_RECOVERIES(count=3, gpu="GPU-0 at 00000000:0B:00.0")


@pytest.mark.parametrize("field", ["38__0", "45__0"])
def test_crc_errors_of_nvlink(node: Node, field: str) -> None:
    node.look()
    node.gpu(0, **{f"field__{field}": 5})
    assert node.kinds() == [("gpu0", "nvlink-crc", NOTE)]
    assert node.look() == []
    node.gpu(0, **{f"field__{field}": 6005})
    found = only(node.look())
    assert (found["kind"], found["severity"], found["until"]) == ("nvlink-crc-rate", SUSPECT, node.now + DEFAULT.wears_off)
    assert node.look() == []


def test_pcie_replays_count_by_their_rate(node: Node) -> None:
    node.gpu(0, replays=100)
    assert node.look() == []
    node.gpu(0, replays=108)
    assert node.look() == []
    node.gpu(0, replays=109)
    found = only(node.look())
    assert (found["kind"], found["severity"], found["until"]) == ("pcie-replay-rate", SUSPECT, node.now + DEFAULT.wears_off)
    assert node.look() == []


@pytest.mark.parametrize("action", RECOVERY_ACTIONS)
def test_what_the_driver_asks_for(node: Node, action: int) -> None:
    node.look()
    node.gpu(0, field__230__0=action)
    found = only(node.look())
    assert (found["kind"], found["severity"]) == (f"recovery-action-{action}", SUSPECT)
    assert has(found["detail"], gpu_evidence.RECOVERY_ASKED, action=RECOVERY_ACTIONS[action])
    node.gpu(0, field__230__0=0)
    assert node.look() == []


def test_one_field_that_gives_an_error_makes_no_rise_of_another(node: Node) -> None:
    node.gpu(0, field__59__0=100, field__215__0=100)
    node.look()
    node.gpu(0, field__59__0=UNKNOWN)
    assert node.kinds() == [("gpu0", "nvml-error-999", SUSPECT)]
    node.gpu(0, field__59__0=100)
    assert node.look() == []


def test_errors_of_programs_are_no_fault_of_the_gpu() -> None:
    assert not XIDS.keys() & {13, 31, 43, 45, 63, 68, 92, 94}


def test_a_rate_over_a_longer_time_grants_more() -> None:
    rate = Rate(10, 60.0)
    assert rate.exceeded(11, 1.0) and not rate.exceeded(10, 1.0), "all of them may have come at once"
    assert rate.exceeded(21, 120.0) and not rate.exceeded(20, 120.0)


COUNTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=COUNTS)
def test_each_rise_is_reported_and_nothing_else(node: Node, counts: list[tuple[int, int]]) -> None:
    node.make()
    before: tuple[int, int] | None = None
    for errors, replays in counts:
        node.gpu(0, uncorrected=errors, field__52__0=replays)
        expected = []
        if before is None:
            expected += [("gpu0", "ecc-uncorrected-before", NOTE)] if errors else []
        else:
            expected += [("gpu0", "ecc-uncorrected", SUSPECT)] if errors > before[0] else []
            expected += [("gpu0", "nvlink-replay", SUSPECT)] if replays > before[1] else []
        assert node.kinds() == expected
        before = errors, replays
