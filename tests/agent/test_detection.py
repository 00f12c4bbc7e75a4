"""Detectors in an agent: their evidence is reported, and their mistakes affect nothing else."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import wait_for_end, wait_until
from tests.message_texts import has

from understudy.agent import detection
from understudy.agent.descendants import reap
from understudy.agent.detection import AGAIN, KEPT, MOST, NodeDetectors, _Memory, _Running, looking
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.detectors.choice import Choice
from understudy.detectors.command import Command, CommandCheck
from understudy.links.messages import Seen, decode, encode
from understudy.messages import agents, service_jobs
from understudy.messages.base import Message
from understudy.orchestrator.detection import evidence_of

LIMIT = 30.0
HOT = Evidence("thermometer", Subject.DEVICE, "", Severity.SUSPECT, "91 degrees", 100.0, "hot", "gpu0", 200.0)
SEEN = Seen("thermometer", "device", "suspect", "hot", "gpu0", "91 degrees", 100.0, 0.0)


def ignored(seen: Seen) -> None:
    """For a detector with nothing to report."""


def detector(look: Callable[[], Iterable[Any]], **fields: Any) -> type[NodeDetector]:
    return type("Made", (NodeDetector,), {"name": "made", "every": 0.0, "look": lambda self: look(), **fields})


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., queue.Queue[Seen]]]:
    """Starts detectors; gives their reports."""
    monkeypatch.setattr(detection, "LOOK", 0.01)
    started: list[NodeDetectors] = []

    def start(*kinds: type[NodeDetector], **more: Any) -> queue.Queue[Seen]:
        said: queue.Queue[Seen] = queue.Queue()
        started.append(NodeDetectors([Choice.of(kind) for kind in kinds], said.put, **more))
        return said

    yield start
    for one in started:
        one.close()


def test_what_one_sees_goes_over_the_wire_and_speaks_of_the_agent_s_own_node_only(running: Callable[..., queue.Queue[Seen]]) -> None:
    said = running(detector(lambda: [HOT])).get(timeout=LIMIT)
    again = decode(encode(said))
    assert again == said and isinstance(again, Seen)
    found = evidence_of(again, "n7")
    assert found == Evidence("thermometer", Subject.DEVICE, "n7", Severity.SUSPECT, "91 degrees", 100.0, "hot", "gpu0", 200.0)


def test_the_same_evidence_is_repeated_only_after_a_while(
    running: Callable[..., queue.Queue[Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)

    def look() -> list[Evidence]:
        looks.release()
        return [HOT]

    said = running(detector(look), clock=lambda: 150.0)
    for _ in range(50):
        assert looks.acquire(timeout=LIMIT)
    assert said.qsize() == 1
    monkeypatch.setattr(detection, "AGAIN", 0.0)
    for _ in range(3):
        said.get(timeout=LIMIT)


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (lambda: 1 / 0, None),
        (lambda: ["hot"], service_jobs.NOT_EVIDENCE),
        (lambda: [HOT] * 1000, service_jobs.FLOOD),
        (lambda: iter(lambda: HOT, None), service_jobs.FLOOD),
        (lambda: [Evidence("d", Subject.WORKER, "w0", Severity.SUSPECT, "slow", 1.0)], agents.NOT_OF_NODE),
        (lambda: [Evidence("d", Subject.NODE, "", Severity.LOST, "gone", 1.0)], agents.NOT_OF_NODE),
        (lambda: [Evidence("d", Subject.NODE, "", Severity.NOTE, "then", 1e300)], service_jobs.NOT_EVIDENCE),
        (lambda: [Evidence("d", Subject.NODE, "", Severity.NOTE, "then", 1.0, until=float("inf"))], service_jobs.NOT_EVIDENCE),
    ],
    ids=range(8),
)
def test_one_that_does_wrong_is_left_out_and_the_others_go_on(
    look: Callable[[], Iterable[Any]], why: Message | None, running: Callable[..., queue.Queue[Seen]]
) -> None:
    found = running(detector(look), detector(lambda: [HOT]))
    both = {one.kind: one for one in (found.get(timeout=LIMIT), found.get(timeout=LIMIT))}
    assert both.keys() == {"hot", "detector-left-out"}
    note = both["detector-left-out"]
    assert (note.subject, note.severity, note.part) == ("node", "note", "")
    assert has(note.detail, service_jobs.DETECTOR_LEFT_OUT, detector="made")
    assert has(note.detail, why) if why is not None else "ZeroDivisionError" in note.detail


def test_one_that_cannot_be_made_is_left_out(running: Callable[..., queue.Queue[Seen]]) -> None:
    class Unmade(NodeDetector):
        name = "unmade"

        def __init__(self) -> None:
            raise OSError("no such device")

        def look(self) -> list[Evidence]:
            return []

    wanted = service_jobs.DETECTOR_LEFT_OUT(detector="unmade", reason="OSError: no such device")
    assert running(Unmade).get(timeout=LIMIT).detail == wanted


@pytest.mark.parametrize("found", [[], [HOT]])
def test_a_device_in_which_one_hangs_is_suspected_until_it_answers(
    running: Callable[..., queue.Queue[Seen]], found: list[Evidence]
) -> None:
    """Perhaps with evidence against itself."""
    stuck = threading.Event()

    class Hangs(NodeDetector):
        name, limit = "hangs", 0.02

        def look(self) -> list[Evidence]:
            self.reading = "gpu1"
            stuck.wait(LIMIT)
            return found

    reported = running(Hangs)
    seen, about_itself = reported.get(timeout=LIMIT), reported.get(timeout=LIMIT)
    assert (seen.subject, seen.part, seen.severity, seen.until) == ("device", "gpu1", "suspect", 0.0)
    assert has(seen.detail, agents.NO_ANSWER, device="gpu1", detector="hangs")
    assert has(about_itself.detail, agents.LOOK_TOO_LONG, seconds=0.02) and about_itself.severity == "note"
    stuck.set()
    assert [reported.get(timeout=LIMIT).kind for _ in found] == [one.kind for one in found]
    over = reported.get(timeout=LIMIT)
    assert over == replace(seen, until=over.until) and 0 < over.until <= time.time()


def test_a_slow_look_and_a_process_that_was_stopped_speak_against_no_device() -> None:
    """A look has 30 s. It is too long if it is so twice in a row, and one device is to blame if it took half of that."""
    one = _Running(Choice.of(detector(list, limit=30.0)))
    made = one.make()
    assert made is not None

    def late(*looks: tuple[float, str]) -> tuple[list[bool], str]:
        one.begin(100.0)
        found = []
        for now, made.reading in looks:
            found.append(one.is_late(now))
        return found, one.stuck_in(now)

    assert late((101.0, "gpu0"), (129.0, "gpu7"), (131.0, "gpu7"), (132.0, "gpu7")) == ([False, False, False, True], "")
    assert late((101.0, "gpu0"), (131.0, "gpu0"), (132.0, "gpu0")) == ([False, False, True], "gpu0")
    assert late((101.0, "gpu0"), (500.0, "gpu0"))[0] == [False, False], "it was stopped, and looks on"


def test_one_that_hangs_is_left_out_and_heard_no_more(running: Callable[..., queue.Queue[Seen]]) -> None:
    stuck, looked = threading.Event(), threading.Event()

    def look() -> list[Evidence]:
        stuck.wait(LIMIT)
        looked.set()
        return [HOT]

    found = running(detector(look, limit=0.02))
    assert has(found.get(timeout=LIMIT).detail, agents.LOOK_TOO_LONG, seconds=0.02)
    stuck.set()
    assert looked.wait(LIMIT)
    started = [thread for thread in threading.enumerate() if thread.name == "understudy-detector-made"]
    for thread in started:
        thread.join(LIMIT)
    assert found.empty()


def test_no_detector_runs_after_the_end() -> None:
    said: queue.Queue[Seen] = queue.Queue()
    detectors = NodeDetectors([Choice.of(detector(lambda: [HOT]))], said.put)
    said.get(timeout=LIMIT)
    detectors.close()
    ends = time.monotonic() + LIMIT
    while any(thread.name in ("understudy-detector-made", "understudy-detectors") for thread in threading.enumerate()):
        assert time.monotonic() < ends


def test_an_earlier_end_is_sent_at_once_and_a_later_one_with_the_next_repeat() -> None:
    memory = _Memory()
    assert memory.take(replace(SEEN, until=500.0), 100.0)
    for until in (500.0, 600.0, 700.0, 0.0):
        assert not memory.take(replace(SEEN, until=until), 101.0)
    assert memory.due(109.0) == []
    assert memory.due(110.0) == [SEEN], "as it was given last"
    assert memory.take(replace(SEEN, until=900.0), 111.0), "it ends now"
    assert memory.take(replace(SEEN, until=112.0), 112.0), "it is over"
    assert not memory.take(replace(SEEN, until=112.0), 113.0)
    assert memory.take(SEEN, 114.0), "it has come again"


def test_what_ends_soon_and_is_given_again_does_not_end_in_between() -> None:
    memory = _Memory()
    assert all(memory.take(replace(SEEN, until=now + 2.0), now) for now in (100.0, 101.0, 102.0))


def test_a_suspicion_of_one_check_is_repeated_as_long_as_it_is_valid() -> None:
    memory, until = _Memory(), 100.0 + 3 * AGAIN
    memory.take(replace(SEEN, until=until), 100.0)
    memory.take(replace(SEEN, severity="note", kind="loud"), 100.0)
    reported = [now for now in range(100, 1000) if memory.due(float(now))]
    assert reported == [100 + AGAIN, 100 + 2 * AGAIN]
    assert [one.kind for one in memory.known(1000.0)] == ["hot", "loud"], "to the next leader, also that it is over"
    assert [one.kind for one in memory.known(101.0 + KEPT)] == ["hot"]


def test_a_clock_that_is_set_back_silences_no_detector() -> None:
    memory = _Memory()
    assert memory.take(SEEN, 1000.0)
    assert memory.due(900.0) == [SEEN]
    assert memory.take(SEEN, 800.0)


def test_what_is_kept_is_bounded_and_what_holds_stays_longest() -> None:
    memory = _Memory()
    memory.take(replace(SEEN, part="over", until=100.0), 100.0)
    for number in range(MOST - 1):
        memory.take(replace(SEEN, part=f"gpu{number}"), 101.0 + number)
    memory.take(replace(SEEN, part="one more"), 300.0)
    assert len(memory.known(300.0)) == MOST
    assert {one.part for one in memory.known(300.0)} == {*(f"gpu{number}" for number in range(MOST - 1)), "one more"}
    memory.take(replace(SEEN, part="two more"), 301.0)
    assert "gpu0" not in {one.part for one in memory.known(301.0)}, "the oldest"


def test_the_agent_repeats_the_findings_of_one_check(running: Callable[..., queue.Queue[Seen]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "AGAIN", 0.0)
    looks = iter([[HOT]])
    said = running(detector(lambda: next(looks, []), every=3600.0), clock=lambda: 150.0)
    assert {said.get(timeout=LIMIT) for _ in range(3)} == {replace(SEEN, until=200.0)}


def test_who_is_left_out_is_known_to_the_next_orchestrator() -> None:
    said: queue.Queue[Seen] = queue.Queue()
    detectors = NodeDetectors([Choice.of(detector(lambda: ["hot"]))], said.put)
    reported = said.get(timeout=LIMIT)
    assert detectors.known() == [reported] and reported.kind == "detector-left-out"
    detectors.close()


def test_detectors_that_have_nothing_to_detect_or_are_off_do_not_run_and_the_others_are_named() -> None:
    begun: queue.Queue[list[str]] = queue.Queue()
    choices = [
        Choice.of(detector(list, name="a")),
        Choice.of(detector(lambda: [HOT], name="b", missing=lambda: "there is no fan")),
        replace(Choice.of(detector(lambda: [HOT], name="c")), off=True),
        Choice.of(detector(list, name="d")),
        Choice("e", "somewhere", 1.0, lambda: 1 / 0),  # type: ignore[arg-type, return-value]
    ]
    found: queue.Queue[Seen] = queue.Queue()
    detectors = NodeDetectors(choices, found.put, begun.put)
    assert begun.get(timeout=LIMIT) == ["a", "d"]
    assert has(found.get(timeout=LIMIT).detail, service_jobs.DETECTOR_LEFT_OUT, detector="e")
    detectors.close()
    assert found.empty()
    assert looking("n0", ["a", "d"]) == agents.DETECTORS_LOOK(node="n0", detectors="a and d look")
    assert looking("n0", ["a"]) == agents.DETECTORS_LOOK(node="n0", detectors="a looks")


def test_close_ends_what_runs_and_waits_for_it(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/unfinished; mv {tmp_path}/unfinished {tmp_path}/pid; exec sleep 1000"
    check = CommandCheck(name="slow", argv=("/bin/sh", "-c", script))
    detectors = NodeDetectors([Choice("command:slow", "a file", 1.0, partial(Command, check))], ignored)
    wait_until((tmp_path / "pid").exists, "the check runs")
    pid = int((tmp_path / "pid").read_text())
    detectors.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_detector_that_cannot_be_closed_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "CLOSING", 0.01)
    stuck, closed = threading.Event(), threading.Event()
    looked = threading.Semaphore(0)
    kinds = [
        detector(lambda: looked.release() or [], close=lambda self: stuck.wait(LIMIT)),  # type: ignore[func-returns-value]
        detector(lambda: looked.release() or [], close=lambda self: 1 / 0),  # type: ignore[func-returns-value]
        detector(lambda: looked.release() or [], close=lambda self: closed.set()),  # type: ignore[func-returns-value]
    ]
    detectors = NodeDetectors([Choice.of(kind) for kind in kinds], ignored)
    for _ in kinds:
        assert looked.acquire(timeout=LIMIT)
    detectors.close()
    assert closed.wait(LIMIT)
    stuck.set()


def test_the_exit_status_of_a_check_is_not_collected_with_the_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the start of a process and the moment at which its number is known, too: there nothing could be left out by its number."""
    ended, collected = threading.Event(), threading.Event()
    found: list[list[Evidence]] = []
    start = subprocess.Popen

    def starting(*arguments: Any, **more: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **more)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended.set()
        assert collected.wait(LIMIT)
        return process

    monkeypatch.setattr(subprocess, "Popen", starting)
    check = Command(CommandCheck(name="disk", argv=("/bin/sh", "-c", "exit 1")))
    looking = threading.Thread(target=lambda: found.append(check.look()))
    looking.start()
    assert ended.wait(LIMIT)
    reap(())
    collected.set()
    looking.join(LIMIT)
    assert [one.kind for one in found[0]] == ["check-failed"]


def test_orphans_are_collected() -> None:
    code = """
import os, sys
from understudy.agent.descendants import become_subreaper, reap
become_subreaper()
read, write = os.pipe()
if not (child := os.fork()):
    if not (orphan := os.fork()):
        os._exit(0)
    os.write(write, str(orphan).encode())
    os._exit(0)
os.waitpid(child, 0)
orphan = int(os.read(read, 20))
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
reap({orphan})
assert os.path.exists(f"/proc/{orphan}")
reap(())
assert not os.path.exists(f"/proc/{orphan}")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)


def test_a_check_ends_with_an_agent_that_is_killed(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/unfinished; mv {tmp_path}/unfinished {tmp_path}/pid; exec sleep 1000"
    code = f"""
from understudy.detectors.command import Command, CommandCheck
Command(CommandCheck(name="slow", argv=("/bin/sh", "-c", {script!r}))).look()
"""
    agent = subprocess.Popen([sys.executable, "-c", code])
    wait_until((tmp_path / "pid").exists, "the check runs")
    agent.kill()
    agent.wait(LIMIT)
    wait_for_end(int((tmp_path / "pid").read_text()))
