"""GPUs that are gone or give errors, on a stand-in for NVIDIA's library; and nodes that have none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.detectors.nvml_node import Node, only, started
from tests.message_texts import has

from understudy.detectors.base import Severity
from understudy.detectors.nvml_limits import DEFAULT
from understudy.messages import gpu_evidence

NOTE, SUSPECT = Severity.NOTE, Severity.SUSPECT
EVERY_CALL = pytest.mark.parametrize(
    "call", ["handle", "uuid", "uncorrected", "corrected", "rows", "pages", "clocks", "replays", "fields", "field__52__0", "xids"]
)
LOST, UNKNOWN, NO_PERMISSION, NOT_SUPPORTED, NOT_LOADED = "!15", "!999", "!4", "!3", "!9"


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with started(tmp_path_factory.mktemp("nvml")) as node:
        yield node


@pytest.fixture
def node(child: Node) -> Node:
    return child.fresh()


@EVERY_CALL
def test_a_device_that_is_lost_in_any_call_is_reported_at_every_look(node: Node, call: str) -> None:
    node.healthy(1)
    node.lines["order"] = "0 1"
    node.look()
    node.gpu(0, **{call: LOST})
    first = only(node.look())
    assert (first["part"], first["kind"], first["severity"], first["until"]) == ("gpu0", "gpu-lost", SUSPECT, 0)
    assert "GPU-0 at 00000000:0B:00.0" in first["detail"]
    assert node.look() == [first]
    node.gpu(1, uncorrected=1)
    assert node.kinds() == [("gpu0", "gpu-lost", SUSPECT), ("gpu1", "ecc-uncorrected", SUSPECT)], "the others are still looked at"
    node.healthy(0)
    node.gpu(0, boot=1)
    assert node.look() == [], "it is back"
    node.gpu(0, xids="74")
    assert node.kinds() == [("gpu0", "xid-74", SUSPECT)], "and its events are waited for again"


def test_the_last_error_of_a_device_that_is_lost(node: Node) -> None:
    node.look()
    node.gpu(0, xids="79", uncorrected=LOST)
    assert node.kinds() == [("gpu0", "xid-79", SUSPECT), ("gpu0", "gpu-lost", SUSPECT)]


def test_a_device_that_is_not_listed_any_more(node: Node) -> None:
    node.healthy(1)
    node.lines["order"] = "0 1"
    node.look()
    node.lines["order"] = "1"
    found = node.look()
    assert [(one["part"], one["kind"], one["severity"]) for one in found] == [("gpu0", "gpu-lost", SUSPECT)]
    assert node.look() == found
    node.gpu(1, uncorrected=1)
    assert node.kinds() == [("gpu0", "gpu-lost", SUSPECT), ("gpu1", "ecc-uncorrected", SUSPECT)], "each keeps its name"
    node.lines["order"] = "0 1"
    assert node.look() == []


def test_another_device_takes_the_place_of_one_that_is_gone(node: Node) -> None:
    node.look()
    node.healthy(2)
    node.lines["order"] = "2"
    assert node.look() == []
    node.gpu(2, uncorrected=1)
    assert node.kinds() == [("gpu0", "ecc-uncorrected", SUSPECT)]
    node.lines["order"] = "0 2"
    assert node.look() == [], "0 is new, and its index is taken"
    node.gpu(0, uncorrected=1)
    assert node.kinds() == [("gpu1", "ecc-uncorrected", SUSPECT)]


def test_a_device_that_is_lost_from_the_start(node: Node) -> None:
    node.healthy(1)
    node.lines["order"] = "0 1"
    node.gpu(1, handle=LOST)
    found = only(node.look())
    assert (found["part"], found["kind"], found["severity"]) == ("gpu1", "gpu-lost", SUSPECT)
    assert node.look() == [found]
    node.gpu(1, handle=NOT_SUPPORTED)
    assert node.look() == []


def test_a_device_of_others_is_none_of_ours(node: Node) -> None:
    node.healthy(1)
    node.lines["order"] = "0 1"
    node.gpu(1, handle=NO_PERMISSION)
    assert node.look() == []


@EVERY_CALL
def test_an_error_of_a_device_speaks_against_it(node: Node, call: str) -> None:
    node.healthy(1)
    node.lines["order"] = "0 1"
    node.look()
    node.gpu(0, **{call: UNKNOWN})
    found = only(node.look())
    assert (found["part"], found["kind"], found["severity"]) == ("gpu0", "nvml-error-999", SUSPECT)
    assert found["until"] == node.now + DEFAULT.wears_off
    node.healthy(0)
    assert node.look() == []


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_events_that_cannot_be_waited_for_are_tried_again(node: Node, when: str) -> None:
    if when == "later":
        node.look()
    node.gpu(0, xids=UNKNOWN)
    for _ in range(20):
        assert node.kinds() == [("gpu0", "nvml-error-999", SUSPECT)]
    node.gpu(0, xids="")
    assert node.look() == []
    node.gpu(0, xids="79")
    assert node.kinds() == [("gpu0", "xid-79", SUSPECT)]


def test_several_queries_with_the_same_error_are_one_piece_of_evidence(node: Node) -> None:
    node.gpu(0, uncorrected=UNKNOWN, rows=UNKNOWN, field__52__0=UNKNOWN)
    assert node.kinds() == [("gpu0", "nvml-error-999", SUSPECT)]


def test_what_may_not_be_asked_for_is_a_note(node: Node) -> None:
    node.gpu(0, uncorrected=NO_PERMISSION)
    assert node.kinds() == [("gpu0", "nvml-error-4", NOTE)]


def test_why_there_is_nothing_to_look_at(node: Node) -> None:
    assert node.ask("missing") == ""
    node.lines["order"] = ""
    assert node.ask("missing") == gpu_evidence.NO_DEVICE()
    node.lines["count"] = UNKNOWN
    assert node.ask("missing") == gpu_evidence.UNUSABLE(error="Unknown Error")
    node.lines["init"] = NOT_LOADED
    assert node.ask("missing") == gpu_evidence.UNUSABLE(error="Driver Not Loaded")


def _run(program: str) -> str:
    """Return the program's output, in a process without the stand-in."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout


ASK = "from understudy.detectors.nvml import Nvml; print(Nvml.missing())"


def test_without_the_package() -> None:
    assert has(_run(f"import sys; sys.modules['pynvml'] = None; {ASK}"), gpu_evidence.NO_PACKAGE)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="NVIDIA's driver is installed")
def test_without_the_library() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    assert _run(ASK) == f"{gpu_evidence.NO_LIBRARY()}\n"


def test_the_package_is_not_imported_with_the_module() -> None:
    assert _run("import sys, understudy.detectors.nvml; print('pynvml' in sys.modules)") == "False\n"
