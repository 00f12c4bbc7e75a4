"""`understudy drill` on real jobs: a spare computes a rank's step in parallel with it, and the verdict compares both."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import pid_of, send, wait_until
from tests.integration.training import LONG, Started, Training, survived, template_of, training, understudy
from tests.message_texts import codes, has

from understudy.core.drill import advice
from understudy.messages import asking, coverage, drilled_steps, drills, grades, losses, moves, recoveries

__all__ = ["training"]

LIMITS = ("--hang-limit", "20", "--setup-limit", "30")
SOAK = Path(__file__).parents[3] / "benchmarks" / "soak_job.py"


def begin(training: Training, script: str, *arguments: str, ranks: int = 2, flags: tuple[str, ...] = ()) -> Started:
    command = ["-m", "understudy.cli", "run", "--nproc-per-node", str(ranks), "--spares", "1", "--run-dir", "FOLDER/run", *flags]
    started = training.start(command, script, *arguments)

    def ready() -> bool:
        assert started.process.poll() is None, started.output
        return coverage.COVERED.code in started.output

    wait_until(ready, "training", LONG)
    wait_for_spare(started)
    return started


def wait_for_spare(started: Started) -> None:
    wait_until(lambda: any(spare["state"] == "warm" for spare in started.status()["spares"]), "a warm spare", LONG)


def drill(started: Started, rank: int) -> tuple[int, dict[str, Any]]:
    """Its exit code and verdict."""
    done = understudy("drill", "--rank", str(rank), "--wait", "--json", "--run-dir", str(started.folder / "run"))
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_drills_of_every_rank_change_nothing_and_a_loss_after_them_is_survived(training: Training) -> None:
    started = begin(training, str(SOAK), "--pace", "0.1")
    for rank in range(2):
        code, found = drill(started, rank)
        assert (code, found["verdict"], found["rank"], found["detail"]) == (0, "same", rank, ""), found
        assert found["collectives"] > 0 and found["compared"] > found["collectives"] and found["bytes_moved"] > 0, found
        wait_for_spare(started)
    refused = understudy("drill", "--rank", "7", "--run-dir", str(started.folder / "run"))
    assert refused.returncode == 1 and has(refused.stderr, moves.NO_SUCH_RANK, rank=7)
    send(pid_of(lambda: started.status()["ranks"][1]), signal.SIGKILL)
    wait_until(lambda: has(started.output, recoveries.INCIDENT_OVER, number=1), "the rank is replaced", LONG)
    (started.folder / "stop").touch()
    started.succeeds()
    finals = [json.loads((started.folder / f"final-{rank}.json").read_text()) for rank in range(2)]
    reference = training.torchrun(str(SOAK), "--steps", finals[0]["committed"])
    assert finals == [json.loads((reference.folder / f"final-{rank}.json").read_text()) for rank in range(2)]


def test_a_drill_begins_by_itself_and_an_incident_notes_what_it_has_proven(training: Training) -> None:
    started = begin(training, str(SOAK), "--pace", "0.1", flags=("--drill", "3"))
    wait_until(lambda: any(found["verdict"] for found in started.status()["drills"]), "a drill", LONG)
    found = started.status()
    drilled = [one for one in found["drills"] if one["verdict"]]  # more than one, where this test was slow to look
    assert [(one["verdict"], one["rank"]) for one in drilled] == [("same", number % 2) for number in range(len(drilled))], found
    assert found["ranks"][0]["proven"] in [one["step"] for one in drilled] and found["ranks"][1]["proven"] is not None, found
    shown = understudy("status", "--run-dir", str(started.folder / "run")).stdout
    assert has(shown, asking.DRILL_PROVEN, rank=0), shown
    send(found["ranks"][1]["pid"], signal.SIGKILL)
    wait_until(lambda: has(started.output, recoveries.INCIDENT_OVER, number=1), "the rank is replaced", LONG)
    (started.folder / "stop").touch()
    (incident,) = started.succeeds().incidents
    assert codes(incident["notes"][0]) == [drills.WAS_PROVEN.code], incident  # in the second drill, perhaps, which was of rank 1 itself
    finals = [json.loads((started.folder / f"final-{rank}.json").read_text()) for rank in range(2)]
    reference = training.torchrun(str(SOAK), "--steps", finals[0]["committed"])
    assert finals == [json.loads((reference.folder / f"final-{rank}.json").read_text()) for rank in range(2)]


def test_a_drill_after_an_incident_raises_its_grade(training: Training) -> None:
    started = begin(training, str(SOAK), "--pace", "0.1", flags=("--drill", "off"))
    send(pid_of(lambda: started.status()["ranks"][1]), signal.SIGKILL)
    wait_until(lambda: started.status()["grades"] == {"unproven": 1}, "the rank is replaced", LONG)
    wait_for_spare(started)
    done = understudy("drill", "--wait", "--json", "--run-dir", str(started.folder / "run"))
    assert json.loads(done.stdout)["verdict"] == "same", done.stdout
    wait_until(lambda: has(started.output, grades.RAISED, number=1), "the grade", LONG)
    assert started.status()["grades"] == {"drilled": 1}
    (started.folder / "stop").touch()
    (incident,) = started.succeeds().incidents
    assert incident["grade"] == "drilled" and has(incident["why"], grades.DRILLED_LATER), incident
    shown = understudy("events", "--run-dir", str(started.folder / "run")).stdout
    given = [line for line in shown.splitlines() if "IncidentGraded" in line]
    assert ["grade unproven" in line for line in given] == [True, False] and "grade drilled" in given[1], given


def test_beyond_its_bound_a_drill_compares_a_prefix_and_reports_how_far(training: Training) -> None:
    started = begin(training, str(SOAK), "--pace", "0.1", flags=("--drill-bytes", "1000"))  # the broadcast of buffers, and no gradient
    code, found = drill(started, 1)
    assert (code, found["verdict"], found["collectives"], found["left_out"]) == (0, "partly", 2, 2), found
    run_dir = str(started.folder / "run")
    for command in ("status", "report"):
        view = understudy(command, "--run-dir", run_dir).stdout
        assert has(view, asking.DRILL_PROVEN_IN_PART, rank=1, left_out=2), view
    wait_for_spare(started)
    (started.folder / "stop").touch()
    assert not started.succeeds().incidents


def test_a_job_that_must_be_survivable_ends_when_it_is_not(training: Training) -> None:
    command = [
        "-m",
        "understudy.cli",
        "run",
        "--nproc-per-node",
        "2",
        "--drill",
        "2",
        "--require-drill",
        *LIMITS,
        "--run-dir",
        "FOLDER/run",
    ]
    started = training.start(command, "hidden.py", "attribute")
    assert started.process.wait(LONG) == 3, started.output
    assert "module attribute net.module.1.p is 0.1 on the rank and 0.3 on the spare" in started.output
    assert drills.REQUIRED.code in started.output


@pytest.mark.parametrize(
    ("how", "code", "detail"),
    [
        ("attribute", 3, "module attribute net.module.1.p is 0.1 on the rank and 0.3 on the spare"),
        ("constant", 3, "the input to allreduce number 2"),
        ("redo", 3, drilled_steps.REDO_DIFFERS.code),
        ("counter", 4, drilled_steps.UNSTEADY.code),
        ("collective", 3, "float32 (3,)"),
        ("raises", 3, str(drilled_steps.RAISES(kind="ValueError", error="there is no such table here"))),
        ("killed", 5, drills.DRILL_SPARE_LOST.code),
    ],
)
def test_what_a_spare_would_not_do_as_the_rank(training: Training, how: str, code: int, detail: str) -> None:
    started = begin(training, "hidden.py", how, flags=LIMITS)
    found = drill(started, 1)
    assert (found[0], detail in found[1]["detail"]) == (code, True), found
    view = " ".join(understudy("status", "--run-dir", str(started.folder / "run")).stdout.split())
    assert has(view, {3: asking.DRILL_DIFFERS, 4: asking.DRILL_IRREPRODUCIBLE, 5: asking.DRILL_BROKEN}[code], rank=1), view
    assert advice(found[1]["verdict"], 1) in view, view
    wait_for_spare(started)
    (started.folder / "stop").touch()
    assert not started.succeeds().incidents


def test_a_spare_saves_nothing(training: Training) -> None:
    started = begin(training, "hidden.py", "saves", flags=LIMITS)
    code, found = drill(started, 1)
    assert (code, found["verdict"], found["left_out"]) == (0, "partly", 0) and has(found["detail"], drilled_steps.SAVES), found
    pids = {str(rank["pid"]) for rank in started.status()["ranks"]}
    assert {path.name.removeprefix("saved-") for path in started.folder.glob("saved-*")} == pids
    (started.folder / "stop").touch()
    assert not started.succeeds().incidents


def test_the_rank_of_a_drill_is_killed_or_the_orchestrator_is(training: Training) -> None:
    started = begin(training, "hidden.py", "stopped", flags=LIMITS)
    asked = understudy("drill", "--rank", "0", "--json", "--run-dir", str(started.folder / "run"))
    assert json.loads(asked.stdout)["number"] == 1, asked.stderr
    wait_until(lambda: started.status()["drills"][0]["stage"] == "computing", "the drill", LONG)
    send(pid_of(lambda: started.status()["ranks"][0]), signal.SIGKILL)
    wait_until(lambda: has(started.output, recoveries.INCIDENT_OVER, number=1), "the rank is replaced", LONG)
    found = started.status()["drills"][0]
    assert found["verdict"] == "broken" and codes(found["detail"]) == [drills.DRILL_CALLED_OFF.code, losses.KILLED.code], found
    assert has(found["detail"], losses.KILLED, rank=0), found
    (started.folder / "stop").touch()
    started.succeeds()


def test_the_spare_of_a_drill_takes_the_rank_that_is_killed_while_it_is_in_the_set_up(training: Training) -> None:
    """It has not started yet: it takes the place of a prepared spare, and there is no other one."""
    reference = training.undisturbed("moving.py", "held", files=("go on", "end"))
    started = begin(training, "moving.py", "held", flags=("--drill", "off"))
    before = started.status()
    (spare,) = before["spares"]
    template = template_of(started.folder)
    send(template, signal.SIGSTOP)  # the fresh spare does not come
    asked = understudy("drill", "--rank", "1", "--json", "--run-dir", str(started.folder / "run"))
    assert json.loads(asked.stdout)["number"] == 1, asked.stderr
    wait_until(lambda: (started.folder / "marker set-up of 1 again").exists(), "the spare's set-up", LONG)
    send(before["ranks"][1]["pid"], signal.SIGKILL)
    wait_until(lambda: has(started.output, recoveries.TAKES_OVER, spare=spare["worker"], rank=1), "the loss", LONG)
    send(template, signal.SIGCONT)
    for name in ("set up", "go on", "end"):
        (started.folder / name).touch()
    outcome = started.ends()
    (incident,) = survived(outcome, reference)
    assert (incident["rank"], incident["new_worker"]) == (1, spare["worker"]), incident
    (found,) = outcome.ask("status")["drills"]
    assert found["verdict"] == "broken" and codes(found["detail"]) == [drills.DRILL_CALLED_OFF.code, losses.KILLED.code], found
    assert has(found["detail"], losses.KILLED, rank=1), found
