"""`understudy run --check` without processes: what makes two runs differ, and which verdict follows from it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.message_texts import codes, has, refused

from understudy.chaos.armed import Folder
from understudy.cli.check.command import check
from understudy.cli.check.course import Disturbance
from understudy.cli.check.page import as_values, view
from understudy.cli.check.records import Commit, Records, compare
from understudy.cli.check.runs import Ended, Run, Standstill
from understudy.cli.check.verdict import Judge, Page, Verdict
from understudy.cli.flags import Flags
from understudy.cli.kills import PHASES, Kill, described, planned
from understudy.cli.launch import Usage, launch
from understudy.cli.run_directory import RunDirectory
from understudy.messages import run_options, script_check
from understudy.messages.base import Message

BEFORE, LAST = 5, 8
WEIGHT, RESULT, NOTED = "net/parameter/weight", "the result of the step", "script:train.py:best"


def commit(rank: int, step: int, **digests: int) -> Commit:
    there = {WEIGHT: step, RESULT: step, NOTED: step, **digests}
    return Commit(rank, step - 1, step, "step", "train", "", there, {RESULT: f"0.{there[RESULT]}"})


def records(change: Callable[[Commit], Commit | None] = lambda commit: commit) -> Records:
    """Of two ranks. `change`: of each commit; None: it is not there."""
    commits = (change(commit(rank, step)) for rank in range(2) for step in range(1, LAST + 1))
    return Records(tuple(one for one in commits if one is not None), {"net": "Linear"}, 1, 4)


def unlike(entry: str, rank: int, *steps: int) -> Callable[[Commit], Commit]:
    def changed(one: Commit) -> Commit:
        return replace(one, digests={**one.digests, entry: -1}) if one.rank == rank and one.step in steps else one

    return changed


INCIDENT = {
    "number": 1,
    "ranks": [{"old_worker": "w1"}],
    "grade": "proven",
    "why": "all of it was compared",
    "uncovered": [],
    "notes": ["the redo is proven"],
}
KILL = Kill(1, BEFORE, "vote", BEFORE, "w1", 0.25)
KILLED = "rank 1 was killed in step 6 (vote)"
DRILL: dict[str, Any] = {"rank": 0, "verdict": "same", "step": 3, "detail": "", "compared": 9, "collectives": 1, "left_out": 0}
DRILL |= {"bytes_moved": 10, "pause": 0.01, "worker": "w2"}


def judged(found: Records, **changes: Any) -> Page:
    run = replace(Ended(found, reached=True, incidents=[INCIDENT], drills=[DRILL]), **changes)
    return Judge(2, BEFORE, LAST, ["reference/output.txt", "recovery/output.txt"]).disturbed(records(), run, [KILL])


def test_the_same_is_bitwise() -> None:
    page = judged(records())
    assert (page.verdict, page.exit_code, page.digests) == (Verdict.BITWISE, 0, 2 * 3 * 3)
    assert page.line == script_check.BITWISE(kills=KILLED, seconds="0.250 s", steps=3, ranks=2, digests="18")


@pytest.mark.parametrize("entry", [WEIGHT, RESULT, NOTED])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", range(BEFORE + 1, LAST + 1))
def test_one_entry_of_one_rank_in_one_step_is_enough(entry: str, rank: int, step: int) -> None:
    page = judged(records(unlike(entry, rank, step)))
    assert (page.verdict, page.exit_code) == (Verdict.DIFFERS, 3)
    assert has(page.line, script_check.DIFFERS, kills=KILLED) and has(page.line, script_check.VALUE_DIFFERS, rank=rank, step=step)


def test_values_that_are_short_are_shown_and_each_entry_once() -> None:
    def changed(one: Commit) -> Commit:
        return replace(unlike(RESULT, 0, 7, 8)(one), shown={RESULT: "0.9"}) if one.step > 6 else one

    (difference,) = judged(records(changed)).differences
    assert has(difference, script_check.VALUE_DIFFERS, rank=0, step=7, entry=RESULT)
    assert "0.7" in difference and "0.9" in difference


def test_what_differs_undisturbed_is_left_out_and_named() -> None:
    page = judged(records(unlike(RESULT, 0, *range(1, LAST + 1))))
    assert (page.verdict, page.left_out, page.digests) == (Verdict.BITWISE, [RESULT], 2 * 3 * 2)


def test_a_training_that_differs_undisturbed_proves_nothing() -> None:
    page = judged(records(unlike(WEIGHT, 1, 4, 7)))
    assert (page.verdict, page.exit_code) == (Verdict.INCONCLUSIVE, 6)
    assert codes(page.line)[0] == script_check.IRREPRODUCIBLE.code
    assert has(page.line, script_check.VALUE_DIFFERS, rank=1, step=4, entry=WEIGHT)


@pytest.mark.parametrize("missing", [(0, 8), (1, 6)])
def test_a_step_that_was_not_recorded_does_not_count_as_equal(missing: tuple[int, int]) -> None:
    page = judged(records(lambda one: None if (one.rank, one.step) == missing else one))
    assert page.verdict is Verdict.INCONCLUSIVE and has(page.line, script_check.RECORDS_DIFFER, kills=KILLED)
    assert has(page.line, script_check.RECORDED_ONCE, rank=missing[0], transaction=missing[1] - 1)


def test_an_entry_that_is_gone_differs_unless_it_is_unregistered() -> None:
    def without(entry: str) -> Records:
        return records(lambda one: replace(one, digests={k: v for k, v in one.digests.items() if k != entry}) if one.step > 6 else one)

    assert has(judged(without(WEIGHT)).line, script_check.VALUE_DIFFERS, step=7, entry=WEIGHT)
    assert judged(without(NOTED)).verdict is Verdict.BITWISE


def test_a_role_for_whose_drill_there_were_too_few_steps_is_named() -> None:
    run = Ended(records(), reached=True, incidents=[INCIDENT], drills=[DRILL])
    page = Judge(2, BEFORE, LAST, ["", ""]).disturbed(records(), run, [KILL], undrilled=1)
    assert page.verdict is Verdict.BITWISE and page.drills[1] == script_check.UNDRILLED(rank=1)


def test_a_result_that_cannot_be_read_is_named() -> None:
    page = judged(records(lambda one: replace(one, opaque="_io.TextIOWrapper")))
    assert page.left_out == ["what train returns, a _io.TextIOWrapper"]


@pytest.mark.parametrize(
    ("changes", "verdict", "message", "arguments"),
    [
        (
            {"drills": [{**DRILL, "verdict": "different"}]},
            Verdict.NAMED,
            script_check.BITWISE_BUT_NAMED,
            {"drilled": 0, "verdict": "different"},
        ),
        ({"incidents": [INCIDENT, INCIDENT]}, Verdict.INCONCLUSIVE, script_check.OTHERWISE_DISTURBED, {"incidents": 2, "wanted": 1}),
        (
            {"incidents": [{**INCIDENT, "ranks": [{"old_worker": "w0"}]}]},
            Verdict.INCONCLUSIVE,
            script_check.OTHERWISE_DISTURBED,
            {"incidents": 1, "wanted": 1},
        ),
        ({"reached": False, "message": "rank 1 has no replica"}, Verdict.REFUSED, script_check.NOT_SURVIVED, {}),
        (
            {"reached": False, "paused": True, "standstill": "the redo differs"},
            Verdict.DIFFERS,
            script_check.HELD,
            {"reason": "the redo differs"},
        ),
    ],
)
def test_what_else_speaks_against_it(changes: dict[str, Any], verdict: Verdict, message: Message, arguments: dict[str, Any]) -> None:
    page = judged(records(), **changes)
    assert page.verdict is verdict and has(page.line, message, kills=KILLED, **arguments)


TWICE = [KILL, Kill(1, 7, "between", 8, "w3", 0.5)]


@pytest.mark.parametrize(("step", "kill"), [(6, 0), (7, 0), (8, 1)])
def test_of_several_kills_the_one_before_the_first_difference_is_named(step: int, kill: int) -> None:
    run = Ended(records(unlike(WEIGHT, 0, step)), reached=True, incidents=[INCIDENT, INCIDENT], drills=[DRILL])
    page = Judge(2, BEFORE, LAST, ["", ""]).disturbed(records(), run, TWICE)
    assert page.verdict is Verdict.DIFFERS and has(page.line, script_check.DIFFERS, kills=described([TWICE[kill]]))


def test_equal_grades_are_listed_once() -> None:
    incidents = [{**INCIDENT, "number": number, "grade": grade} for number, grade in enumerate(("proven", "drilled", "drilled"), 1)]
    page = Judge(2, BEFORE, LAST, ["", ""]).disturbed(
        records(), Ended(records(), reached=True, incidents=incidents, drills=[DRILL]), [KILL]
    )
    assert page.grades == ["incident 1: proven: all of it was compared", "incidents 2, 3: drilled: all of it was compared"]


def test_every_kill_has_its_incident_and_the_longest_recovery_is_shown() -> None:
    incidents = [INCIDENT, {**INCIDENT, "ranks": [{"old_worker": "w3"}]}]
    page = Judge(2, BEFORE, LAST, ["", ""]).disturbed(records(), Ended(records(), reached=True, incidents=incidents, drills=[DRILL]), TWICE)
    kills = "rank 1 was killed in step 6 (vote) and in step 8 (between)"
    assert page.line == script_check.BITWISE(kills=kills, seconds="0.500 s", steps=3, ranks=2, digests="18")


def test_a_phase_to_which_the_script_does_not_come_is_named() -> None:
    run = Ended(records(), reached=True, incidents=[INCIDENT], drills=[DRILL])
    page = Judge(2, BEFORE, LAST, ["", ""]).disturbed(records(), run, [KILL, Kill(1, 7, "backward")])
    file = io.StringIO()
    Console(file=file, width=140).print(view(page, "runs/1"))
    assert page.verdict is Verdict.BITWISE and page.line.startswith(script_check.BITWISE.code + ": " + KILLED + ",")
    assert has(file.getvalue(), script_check.NOT_REACHED, phase="backward", step=8)


@pytest.mark.parametrize(("phase", "verdict"), [("apply", Verdict.BITWISE), ("vote", Verdict.INCONCLUSIVE)])
def test_a_rank_killed_after_its_vote_does_not_report_that_step(phase: str, verdict: Verdict) -> None:
    kill = replace(KILL, phase=phase)
    run = Ended(records(lambda one: None if one.place == (1, BEFORE) else one), reached=True, incidents=[INCIDENT], drills=[DRILL])
    assert Judge(2, BEFORE, LAST, ["", ""]).disturbed(records(), run, [kill]).verdict is verdict


def test_where_no_phase_is_reached_nothing_is_known_of_a_recovery() -> None:
    kill = Kill(1, BEFORE, "backward")
    page = Judge(2, BEFORE, LAST, ["", ""]).disturbed(records(), Ended(records(), reached=True), [kill])
    assert (page.verdict, page.line, page.kills) == (Verdict.INCONCLUSIVE, script_check.NO_KILL(), [kill])


def test_a_run_without_progress_after_a_recovery_has_survived_it() -> None:
    run = Ended(records(), standstill="no spare gets warm", incidents=[INCIDENT], drills=[DRILL])
    page = Judge(2, BEFORE, LAST, ["", "output"]).disturbed(records(), run, [KILL, Kill(1, 7)])
    assert (page.verdict, page.line, page.message) == (Verdict.INCONCLUSIVE, script_check.SCRIPT_STANDS(), "no spare gets warm")


def test_the_step_of_a_kill_is_the_one_in_which_it_has_struck() -> None:
    """With accumulated gradients not every step has an optimizer's."""
    assert Kill(1, 12, "apply", 15, "w1", 0.2, at=14).step == 15
    assert Kill(1, 12, "between", 15, "w1", 0.2, at=13).step == 13
    assert Kill(1, 12, "forward").step == 13


def test_kills_are_two_steps_apart() -> None:
    assert [(kill.before, kill.phase) for kill in planned(1, 12, list(PHASES))] == [(12 + 2 * n, phase) for n, phase in enumerate(PHASES)]


class Paused(Run):
    """A run in which the killed rank comes to a phase `late` steps later than planned, and the others pause for the next kill meanwhile."""

    def __init__(self, folder: Path, late: int, last: int) -> None:
        self.directory, self.ranks, self.last, self.late = RunDirectory(folder), range(2), last, late
        self._faults, self.killed, self.kills = Folder(folder), list[str](), list[Kill]()

    def status(self) -> dict[str, Any]:
        return {"drills": [], "ranks": [{"rank": 0, "proven": 3, "worker": "w0"}, {"rank": 1, "proven": 3, "worker": "w1"}], "spares": []}

    def wait(self, what: str, come: Callable[[dict[str, Any]], Any]) -> Any:
        return self.status()  # it has come

    def where(self, phase: str) -> dict[str, Any] | None:
        armed = self._faults.read(phase)
        assert armed is not None and armed.step is not None
        step = armed.step + (self.late if phase == "apply" else 0)
        return {"transaction": step, "worker": "w1", "step": step, "pid": 0}

    def kill(self, phase: str, pid: int) -> None:
        held = [int(name.split("-")[0]) for name in self._faults.names() if name.endswith("-0")]
        assert not [step for step in held if step <= self.kills[0].at + 1], "no rank is paused while the others recover"
        self.killed.append(phase)
        self.let_go(phase)


@pytest.mark.parametrize(("late", "last", "killed", "at"), [(0, 28, 2, 14), (1, 28, 2, 15), (3, 28, 2, 17), (3, 18, 1, 14)])
def test_a_kill_that_comes_late_postpones_the_next(late: int, last: int, killed: int, at: int, tmp_path: Path) -> None:
    """Else the others, which have gone on, are paused for the next kill, and notice no loss."""
    run = Paused(tmp_path, late, last)
    run.kills = kills = planned(1, 12, ["apply", "between"])
    Disturbance(run, kills)(lambda said: None)
    assert len(run.killed) == killed
    assert kills[1].before == at


def test_the_records_of_a_run_are_read_without_what_a_killed_worker_left(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    folder.mkdir()
    about = {"registered": {"net": "Linear"}, "tensors": 1, "bytes": 4}
    lines = [json.dumps(line) for line in (about, *(vars(commit(0, step)) for step in (1, 2)))]
    (folder / "0-w0.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "1-w1.jsonl").write_text(f'{json.dumps(about)}\n{json.dumps(vars(commit(1, 1)))}\n{{"rank": 1, ')
    found = Records.of(tmp_path)
    assert [one.place for one in found.commits] == [(0, 0), (0, 1), (1, 0)]
    assert (found.steps, found.registered, found.adopted) == (1, {"net": "Linear"}, ["best"])
    assert not compare(found, found, 1, LAST).after


def test_a_wait_in_vain_names_what_it_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    plan = launch(Flags([str(tmp_path / "train.py")], nproc_per_node="2"), "check")
    hurried = replace(plan, timeouts=replace(plan.timeouts, beat=0.01, hang_floor=0.02, hang_first=0.1))

    class Still(Run):
        def status(self) -> dict[str, Any]:
            return {"state": "training", "step": 3, "spares": [{"state": "starting"}]}

    with refused(Standstill, script_check.STANDSTILL, what="a warm spare"):
        Still(hurried, tmp_path / "run", LAST).wait("a warm spare", lambda status: status["spares"][0]["state"] == "warm")


def test_the_page_is_for_people_and_programs() -> None:
    page = judged(records(), notices=["name[0] is reported"])
    file = io.StringIO()
    Console(file=file, width=100).print(view(page, "runs/1"))
    text = file.getvalue()
    assert text.startswith("BITWISE: ") and has(text, script_check.BITWISE, kills=KILLED)
    assert "name[0] is reported" in text and "runs/1" in text
    values = json.loads(json.dumps(as_values(page)))
    assert (values["verdict"], values["exit_code"], values["kills"][0]["rank"]) == ("bitwise", 0, 1)
    assert values["advice"] == [script_check.FOLLOW_NOTICES()]


@pytest.mark.parametrize(
    ("flags", "message", "arguments"),
    [
        ({"nproc_per_node": "1"}, script_check.CHECK_NEEDS_RANKS, {}),
        ({"nnodes": "2"}, script_check.CHECK_ON_ONE_MACHINE, {}),
        ({"orchestrator": "http://host0:29400"}, script_check.CHECK_ON_ONE_MACHINE, {}),
        ({"no_replenish": True}, script_check.CHECK_NEEDS_SPARES, {}),
        ({"kills": "vote,lunch"}, script_check.NO_SUCH_PHASE, {"given": "vote,lunch"}),
        ({"kills": "vote,vote"}, script_check.NO_SUCH_PHASE, {"given": "vote,vote"}),
        ({"kills": ","}, script_check.NO_SUCH_PHASE, {"given": ","}),
        ({"check_steps": 4}, script_check.CHECK_TOO_SHORT, {"steps": 4, "least": 5}),
        ({"program": ["missing.py"]}, run_options.SCRIPT_MISSING, {"script": "missing.py"}),
    ],
)
def test_what_cannot_be_checked_is_refused(flags: dict[str, Any], message: Message, arguments: dict[str, Any]) -> None:
    with refused(Usage, message, **arguments):
        check(Flags(**{"program": [__file__], "nproc_per_node": "2", **flags}), "check")
