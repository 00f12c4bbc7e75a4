"""What a newcomer sets of unregistered values on its way: its rank's own where no other rank has them, else those of the donors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.worker.encoding.messages import CopyDigests
from understudy.worker.recovery.arrival import assumed_alike
from understudy.worker.recovery.script_names import ScriptNames
from understudy.worker.state.unregistered import PREFIX

LEVEL = f"{PREFIX}module:script:level"
VOTE, AFTER = b"as of the vote", b"after it"


def _set(classes: dict[str, tuple[int, ...]], of_copy: int, at_vote: int) -> bytes | None:
    """What is set, if the rank's copy has the value of the vote. The numbers are digests: that of the copy, and of a donor at its vote."""
    values: dict[str, bytes] = {}
    state: Any = SimpleNamespace(load_value=values.__setitem__)
    job: Any = SimpleNamespace(replicas=classes)
    digests = CopyDigests({LEVEL: of_copy}, {})
    copy: Any = SimpleNamespace(values={LEVEL: VOTE}, tensors={}, digests=digests)
    donor: Any = SimpleNamespace(values={LEVEL: AFTER}, digests={LEVEL: 9}, versions=[CopyDigests({LEVEL: at_vote}, {})])
    ScriptNames(state).put(job, copy, 1, [donor], {LEVEL: AFTER}, {})
    return values.get(LEVEL)


@pytest.mark.parametrize(
    ("classes", "of_copy", "at_vote", "found"),
    [
        ({LEVEL: (0, 0)}, 1, 1, AFTER),  # shared, and known to be: the step has changed it after the vote
        ({}, 1, 1, AFTER),  # not compared yet, and the same at that vote
        ({}, 1, 2, VOTE),  # it differed at that vote
        ({LEVEL: (0, 1)}, 1, 1, VOTE),  # known to differ
        ({LEVEL: (0, 0)}, 1, 2, VOTE),  # it differs since the comparison
    ],
)
def test_a_value_that_another_rank_has_is_that_of_the_donors(
    classes: dict[str, tuple[int, ...]], of_copy: int, at_vote: int, found: bytes
) -> None:
    assert _set(classes, of_copy, at_vote) == found


@pytest.mark.parametrize(
    ("of_copy", "classes", "donors", "found"),
    [
        ({}, {}, 1, [LEVEL]),  # changed for the first time since the lost rank's copy: maybe to something else there
        ({LEVEL: 8}, {}, 1, [LEVEL]),
        ({LEVEL: 9}, {}, 1, []),  # the lost rank had the same
        ({}, {LEVEL: (0, 0)}, 1, []),  # compared before
        ({}, {}, 2, []),  # two donors agree
    ],
)
def test_a_value_that_nothing_shows_to_be_shared_is_reported(
    of_copy: dict[str, int], classes: dict[str, tuple[int, ...]], donors: int, found: list[str]
) -> None:
    copy: Any = SimpleNamespace(digests=CopyDigests(of_copy, {}))
    assert assumed_alike({LEVEL: 9, "net/parameter/weight": 3}, copy, classes, donors) == found
