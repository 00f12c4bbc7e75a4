"""`understudy run --check` with real scripts, real drills and a real kill: its report about each, and the exit code."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes import marked, wait_until
from tests.integration.training import LONG, Outcome, Training, training
from tests.message_texts import has

from understudy.cli.kills import PHASES
from understudy.messages import asking, calls, census, disputes, drilled_steps, script_check
from understudy.messages.drills import REDO_PROVEN

__all__ = ["training"]

CHECK = ["-m", "understudy.cli", "run", "--check", "--nproc-per-node", "2", "--run-dir", "FOLDER/run"]


def check(training: Training, script: str, how: str, *flags: str) -> Outcome:
    return training.start([*CHECK, *flags], script, how).ends()


def page(outcome: Outcome) -> dict[str, object]:
    """The one that is kept."""
    found: dict[str, object] = json.loads((outcome.folder / "run" / "check.json").read_text())
    assert found["exit_code"] == outcome.code, outcome.output
    return found


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    with marked() as mark:
        yield check(Training(tmp_path_factory.mktemp("good"), mark), "checked.py", "good", "--json")


@pytest.mark.gate
def test_a_recovery_that_is_bitwise(good: Outcome) -> None:
    found = page(good)
    assert (found["verdict"], good.code) == ("bitwise", 0), good.output
    assert has(found["line"], script_check.BITWISE, steps=16, ranks=2)
    kills = found["kills"]
    assert isinstance(kills, list)
    assert [(kill["before"], kill["phase"]) for kill in kills] == [(12 + 2 * number, phase) for number, phase in enumerate(PHASES)]
    assert all(kill["rank"] == 1 and kill["seconds"] is not None for kill in kills) and len({kill["worker"] for kill in kills}) == 5, kills
    drills, notes = found["drills"], found["notes"]
    assert isinstance(drills, list) and has(drills[0], asking.DRILL_PROVEN, rank=0), drills  # at step 3, if a spare is warm by then
    assert isinstance(notes, list) and any(has(note, REDO_PROVEN, who="rank 0: it") for note in notes), notes
    assert found["covered"] == ["model (DistributedDataParallel)", "optimizer (AdamW)"]
    assert found["adopted"] == ["best"]
    # Parameters and what belongs to them, the mode, the settings, three streams and a result: on two ranks, in 16 steps and 3 evaluations.
    assert isinstance(found["digests"], int) and found["digests"] > 2 * 19 * 20


def test_its_page_is_there_for_programs_and_for_people(good: Outcome) -> None:
    printed = good.output[good.output.index("{\n") :]
    assert json.loads(printed[: printed.rindex("}") + 1]) == page(good)
    text = (good.folder / "run" / "check.txt").read_text()
    assert text.startswith("BITWISE: ") and has(text, script_check.BITWISE, steps=16)
    for name in ("reference", "recovery"):
        assert (good.folder / "run" / name / "journal.db").exists()


def test_state_that_cannot_be_carried_over_makes_the_recovery_differ(training: Training) -> None:
    """All replicas are equal after it: only the undisturbed run shows that they are wrong."""
    outcome = check(training, "hidden.py", "generator")
    found = page(outcome)
    assert (found["verdict"], outcome.code) == ("differs", 3), outcome.output
    assert has(outcome.output, script_check.DIFFERS, kills="rank 1 was killed in step 13 (vote)")
    assert has(found["differences"], script_check.VALUE_DIFFERS, rank=0, step=13)
    assert has(outcome.output, census.ITERATOR_MOVES, shown="kept"), "what it is, by name"
    assert has(outcome.output, asking.DRILL_IRREPRODUCIBLE), "what the drill had found"
    assert str(found["uncovered"]).count("kept (hidden.py)") == 1 and "likely cause" in outcome.output, found["uncovered"]
    assert script_check.REGISTER_STATE() in found["advice"]  # type: ignore[operator]


@pytest.mark.gate
def test_what_is_put_right_before_the_vote_is_found_where_a_step_is_broken_off_before_that(training: Training) -> None:
    """A kill at the vote finds everything restored. A survivor that was interrupted in backward has not restored it, nor has the spare of
    a drill that was interrupted at a collective: the inputs of their redone all-reduce differ from the first ones.
    """
    outcome = check(training, "checked.py", "entered", "--kills", "vote,backward")
    found = page(outcome)
    assert (found["verdict"], outcome.code) == ("differs", 3), outcome.output
    assert has(found["line"], script_check.DIFFERS, kills="rank 1 was killed in step 15 (backward)"), found["line"]
    assert has(found["drills"], asking.DRILL_DIFFERS, rank=0) and has(found["drills"], drilled_steps.REDO_DIFFERS), found["drills"]
    assert has(found["notes"], disputes.REDO_AS_DRILLED, rank=0) and has(found["notes"], calls.REDO_GIVES_ANOTHER), found["notes"]


def test_what_a_drill_could_not_see_yet_holds_the_job(training: Training) -> None:
    """The same from step 13 on: an earlier drill has shown that the step is reproducible, so a collective that differs is no accident."""
    outcome = check(training, "checked.py", "entered late", "--kills", "vote,backward")
    found = page(outcome)
    assert (found["verdict"], outcome.code) == ("differs", 3), outcome.output
    assert has(found["line"], script_check.HELD, kills="rank 1 was killed in step 13 (vote) and in step 15 (backward)"), found["line"]
    assert has(found["message"], disputes.REDO_HELD, rank=0) and has(found["message"], calls.REDO_GIVES_ANOTHER), found["message"]
    assert has(found["drills"], asking.DRILL_PROVEN, rank=0)


def test_a_script_that_resumes_from_what_the_first_run_has_saved_is_reported(training: Training) -> None:
    """Each run would be a different training, and the second one may have nothing left to do."""
    outcome = check(training, "checked.py", "resumes", "--kills", "vote")
    found = page(outcome)
    assert (found["verdict"], outcome.code) == ("inconclusive", 6), outcome.output
    saved = str(outcome.folder / "snapshot.pt")
    assert has(found["line"], script_check.READ_OF_FIRST, files=saved) and found["read"] == [saved], found
    assert script_check.FOLDER_OF_ITS_OWN() in found["advice"]  # type: ignore[operator]


def test_a_clock_in_a_list_is_not_taken_for_another_training(training: Training) -> None:
    outcome = check(training, "checked.py", "clock")
    found = page(outcome)
    assert (found["verdict"], outcome.code) == ("bitwise", 0), outcome.output
    assert "timings of the script" in str(found["left_out"]) and has(outcome.output, script_check.REFERENCE_AGAIN)


@pytest.mark.parametrize(
    ("how", "code", "shown"),
    [
        ("raises", 5, ("FAILED: ", script_check.SCRIPT_FAILS.code, "ValueError: there is no such table")),
        ("short", 6, ("INCONCLUSIVE: ", script_check.TOO_FEW_STEPS(steps=6, needed=28), script_check.MORE_STEPS.code)),
        ("unregistered", 4, ("REFUSED: ", script_check.REFUSED.code, "AdamW")),
    ],
)
def test_what_ends_before_anything_was_disturbed(training: Training, how: str, code: int, shown: tuple[str, ...]) -> None:
    outcome = check(training, "checked.py", how)
    assert outcome.code == code and all(text in " ".join(outcome.output.split()) for text in shown), outcome.output
    assert not (outcome.folder / "run" / "recovery").exists()


def test_a_script_that_computes_something_else_each_time(training: Training) -> None:
    outcome = check(training, "checked.py", "unseeded", "--check-steps", "5")
    assert outcome.code == 6, outcome.output
    assert has(outcome.output, script_check.IRREPRODUCIBLE) and has(outcome.output, script_check.VALUE_DIFFERS, rank=0, step=1)
    assert page(outcome)["advice"] == [script_check.SEED()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_who_calls_it_off_leaves_nothing_running(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with marked() as mark:
        started = Training(tmp_path, mark).start(CHECK, "checked.py", "good")
        held = started.folder / "run" / "reference" / "chaos" / "28-0.fired"
        wait_until(held.exists, "the last step of the reference", LONG)
        started.process.send_signal(number)
        assert started.ends().code == code, started.output
        mark.wait_until_none()
