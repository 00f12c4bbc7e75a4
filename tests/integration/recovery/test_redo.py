"""A redo on real jobs, compared with a survivor's first result before the loss: proven, or paused and resolved, or stopped."""

from __future__ import annotations

import itertools
import json
import signal
from typing import Any

from tests.integration.processes import pid_of, send, wait_until
from tests.integration.recovery.test_drill import begin, drill, wait_for_spare
from tests.integration.training import LONG, Started, Training, training, understudy
from tests.message_texts import has

from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.common.names import page_path
from understudy.links.page import PageReader
from understudy.messages import calls, disputes, drills, losses, recoveries

__all__ = ["training"]

FLAGS = ("--chaos", "--drill", "off")
AHEAD = 50  # steps
HELD = disputes.REDO_HELD.code


def lose_in_vote(started: Started, rank: int, ranks: int = 2, then: Armed | None = None) -> None:
    """Kill the worker of this rank when all others are in the same vote, and have no copy of its state. `then`: a later kill."""
    chaos = Folder(started.folder / "run")
    for times in itertools.count(1):  # all are paused at one step only if none had reached it before all were armed
        step, names = started.status()["step"] + times * AHEAD, [f"held-{one}-{times}" for one in range(ranks)]
        for one, name in enumerate(names):
            chaos.arm(Armed(name, HOLD, one, "vote", step))
        if max(at["step"] for at in started.status()["ranks"]) < step:
            break
        for name in names:
            chaos.disarm(name)
    wait_until(lambda: all(map(chaos.has_fired, names)), "all are in the vote", LONG)
    if then is not None:
        chaos.arm(then)
    send(pid_of(lambda: started.status()["ranks"][rank]), signal.SIGKILL)
    for name in names:
        chaos.disarm(name)


def held(started: Started) -> dict[str, Any]:
    """Wait until the job is paused; return its status."""

    wait_until(lambda: started.status()["state"] == "held", "the job is held", LONG)
    return started.status()


def is_over(started: Started) -> bool:
    return has(started.output, recoveries.INCIDENT_OVER, number=1) or started.process.poll() is not None


def over(started: Started) -> None:
    wait_until(lambda: is_over(started), "the incident is over", LONG)
    (started.folder / "stop").touch()


def over_when_believed(started: Started, rank: int) -> None:
    """Run `believe` as often as the job pauses: a redo that was accepted, and is interrupted by another loss, is done once more."""
    for times in itertools.count(1):
        wait_until(lambda times=times: is_over(started) or started.output.count(HELD) >= times, "the job is held, or over", LONG)  # type: ignore[misc]
        if is_over(started):
            break
        ask(started, "resolve", "--keep-rank", str(rank))
    (started.folder / "stop").touch()


def ask(started: Started, *words: str) -> None:
    done = understudy(*words, "--run-dir", str(started.folder / "run"))
    assert done.returncode == 0, done.stderr


def test_survivors_that_were_in_their_vote_prove_the_redo(training: Training) -> None:
    started = begin(training, "hidden.py", "nothing", ranks=3, flags=FLAGS)
    lose_in_vote(started, 1, ranks=3)
    over(started)
    (incident,) = started.succeeds().incidents
    assert (incident["decision"], incident["proven_by"]) == ("redo", [0, 2]), incident
    assert any(has(note, drills.REDO_PROVEN, who="ranks 0, 2: they") for note in incident["notes"]), incident


def test_a_redo_that_is_fed_by_a_counter_pauses_until_believe(training: Training) -> None:
    started = begin(training, "hidden.py", "counter", flags=FLAGS)
    lose_in_vote(started, 1)
    found = held(started)
    redone = has(found["message"], disputes.REDO_HELD, rank=0, worker="w0", step=found["step"])  # no rank has committed it
    assert redone and "/gradient" in found["message"], found
    ask(started, "resolve", "--keep-rank", "0", "--reason", "it only scales the loss")
    over(started)
    (incident,) = started.succeeds().incidents
    assert (incident["decision"], incident["proven_by"]) == ("roll forward", []), incident
    assert has(found["message"], disputes.REDO_HELD, transaction=incident["transaction"] - 1), (found, incident)
    assert any(has(note, disputes.BELIEVED_FOR, rank=0, reason="it only scales the loss") for note in incident["notes"]), incident


def test_a_redo_with_other_data_pauses_and_the_job_can_be_stopped(training: Training) -> None:
    """As nanoGPT's `X, Y = get_batch()` inside the step, with an unregistered generator."""
    started = begin(training, "hidden.py", "generator", ranks=3, flags=FLAGS)
    lose_in_vote(started, 0, ranks=3)
    found = held(started)
    assert "/gradient" in found["message"] and has(found["message"], disputes.REDO_HELD), found
    ask(started, "stop")
    outcome = started.ends()
    assert outcome.code != 0 and losses.STOPPED.code in outcome.output, outcome.output
    ended = json.loads(understudy("status", "--json", "--run-dir", str(started.folder / "run")).stdout)
    assert (ended["state"], ended["step"]) == ("failed", found["step"]), ended
    notes = outcome.incidents[0]["notes"]
    redone = (disputes.REDO_HELD, disputes.REDO_DIFFERS)  # the other one may not have reported it when the job was stopped
    assert notes and all(any(has(note, one, rank=rank, worker=f"w{rank}") for one in redone for rank in (1, 2)) for note in notes), notes


def test_a_survivor_that_waited_in_a_collective_sees_that_its_redo_gives_it_something_else(training: Training) -> None:
    """The same script, wrong in the same way. There was no drill, so a warning is printed, and the redo goes on."""
    started = begin(training, "hidden.py", "counter", flags=FLAGS)
    chaos = Folder(started.folder / "run")
    chaos.arm(Armed("loss", HOLD, 1, "backward"))
    page = PageReader(page_path(started.folder / "run", "w0"))
    wait_until(lambda: chaos.has_fired("loss") and page.read().waits > 0, "rank 0 waits for rank 1", LONG)
    send(pid_of(lambda: started.status()["ranks"][1]), signal.SIGKILL)
    chaos.disarm("loss")
    over(started)
    (incident,) = started.succeeds().incidents
    assert incident["proven_by"] == [], incident
    found = [note for note in incident["notes"] if has(note, disputes.REDO_UNPROVEN, rank=0, worker="w0")]
    assert found and has(found[0], calls.REDO_GIVES_ANOTHER), incident


def test_a_loss_in_the_vote_of_a_redo_that_differs_does_not_let_it_pass(training: Training) -> None:
    """How far rank 0 and the newcomer are in that vote is left open. It is rolled forward or done once more; either way the job pauses,
    and a rank that was in the vote reports it first.
    """
    started = begin(training, "hidden.py", "counter", ranks=3, flags=(*FLAGS, "--spares", "2"))
    lose_in_vote(started, 1, ranks=3, then=Armed("second", "sigkill", 2, "vote agreement"))  # in the redo: before, a copy is missing
    found = held(started)
    assert has(found["message"], disputes.REDO_HELD), found
    over_when_believed(started, 0)
    (incident,) = started.succeeds().incidents
    assert sorted(part["rank"] for part in incident["ranks"]) == [1, 2] and incident["proven_by"] == [], incident


def test_where_a_drill_has_found_the_device_not_to_be_reproducible_the_job_goes_on(training: Training) -> None:
    started = begin(training, "hidden.py", "counter", flags=FLAGS)
    code, verdict = drill(started, 1)
    assert (code, verdict["verdict"]) == (4, "not reproducible"), verdict
    wait_for_spare(started)
    lose_in_vote(started, 1)
    over(started)
    outcome = started.succeeds()
    (incident,) = outcome.incidents
    assert disputes.REDO_NOT_REPRODUCIBLE.code in outcome.output and HELD not in outcome.output
    assert any(has(note, disputes.REDO_NOT_REPRODUCIBLE) for note in incident["notes"]), incident
