"""Scripts that lie: they depend on state that cannot be tracked or carried over. No wrong result is graded proven or drilled, and a warning
is printed before or at the recovery.

Known limit, shown by none of these: state that cannot be tracked and that is not read while it could be compared, as a count in the memory
of another library that is read a hundred steps later.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance import runs, verdict
from tests.conformance.runs import Ran
from tests.conformance.scripts import Kill, Script, read
from understudy.core.model import DrillVerdict, Grade
from understudy.messages import census
from understudy.orchestrator import views

LIAR = Path(__file__).parent / "lies" / "liar.py"
BACKWARD, VOTE = Kill("backward", 6, 1), Kill("vote", 6, 1)
BOTH = (Kill("backward", 6, 1), Kill("forward", 9, 2))


def liar(how: str, *kills: Kill) -> Script:
    return replace(read(LIAR), arguments=(how,), own=kills)


def unproven(ran: Ran) -> list[str]:
    """Why, of each incident that is."""
    return [incident["why"] for incident in ran.incidents if incident["grade"] == Grade.UNPROVEN]


WAYS = [
    pytest.param("last bucket", (BACKWARD,), marks=pytest.mark.gate),  # changed before the break-off, and read after it
    ("last bucket", (VOTE,)),
    ("update", (BACKWARD,)),  # read only after all collectives
    ("update", (VOTE,)),
    ("newcomer", (BACKWARD,)),
    ("newcomer", (Kill("between", 6, 1),)),
    ("newcomer", (VOTE,)),
    ("own mean", BOTH),
    ("late", BOTH),  # read first, long after the recovery
    ("first step", (Kill("backward", 0, 1),)),  # changed and read in no later step, so that no drill shows it
    ("section", (Kill("evaluation", 10, 1),)),
]


@pytest.mark.parametrize("drilled", [True, False])
@pytest.mark.parametrize(("how", "kills"), WAYS)
def test_no_lie_is_graded_proven_or_drilled(how: str, kills: tuple[Kill, ...], drilled: bool, tmp_path: Path) -> None:
    script = liar(how, *kills)
    reference = runs.reference(script)
    assert verdict.steady(reference) is None
    ran = runs.understudy(script, tmp_path / "run", kills, None if drilled else ())
    assert ran.kills == kills, ran.output
    wrong = verdict.differs(reference.trace, ran.trace, [kill.rank for kill in kills]) or ran.held or ran.code or ran.hung
    assert wrong, "it was meant to lie"
    assert verdict.overrated(reference, ran) == "", ran.output
    assert ran.held or ran.code or unproven(ran), ran.output
    recorded = [event for event in views.offline_events(tmp_path / "run" / "run")[0] if event["type"] == "IncidentGraded"]
    last = {event["incident"]: (event["grade"], event["detail"]) for event in recorded}
    assert last == {one["number"]: (one["grade"], one["why"]) for one in ran.incidents if one["grade"]}


def test_what_no_drill_could_repeat_is_unproven_even_if_nothing_else_speaks_against_it(tmp_path: Path) -> None:
    ran = runs.understudy(liar("noise", VOTE), tmp_path / "run", (VOTE,))
    assert {drill["verdict"] for drill in ran.drills} == {DrillVerdict.NOT_REPRODUCIBLE}, ran.output
    assert len(unproven(ran)) == len(ran.incidents) == 1, ran.output


def test_an_earlier_notice_is_in_the_grade(tmp_path: Path) -> None:
    """An iterator that the step draws from: the census knows of it from the first steps on."""
    ran = runs.understudy(liar("late", *BOTH), tmp_path / "run", BOTH)
    assert census.COUNTER_MOVES.code in ran.output
    assert all("ticks (liar.py)" in why for why in unproven(ran)) and len(unproven(ran)) == len(ran.incidents) == 2, unproven(ran)
