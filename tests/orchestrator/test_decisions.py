"""Decisions wait for the journal, however long that takes; meanwhile the job pauses, and its timers stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from understudy.core.commands import Assign, Command, Drill, Prepare, Recover
from understudy.orchestrator import decisions
from understudy.orchestrator.chain import Chain
from understudy.orchestrator.decisions import Decisions
from understudy.orchestrator.journal import JobJournal, _Mark
from understudy.orchestrator.timers import Timers

RECOVER = Recover("w1", 1, 5, "redo", "", (0,), (1,), ())
ASSIGN = Assign("w0", 0, 0, False, False, "", {})
DRILL = Drill("w1", 0, 1, 1, "")
PREPARE = Prepare("w2", 0, 1, "", {})


def needed(command: Command) -> bool:
    return isinstance(command, Recover | Assign)


class Waiting:
    """Decisions whose journal writes when it is told to, and what has become of them."""

    def __init__(self) -> None:
        self.marks: list[Callable[[], None]] = []
        self.happened: list[str | list[Command]] = []
        journal = JobJournal(lambda entry: self.marks.append(entry.reached) if isinstance(entry, _Mark) else None, Chain())
        said = self.happened.append
        self.decisions = Decisions(journal, said, needed, lambda: said("paused"), lambda: said("resumed"))

    async def late(self) -> None:
        """Until it is too late for all that was decided before."""
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(decisions.LATE, over.set)
        await over.wait()

    async def write(self) -> None:
        self.marks.pop(0)()
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "LATE", 0.01)


def test_what_is_written_in_time_pauses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "LATE", 60.0)

    async def run() -> None:
        waiting = Waiting()
        waiting.decisions.send_when_written([RECOVER])
        assert waiting.happened == [] and not waiting.decisions.pause
        await waiting.write()
        assert waiting.happened == [[RECOVER]]
        waiting.decisions.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("command", [RECOVER, ASSIGN], ids=["recovery", "first rank"])
def test_a_decision_is_not_sent_before_it_is_written(command: Command) -> None:
    async def run() -> None:
        waiting = Waiting()
        waiting.decisions.send_when_written([command])
        waiting.decisions.send_when_written([command])
        await waiting.late()
        assert waiting.happened == ["paused"] and waiting.decisions.pause
        await waiting.write()
        assert waiting.happened == ["paused", [command]], "it waits for the other one still"
        await waiting.write()
        assert waiting.happened == ["paused", [command], "resumed", [command]] and not waiting.decisions.pause

    asyncio.run(run())


def test_a_drill_that_comes_late_is_not_sent_and_a_spare_pauses_nothing() -> None:
    async def run() -> None:
        waiting = Waiting()
        waiting.decisions.send_when_written([DRILL])
        waiting.decisions.send_when_written([PREPARE])
        await waiting.late()
        assert not waiting.decisions.pause and waiting.decisions.prepares()
        await waiting.write()
        await waiting.write()
        assert not waiting.decisions.prepares()
        assert waiting.happened == [[], [PREPARE]]

    asyncio.run(run())


def test_a_job_that_is_over_sends_nothing_any_more() -> None:
    async def run() -> None:
        waiting = Waiting()
        waiting.decisions.send_when_written([RECOVER])
        waiting.decisions.cancel()
        await waiting.late()
        await waiting.write()
        assert waiting.happened == []

    asyncio.run(run())


def test_timers_stand_still_and_have_as_much_time_left_as_before() -> None:
    async def run() -> None:
        expired: list[str] = []
        over = asyncio.Event()

        def ends(timer: str) -> None:
            expired.append(timer)
            if timer == "last":
                over.set()

        timers = Timers(ends)
        timers.set("first", 0.001)
        timers.set("not any more", 0.001)
        timers.stand_still()
        timers.set("not any more", 0.0)
        timers.set("second", 0.05)
        timers.set("last", 0.1)
        timers.stand_still()
        await asyncio.sleep(0.15)  # longer than any of them
        assert expired == []
        timers.go_on()
        await over.wait()
        assert expired == ["first", "second", "last"]

    asyncio.run(run())
