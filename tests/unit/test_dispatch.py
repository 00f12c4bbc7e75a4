"""Which commands wait for the journal, and who carries which one out."""

from __future__ import annotations

import pytest

from understudy.core.commands import Abort, Assign, Command, EndJob, Prepare, Recover, Release, SetTimer, StartWorker, Tell
from understudy.core.events import Believed, Expired
from understudy.core.state import Worker
from understudy.orchestrator.dispatch import addressed, decision

FIRST = Assign("w0", 0, 0, False, False, "host:1", {})
LATER = Assign("w4", 1, 2, True, False, "host:1", {})
PREPARE = Prepare("w5", 0, 3, "host:1", {})
RECOVER = Recover("w1", 3, 4, "redo", "host:1", (2,), (0,), ())
ABORT = Abort("w1", 3, "host:1", (2,), "lost")
END = EndJob(0, "done")
TELL = Tell("text")


@pytest.mark.parametrize("command", [FIRST, PREPARE, RECOVER])
@pytest.mark.parametrize("strict", [False, True])
def test_what_says_who_a_worker_is_waits_for_the_journal(command: Command, strict: bool) -> None:
    decided = decision(Expired("hold"), [ABORT, command, TELL], strict)
    assert (decided.at_once, decided.when_written) == ([ABORT, TELL], [command])


@pytest.mark.parametrize("strict", [False, True])
def test_what_can_be_said_again_does_not(strict: bool) -> None:
    commands: list[Command] = [ABORT, LATER, SetTimer("hold", 1.0), TELL]
    assert decision(Expired("hold"), commands, strict).at_once == commands


def test_the_end_waits_only_where_another_orchestrator_could_say_something_else() -> None:
    assert decision(Expired("hold"), [END], strict=False).at_once == [END]
    assert decision(Expired("hold"), [END], strict=True).when_written == [END]


def test_all_that_follows_from_a_persons_word_waits() -> None:
    decided = decision(Believed(1, "looked at it"), [ABORT, TELL], strict=False)
    assert (decided.at_once, decided.when_written) == ([], [ABORT, TELL])


def test_commands_go_to_the_nodes_of_their_workers_in_their_order() -> None:
    workers = {"w0": Worker("w0", "a", False), "w1": Worker("w1", "b", False), "w4": Worker("w4", "a", True)}
    release = Release("w4", 0)
    start = StartWorker("c", "w9", True)
    going = addressed([FIRST, ABORT, TELL, release, start, END], workers, ["b", "a"])
    assert going.here == [TELL, END]
    assert going.for_nodes == {"a": [FIRST, release, END], "b": [ABORT, END], "c": [start]}, "the end to whoever is connected"
