"""An operator's own check, with real processes: its results, how it is ended, and that no process is left."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.processes import Mark, marked, pid_of, send, wait_for_end, wait_until
from tests.message_texts import has, refused

from understudy.detectors import command
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.command import GRACE, MOST_FINDINGS, MOST_OUTPUT, Command, CommandCheck
from understudy.detectors.configuration import read
from understudy.messages import detector_files, node_programs
from understudy.messages.base import Message

NOW = 1_800_000_000.0
PATIENT = 60.0  # seconds, for what ends by itself
SHORT = 0.5  # seconds, for what does not

# Ignores SIGTERM, and so does its child, which reports when both do.
DEAF = "trap '' TERM; sh -c ': > \"$0\"; exec sleep 1000' \"$0\" & wait; exec sleep 1000"


@pytest.fixture
def mark() -> Iterator[Mark]:
    """At the end nothing is left: no process, no zombie, no descriptor."""
    descriptors = set(os.listdir("/proc/self/fd"))
    with marked() as made:
        yield made
        made.wait_until_none()  # a child's child that was killed is not ours to wait for
        assert children() == []
        assert set(os.listdir("/proc/self/fd")) == descriptors


def children() -> list[int]:
    """Of this process, zombies, too."""
    return [child.pid for child in psutil.Process().children()]


def check(mark: Mark, *argv: str, **more: Any) -> Command:
    found = read(CommandCheck, {"name": "disk", "argv": argv, "limit": PATIENT, **more})
    return Command(found, lambda: NOW, mark.environment())


def shell(mark: Mark, script: str, **more: Any) -> Command:
    return check(mark, "/bin/sh", "-c", script, **more)


def only(found: list[Evidence]) -> Evidence:
    assert len(found) == 1
    return found[0]


def note(found: list[Evidence], kind: str) -> str:
    """Return the text of the only note."""
    one = only(found)
    assert (one.detector, one.subject, one.name, one.severity, one.happened) == ("command:disk", Subject.NODE, "", Severity.NOTE, NOW)
    assert (one.kind, one.part, one.until) == (kind, "", 0.0)
    return one.detail


# -- exit codes -------------------------------------------------------------------------------------------------------


def test_exit_code_0_is_no_evidence(mark: Mark) -> None:
    assert shell(mark, "echo all is well; echo warning >&2").look() == []


def test_exit_code_1_is_evidence_against_the_node(mark: Mark) -> None:
    found = only(shell(mark, "echo; echo '  no space on /scratch'; echo more; exit 1").look())
    assert found == Evidence(
        "command:disk",
        Subject.NODE,
        "",
        Severity.SUSPECT,
        node_programs.FAILED(check="disk", printed=": no space on /scratch"),
        NOW,
        "check-failed",
    )


def test_its_severity_kind_and_end_are_configured(mark: Mark) -> None:
    found = only(shell(mark, "echo slow >&2; exit 1", severity="note", kind="slow-disk", holds=90.0).look())
    assert (found.severity, found.kind, found.until) == (Severity.NOTE, "slow-disk", NOW + 90)
    assert found.detail == node_programs.FAILED(check="disk", printed=": slow")


@pytest.mark.parametrize("code", [2, 127, 255])
def test_another_exit_code_speaks_against_the_check(mark: Mark, code: int) -> None:
    found = note(shell(mark, f"echo wrong >&2; exit {code}").look(), "check-exit")
    assert has(found, node_programs.BAD_EXIT, check="disk", exit_code=code) and "wrong" in found


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_a_signal_speaks_against_the_check(mark: Mark, number: signal.Signals) -> None:
    found = note(shell(mark, f"kill -{int(number)} $$").look(), "check-signal")
    assert has(found, node_programs.SIGNALLED, check="disk", signal=number.name)


def test_a_program_that_cannot_be_started(mark: Mark, tmp_path: Path) -> None:
    found = note(check(mark, str(tmp_path / "none")).look(), "check-start")
    assert has(found, node_programs.NOT_STARTED, check="disk", reason=os.strerror(errno.ENOENT))
    (tmp_path / "text").write_text("no program")
    found = note(check(mark, str(tmp_path / "text")).look(), "check-start")
    assert has(found, node_programs.NOT_STARTED, check="disk", reason=os.strerror(errno.EACCES))


def test_no_shell_no_input_no_token(mark: Mark) -> None:
    script = (
        "import os, sys; assert sys.stdin.read() == '' and sys.argv[1] == '$(id); x'; assert os.getsid(0) == os.getpgid(0) == os.getpid();"
        "assert not {'UNDERSTUDY_TOKEN', 'UNDERSTUDY_DATABASE'} & os.environ.keys() and os.environ['OTHER'] == 'there'"
    )
    found = read(CommandCheck, {"name": "disk", "argv": [sys.executable, "-c", script, "$(id); x"], "limit": PATIENT})
    secrets = {"UNDERSTUDY_TOKEN": "s3cret", "UNDERSTUDY_DATABASE": "s3cret", "OTHER": "there"}
    assert Command(found, lambda: NOW, mark.environment(**secrets)).look() == []


def test_the_command_line_is_not_reported(mark: Mark) -> None:
    for script in ("exit 1", "exit 3", "kill -9 $$"):
        assert "s3cret" not in only(check(mark, "/bin/sh", "-c", script, "s3cret").look()).detail


# -- the end of a run -------------------------------------------------------------------------------------------------


def ended_at_its_limit(mark: Mark, script: str, ready: Path) -> None:
    """It has come so far that `ready` is there, and does not end by itself. Where a limit was too short for this machine, a longer one is
    tried.
    """
    limit = SHORT
    while True:
        note(check(mark, "/bin/sh", "-c", script, str(ready), limit=limit).look(), "check-timeout")
        if ready.exists():
            return
        limit *= 2
        assert limit < PATIENT


def test_a_run_is_ended_at_its_limit(mark: Mark) -> None:
    begun = time.monotonic()
    found = note(shell(mark, "echo begun; exec sleep 1000", limit=SHORT).look(), "check-timeout")
    assert has(found, node_programs.TIMEOUT, check="disk", seconds=SHORT)
    assert time.monotonic() - begun >= SHORT


def test_sigterm_comes_first(mark: Mark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "GRACE", PATIENT)
    terminated = tmp_path / "terminated"
    script = f"trap ': > {terminated}; exit 0' TERM; : > \"$0\"; while :; do sleep 1000 & wait; done"
    ended_at_its_limit(mark, script, tmp_path / "ready")
    assert terminated.exists()


def test_who_ignores_sigterm_is_killed_with_all_its_children(mark: Mark, tmp_path: Path) -> None:
    ended_at_its_limit(mark, DEAF, tmp_path / "deaf")  # that nothing is left is asked of every test here


def test_a_stopped_process_is_ended_too(mark: Mark) -> None:
    note(shell(mark, "kill -STOP $$", limit=SHORT).look(), "check-timeout")


def test_what_it_leaves_running_is_killed_and_not_waited_for(mark: Mark) -> None:
    found = only(shell(mark, "sleep 1000 & echo bad; exit 1").look())
    assert found.detail.endswith(": bad")


def test_who_leaves_the_group_with_its_pipes_is_not_waited_for(mark: Mark, tmp_path: Path) -> None:
    daemon = f"echo $$ > {tmp_path}/pid; : > {tmp_path}/ready; exec sleep 1000"  # nothing else runs in it, which could outlive it
    only(shell(mark, f"setsid sh -c '{daemon}' & while [ ! -e {tmp_path}/ready ]; do :; done; exit 1").look())
    pid = int((tmp_path / "pid").read_text())
    send(pid, signal.SIGKILL)
    wait_for_end(pid)


def test_close_ends_a_run_and_waits_for_it(mark: Mark, tmp_path: Path) -> None:
    detector = check(mark, "/bin/sh", "-c", DEAF, str(tmp_path / "deaf"))
    found: list[list[Evidence]] = []
    looking = threading.Thread(target=lambda: found.append(detector.look()))
    looking.start()
    try:
        wait_until((tmp_path / "deaf").exists, "the check runs")
        assert pid_of(lambda: detector.pid) in mark.pids()  # the program may run before its number is known here
        with pytest.raises(RuntimeError, match="already"):
            detector.look()
    finally:
        detector.close()
        looking.join(PATIENT)
    assert found == [[]], "it says nothing"
    assert children() == []
    mark.wait_until_none()
    assert detector.look() == []
    detector.close()


def test_a_process_that_does_not_end_is_reported_and_no_other_started(mark: Mark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like one that waits in the kernel: here no signal is sent to it."""
    monkeypatch.setattr(command, "GRACE", 0.01)
    monkeypatch.setattr(command, "_signal_group", lambda process, number: None)
    runs = tmp_path / "runs"
    detector = shell(mark, f"echo x >> {runs}; exec sleep 1000", limit=SHORT)
    note(detector.look(), "check-timeout")
    first = detector.pid
    note(detector.look(), "check-stuck")
    assert detector.pid == first
    wait_until(lambda: runs.exists() and runs.read_text(), "it has begun")
    assert runs.read_text() == "x\n"
    send(first, signal.SIGKILL)
    wait_for_end(first)
    detector.close()
    assert detector.pid is None


def test_an_exit_status_that_went_elsewhere_is_not_taken_for_healthy(mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    def stolen(kind: int, pid: int, options: int) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", stolen)
    detector = shell(mark, "exit 1")
    try:
        note(detector.look(), "check-status")
    finally:
        monkeypatch.undo()
        mark.kill()
        detector.close()


def test_it_runs_again_and_again(mark: Mark) -> None:
    detector = shell(mark, "exit 1")
    assert [only(detector.look()).kind for _ in range(5)] == ["check-failed"] * 5


def test_no_descriptors_are_left_when_there_are_too_few(mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(pid: int, flags: int = 0) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as changed:
        changed.setattr(os, "pidfd_open", none)
        assert "Too many open files" in note(shell(mark, "exec sleep 1000").look(), "check-start")


# -- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["status", "json"])
def test_output_without_end_is_cut_while_it_comes(mark: Mark, output: str) -> None:
    words = note(shell(mark, "exec yes understudy", output=output).look(), "check-output")
    assert has(words, node_programs.TOO_MUCH_OUTPUT, check="disk", most=MOST_OUTPUT) and "understudy" in words


def test_a_process_in_the_background_prints_without_end(mark: Mark) -> None:
    note(shell(mark, "yes & exec sleep 1000").look(), "check-output")


def test_errors_without_end_are_read_and_forgotten(mark: Mark) -> None:
    script = "head -c 10000000 /dev/zero >&2; echo tired; exit 1"
    assert only(shell(mark, script).look()).detail.endswith(": tired")


def test_as_much_as_is_allowed_is_read_whole(mark: Mark) -> None:
    blank = MOST_OUTPUT - 2
    assert shell(mark, f"head -c {blank} /dev/zero | tr '\\0' ' '; printf '[]'", output="json").look() == []
    note(shell(mark, f"head -c {blank + 1} /dev/zero | tr '\\0' ' '; printf '[]'", output="json").look(), "check-output")


def test_what_is_shown_is_short_and_harmless(mark: Mark) -> None:
    detail = only(shell(mark, r"printf '\033[2Jgone\377'; head -c 5000 /dev/zero | tr '\0' x; exit 1").look()).detail
    assert r"\x1b[2Jgone" in detail and detail.isprintable() and len(detail) < 300


def prints(mark: Mark, folder: Path, text: str, **more: Any) -> list[Evidence]:
    (folder / "text").write_text(text)
    return check(mark, "/bin/cat", str(folder / "text"), output="json", **more).look()


def finding(detail: str) -> str:
    return node_programs.FINDING(check="disk", finding=detail)


def test_findings(mark: Mark, tmp_path: Path) -> None:
    items = [
        {"subject": "device", "part": "gpu3", "kind": "xid-79", "severity": "suspect", "detail": "fallen off the bus", "for": 60},
        {"subject": "link", "part": "eth0", "kind": "flaps", "severity": "note", "until": NOW + 5},
        {"subject": "node", "kind": "clock", "severity": "suspect", "detail": "two\nlines"},
        {"subject": "node", "kind": "for-good", "severity": "note", "for": 0},
    ]
    device, link, node, good = prints(mark, tmp_path, json.dumps(items), holds=7.0)
    assert device == Evidence(
        "command:disk", Subject.DEVICE, "", Severity.SUSPECT, finding("fallen off the bus"), NOW, "xid-79", "gpu3", NOW + 60
    )
    assert (link.subject, link.part, link.severity, link.until) == (Subject.LINK, "eth0", Severity.NOTE, NOW + 5)
    assert (node.subject, node.until, node.detail) == (Subject.NODE, NOW + 7, finding("two"))
    assert good.until == 0.0
    assert prints(mark, tmp_path, "[]") == []


def item(**changed: Any) -> dict[str, Any]:
    return {"subject": "device", "part": "gpu0", "kind": "hot", "severity": "note", **changed}


HOSTILE = {
    "nothing": "",
    "words": "all is well",
    "no list": json.dumps(item()),
    "cut": "[" + json.dumps(item()),
    "null": "[null]",
    "too many": json.dumps([item()] * (MOST_FINDINGS + 1)),
    "deep": "[" * 30000,
    "half a pair": '[{"subject": "node", "kind": "hot", "severity": "note", "detail": "\\ud800"}]',
    "unknown key": json.dumps([item(name="another-node")]),
    "a worker": json.dumps([item(subject="worker")]),
    "lost": json.dumps([item(severity="lost")]),
    "no part": json.dumps([item(part="")]),
    "a node's part": json.dumps([item(subject="node")]),
    "control characters": json.dumps([item(part="gpu\x1b[2J")]),
    "a line more": json.dumps([item(part="gpu0\n")]),
    "a path": json.dumps([item(kind="../../x")]),
    "long kind": json.dumps([item(kind="x" * 65)]),
    "long detail": json.dumps([item(detail="x" * 1001)]),
    "number as text": json.dumps([{**item(), "for": "60"}]),
    "text as number": json.dumps([item(part=3)]),
    "negative": json.dumps([{**item(), "for": -1}]),
    "not a number": json.dumps([{**item(), "for": float("nan")}]),
    "without end": json.dumps([item(until=float("inf"))]),
    "beyond any calendar": json.dumps([item(until=1e300)]),
    "large number": '[{"subject": "node", "kind": "hot", "severity": "note", "for": ' + "9" * 5000 + "}]",
    "both ends": json.dumps([{**item(until=NOW), "for": 1}]),
    "one of two": json.dumps([item(), item(severity="bad")]),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_list_of_findings_speaks_against_the_check(mark: Mark, tmp_path: Path, text: str) -> None:
    detail = note(prints(mark, tmp_path, text), "check-output")
    assert has(detail, node_programs.NO_FINDINGS, check="disk") and len(detail) < 1000 and detail.isprintable()


def test_bytes_that_are_no_text(mark: Mark) -> None:
    note(shell(mark, r"printf '[\377]'", output="json").look(), "check-output")


@pytest.mark.parametrize("code", [1, 2])
def test_findings_count_with_exit_code_0_only(mark: Mark, code: int) -> None:
    """An interpreter ends with 1 after an uncaught exception."""
    found = note(shell(mark, f"printf '[]'; echo Traceback >&2; exit {code}", output="json").look(), "check-exit")
    assert has(found, node_programs.BAD_EXIT, exit_code=code) and "Traceback" in found


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message", "arguments"),
    [
        ({"argv": []}, detector_files.BAD_SETTING, {"place": "argv: "}),
        ({"argv": ["true"]}, node_programs.RELATIVE_PATH, {}),
        ({"argv": ["/bin/true", "a\0b"]}, node_programs.ZERO_BYTE, {}),
        ({"argv": "/bin/true"}, detector_files.BAD_SETTING, {"place": "argv: "}),
        ({"name": "a b"}, detector_files.BAD_SETTING, {"place": "name: "}),
        ({"every": 0}, detector_files.BAD_SETTING, {"place": "every: "}),
        ({"limit": float("nan")}, detector_files.BAD_SETTING, {"place": "limit: "}),
        ({"limit": 3601}, detector_files.BAD_SETTING, {"place": "limit: "}),
        ({"severity": "lost"}, detector_files.BAD_SETTING, {"place": "severity: "}),
        ({"kind": "A"}, detector_files.BAD_SETTING, {"place": "kind: "}),
        ({"holds": -1}, detector_files.BAD_SETTING, {"place": "holds: "}),
        ({"shell": True}, detector_files.UNKNOWN_SETTING, {"name": "shell"}),
    ],
)
def test_a_wrong_entry_is_named(wrong: dict[str, Any], message: Message, arguments: dict[str, Any]) -> None:
    with refused(ValueError, message, **arguments) as raised:
        read(CommandCheck, {"name": "disk", "argv": ["/bin/true"], **wrong})
    assert "argv" in str(raised.value) or "argv" not in wrong


def test_a_missing_entry_is_named() -> None:
    with refused(ValueError, detector_files.MISSING_SETTING, name="argv"):
        read(CommandCheck, {"name": "disk"})


def test_the_limit_of_a_look_has_room_for_both_signals() -> None:
    detector = Command(CommandCheck(name="disk", argv=("/bin/true",), every=5.0, limit=7.0, severity=Severity.NOTE.value))
    assert detector.limit > 7.0 + 2 * GRACE and detector.every == 5.0
