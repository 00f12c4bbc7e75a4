"""A reading of a worker's page (`links.page`): the progress that orchestrator, agents and detectors know."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Annotated, NamedTuple

from pydantic import Field

from understudy.common.bounds import FIRST_TIME, LAST_TIME, NUMBER

UNKNOWN = -1  # number of waits
LEARNED, ALONE = 0.0, -1.0  # seconds for which a rank may work while the others wait: learned from the steps, or --alone-limit
WHERE = 400  # characters
LONGEST_GRANT = 1e9  # seconds
# Bounds of values that arrive over a link, for pydantic: numbers that a journal can store, and times that are finite.
Count = Annotated[int, Field(gt=-NUMBER, lt=NUMBER)]
Seconds = Annotated[float, Field(gt=FIRST_TIME, lt=LAST_TIME)]
Place = Annotated[str, Field(max_length=WHERE)]


class Activity(IntEnum):
    WARMING = 0
    WARM = 1
    SETUP = 2  # runs the script up to its first transaction
    IDLE = 3  # between transactions
    RUNNING = 4
    VOTED = 5
    COMMITTING = 6  # past the vote
    RECOVERING = 7
    FINISHED = 8


class Process(IntFlag):
    """Other states of a worker; the first three are known only of one that makes no progress. An earlier orchestrator ignores these,
    whereas it refuses an activity that it does not know.
    """

    DEBUGGED = 1  # the script is in a Python debugger
    TRACED = 2  # another process traces it, as gdb does
    UNINTERRUPTIBLE = 4  # its main thread is in a system call that does not return (state D)
    UNJOINED = 8  # in `SETUP`: the script has not called `understudy.join` yet, and may never
    ENDING = 16  # in `IDLE`: the script has failed; its threads and exit handlers run


class PageView(NamedTuple):
    """A reading; a tuple, because many thousands are sent and checked every second. `beat_at`, `since` are CLOCK_MONOTONIC seconds of
    this host.
    """

    beats: Count
    beat_at: Seconds
    activity: Activity
    transaction: Count
    step: Count  # last committed step, 0 before the first
    since: Seconds  # when activity or transaction changed last
    collectives: Count  # collectives issued since the last recovery, over all groups, as of the last beat
    longest: Seconds  # seconds of the longest transaction cycle so far, the first two left out
    waits: Count = UNKNOWN  # for how many operations the worker waits for others, if it makes no progress
    looks: Count = 0  # how many samples show whether the worker computes itself or waits for others; 0: not known
    own_running: Count = 0  # own milliseconds in each activity, according to these samples: it did not wait for others
    own_committing: Count = 0
    own_idle: Count = 0
    granted: Seconds = LEARNED  # for which it may work here while the others wait: `LEARNED`, `ALONE`, or seconds
    process: Count = 0  # `Process`
    where: Place = ""  # the line of the script at which it makes no progress; "": not known


def whereabouts(view: PageView) -> str:
    """Return where in the job a worker's rank is, in words; "" if it has none."""
    if view.process & Process.ENDING:
        return "after its script had failed"
    if view.process & Process.UNJOINED:
        return "before its script called understudy.join"
    if view.activity is Activity.VOTED and view.transaction < 0:
        return "at the end of its set-up"
    return {
        Activity.SETUP: "while its script set up",
        Activity.IDLE: f"between transactions {view.transaction - 1} and {view.transaction}",
        Activity.RUNNING: f"in transaction {view.transaction}",
        Activity.VOTED: f"in the vote of transaction {view.transaction}",
        Activity.COMMITTING: f"in transaction {view.transaction} after its vote (what the call would have returned there is lost)",
        Activity.RECOVERING: f"during the recovery before transaction {view.transaction}",
        Activity.FINISHED: "after its script had ended",
    }.get(view.activity, "")


def line_of(view: PageView) -> str:
    """Return the line of the script at which a rank makes no progress, and whether its work there is lost with it; "" if not known."""
    if not view.where:
        return ""
    skipped = " (which a newcomer skips, unless it is in a @job.section)" if view.activity is Activity.IDLE else ""
    return f", at {view.where}{skipped}"
