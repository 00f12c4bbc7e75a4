"""The commands of the machine: the outputs of `Machine.handle`.

Commands with a `worker` go to that worker through its agent, except `KillWorker`, which the agent itself carries out.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.events import IncidentGraded


@dataclass(frozen=True)
class StartWorker:
    """To the agent of `node`: start a process that warms up and then waits for a rank."""

    node: str
    worker: str
    spare: bool  # a spare is started only if there is memory for it; a rank must start


@dataclass(frozen=True)
class KillWorker:
    """To the agent: SIGKILL the worker and everything that it started. This also fences a hung worker."""

    worker: str
    reason: str


@dataclass(frozen=True)
class CheckNode:
    """To the agent of `node`: run its check (`understudy check-node`), and report the result (`NodeChecked`)."""

    node: str


@dataclass(frozen=True)
class ClaimNode:
    """To the service: ask the scheduler for one more node (`floating.py`). Its agent joins with this number, which is never reused."""

    claim: int
    rank: int  # the rank for which it is claimed at first; only shown
    reason: str
    avoid: tuple[str, ...]  # names of nodes on which it must not be, sorted


@dataclass(frozen=True)
class GiveBackNode:
    """To the service: the claim with this number is no longer needed. Cancel it if it is pending, and end the node that serves it."""

    claim: int
    node: str  # empty: none has joined


@dataclass(frozen=True)
class Assign:
    """To a warm worker: take `rank` and run the script. A newcomer takes it while the job runs.

    `environment` is torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, ...). `store` (host:port) is the generation's rendezvous.
    """

    worker: str
    generation: int
    rank: int
    newcomer: bool
    planned: bool
    store: str
    environment: dict[str, str]


@dataclass(frozen=True)
class Prepare:
    """To a warm spare: run the script's set-up as `rank`, which is not lost, and wait for an `Assign` of that rank.

    The rank's buddies put the record of its set-up into `store`, the rendezvous of `generation`. `environment` as in `Assign`.
    """

    worker: str
    generation: int  # the present one
    rank: int
    store: str
    environment: dict[str, str]


@dataclass(frozen=True)
class Drill:
    """To a rank, and to the spare that has completed the set-up of this rank: both compute its next step, and compare (`drill.py`).

    They meet in `store`, which is the rank's own. The rank waits for its spare for `patience` seconds at most, in total.
    """

    worker: str
    generation: int
    number: int
    rank: int
    store: str
    patience: float = 10.0


@dataclass(frozen=True)
class DrillOver:
    """To the rank of a drill: its spare has finished or is gone. Stop waiting for it."""

    worker: str
    generation: int
    number: int


@dataclass(frozen=True)
class Abort:
    """To a survivor: the current generation is over. Break every pending collective, quiesce, answer `Quiesced`.

    Workers with copies of the `lost` ranks publish them in `store` at once, for the newcomers.
    """

    worker: str
    generation: int  # the new one
    store: str
    lost: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Publish:
    """To every worker: put your copies of these ranks' set-up into `store`, for newcomers of a planned migration or prepared spares."""

    worker: str
    generation: int  # the next one; for a prepared spare, the present one
    store: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Pause:
    """To every worker of a planned migration: agree on a boundary (through the vote), then quiesce there with `Quiesced`."""

    worker: str
    generation: int  # the new one
    store: str
    leaving: tuple[int, ...]


@dataclass(frozen=True)
class Recover:
    """To every member of the new generation: survivors, newcomers, and healthy leavers as donors.

    `start` is the next transaction to run. A survivor in the vote of `start - 1` rolls forward; all others run or redo `start`.
    `holders[i]` is a rank that holds the copy for `newcomers[i]`, or -1.
    """

    worker: str
    generation: int
    start: int
    decision: str  # "redo", "roll forward", "boundary"
    store: str
    newcomers: tuple[int, ...]
    holders: tuple[int, ...]
    leavers: tuple[int, ...]  # ranks whose previous worker is healthy and takes part as a donor
    proven: bool = False  # a drill has passed for every newcomer's rank, and nothing has changed since


@dataclass(frozen=True)
class Release:
    """To a worker: exit with this code, because all have finished or your rank has moved."""

    worker: str
    exit_code: int


@dataclass(frozen=True)
class SetTimer:
    """To the service: deliver `Expired(timer)` after `seconds`, unless the same name is set again (0 cancels)."""

    timer: str
    seconds: float


@dataclass(frozen=True)
class EndJob:
    """To the service: the job is over. Stop the workers that are left and report the end to the user."""

    exit_code: int
    message: str


@dataclass(frozen=True)
class Tell:
    """To the service: print a line on the user's terminal."""

    text: str


@dataclass(frozen=True)
class Record:
    """To the service: add this event to the journal."""

    event: IncidentGraded


Command = (
    StartWorker
    | KillWorker
    | CheckNode
    | ClaimNode
    | GiveBackNode
    | Assign
    | Prepare
    | Drill
    | DrillOver
    | Abort
    | Publish
    | Pause
    | Recover
    | Release
    | SetTimer
    | EndJob
    | Tell
    | Record
)
