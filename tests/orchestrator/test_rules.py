"""The orchestrator's rules without a loop or a clock: who is lost, whose lease is over, what is sent when and to whom."""

from __future__ import annotations

import pytest

from understudy.core.commands import Abort, Assign, Command, Drill, EndJob, KillWorker, Recover, SetTimer, StartWorker, Tell
from understudy.core.events import Believed, Expired, LostNode
from understudy.orchestrator.dispatch import Dispatch, split
from understudy.orchestrator.lease_term import LeaseTerm
from understudy.orchestrator.liveness import GRACE, MARGIN, Liveness

NODES = {"n0": 0, "n1": 1, "n2": 2}
LIMIT, EVERY = 2.0, 0.2
EPOCH = 1e9  # unix time of the monotonic clock's zero


class Job:
    """Nodes that are connected or not, and two clocks that run alike."""

    def __init__(
        self,
        *,
        far: bool = True,
        up: frozenset[str] = frozenset(),
        silent: dict[int, float] | None = None,
        needed: frozenset[str] = frozenset(),
    ) -> None:
        silences = silent or {}
        self.now = 0.0
        self.lost: set[str] = set()
        self.connected = set(NODES)
        self.live = Liveness(
            LIMIT,
            EVERY,
            EPOCH,
            far=far,
            up=up.__contains__,
            silent_since=lambda rank, seconds: silences.get(rank),
            needed=lambda nodes: bool(needed - self.lost) and needed - self.lost <= {*nodes},
        )
        for node in NODES:
            self.live.connected(node, 0.0)

    def away(self, node: str, *, restarted: bool = False) -> None:
        self.connected.discard(node)
        self.live.disconnected(node)
        self.live.awaited(node, self.now, EPOCH + self.now, restarted=restarted)

    def until(self, seconds: float, speak: tuple[str, ...] = tuple(NODES)) -> list[tuple[float, list[LostNode], tuple[str, ...]]]:
        """What is lost up to then, and when it is reported, as long as `speak` do."""
        found = []
        while self.now < seconds:
            self.now = round(self.now + EVERY, 6)
            for node in self.connected.intersection(speak):
                self.live.heard(node, self.now)
            gone = self.live.gone(NODES, self.connected, self.now, EPOCH + self.now)
            self.lost |= {one.node for one in gone.lost}
            if gone.lost:
                found.append((self.now, list(gone.lost), gone.silent))
            self.connected.difference_update(gone.silent)
        return found


def test_a_connected_node_with_messages_is_not_lost() -> None:
    assert Job().until(100.0) == []


def test_a_node_whose_agent_stays_away_is_lost_once() -> None:
    job = Job()
    job.away("n1")
    ((when, (lost,), silent),) = job.until(100.0)
    assert (when, lost.node, silent) == (LIMIT, "n1", ()) and lost.happened == EPOCH
    assert not job.live.waits


def test_nodes_without_which_the_job_would_end_get_more_time() -> None:
    """One agent is away and another one silent. The first node is lost in time; the second is the last one with good state then."""
    job = Job(needed=frozenset({"n1", "n2"}))
    job.away("n1")
    (first, (away,), _), (second, (silent,), closed) = job.until(100.0, speak=("n0",))
    assert (first, away.node) == (LIMIT, "n1")
    assert second == pytest.approx(GRACE, abs=EVERY) and silent.node == "n2" and closed == ("n2",)


def test_all_that_a_job_needs_may_be_silent_together() -> None:
    job = Job(needed=frozenset({"n1", "n2"}))
    ((when, lost, _),) = job.until(100.0, speak=("n0",))
    assert when == pytest.approx(GRACE, abs=EVERY) and {one.node for one in lost} == {"n1", "n2"}


def test_a_silent_node_without_which_the_job_would_end_may_come_back() -> None:
    job = Job(needed=frozenset({"n1"}))
    assert job.until(GRACE - EVERY, speak=("n0", "n2")) == []
    assert job.until(100.0) == []


def test_a_node_that_comes_back_in_time_is_not_lost() -> None:
    job = Job()
    job.away("n1")
    assert job.until(LIMIT - EVERY) == [] and job.live.waits
    job.live.connected("n1", job.now)
    job.connected.add("n1")
    assert job.until(100.0) == []


def test_an_agent_that_is_started_again_on_a_host_that_is_up_gets_more_time() -> None:
    job = Job(up=frozenset({"n1"}))
    job.away("n1")
    ((when, (lost,), _),) = job.until(100.0)
    assert (when, lost.node) == (GRACE, "n1")


def test_the_only_host_is_up_and_its_silence_means_nothing() -> None:
    job = Job(far=False)
    assert job.until(50.0, speak=()) == []
    job.away("n0")
    ((when, _, _),) = job.until(100.0)
    assert when == 50.0 + GRACE


def test_a_connected_silent_node_is_lost_and_must_be_disconnected() -> None:
    ((when, (lost,), silent),) = Job().until(10.0, speak=("n0", "n2"))
    assert LIMIT < when <= LIMIT + 2 * EVERY and lost.node == "n1" and silent == ("n1",)
    assert lost.happened == pytest.approx(EPOCH)


def test_nodes_that_are_lost_together_are_reported_together_in_order() -> None:
    job = Job()
    job.away("n2")
    job.until(EVERY)
    job.away("n1")
    job.now = 10.0  # there was no check in the meantime
    gone = job.live.gone(NODES, job.connected, job.now, EPOCH + job.now)
    assert [one.node for one in gone.lost] == ["n2", "n1"]


def test_after_a_restart_agents_have_time_unless_their_host_is_silent_in_every_way() -> None:
    for silent, expected in (({}, GRACE), ({2: EPOCH - 1.0}, LIMIT + MARGIN)):
        job = Job(silent=silent)
        job.away("n2", restarted=True)
        ((when, (lost,), _),) = job.until(100.0)
        assert (round(when, 1), lost.node) == (expected, "n2")


def test_a_silent_host_is_waited_for_while_most_agents_are_away_themselves() -> None:
    job = Job(silent={2: EPOCH - 1.0})
    for node in ("n1", "n2"):
        job.away(node, restarted=True)
    ((when, lost, _),) = job.until(100.0)
    assert when == GRACE and [one.node for one in lost] == ["n1", "n2"]


def test_a_lease_is_good_from_the_moment_in_which_it_was_asked_for() -> None:
    term = LeaseTerm(3.0)
    assert term.over(0.1), "there is no leader without one"
    term.extend(10.0)
    assert not term.over(13.0) and term.over(13.001)
    assert term.worth_taking(10.0, 11.5) and not term.worth_taking(10.0, 11.6)


ASSIGN = Assign("w0", 0, 0, False, False, "", {})
NEWCOMER = Assign("w3", 1, 0, True, False, "", {})
ABORT = Abort("w1", 1, "", (0,), "lost")
DRILL = Drill("w1", 0, 1, 1, "")
RECOVER = Recover("w1", 1, 5, "redo", "", (0,), (1,), ())
END = EndJob(0, "all 2 ranks finished")


@pytest.mark.parametrize(
    ("command", "strict", "waits"),
    [
        (ASSIGN, False, True),
        (NEWCOMER, False, False),
        (ABORT, False, False),
        (DRILL, False, True),
        (RECOVER, False, True),
        (END, False, False),
        (END, True, True),
    ],
    ids=["first rank", "newcomer", "abort", "drill", "recover", "end", "strict end"],
)
def test_what_waits_for_the_journal(command: Command, strict: bool, waits: bool) -> None:
    message: Command = Tell("hello")
    at_once, later = split(Expired("timer"), [message, command], strict=strict)
    assert (at_once, later) == (([message], [command]) if waits else ([message, command], []))


def test_no_effect_of_a_persons_decision_goes_out_before_it_is_written() -> None:
    commands: list[Command] = [Tell("rank 1 is believed"), ABORT]
    assert split(Believed(1, ""), commands, strict=False) == ([], commands)


def test_each_node_gets_its_commands_in_order_and_all_that_are_connected_hear_of_the_end() -> None:
    node_of = {"w0": "n0", "w1": "n1", "w3": "n1"}.__getitem__
    start, kill, timer = StartWorker("n2", "w4", True), KillWorker("w0", "lost"), SetTimer("quiesce", 3.0)
    found = Dispatch.of([ABORT, start, Tell("one"), kill, NEWCOMER, timer, Tell("two"), END], node_of, ["n0", "n1"])
    assert found.for_nodes == {"n1": [ABORT, NEWCOMER, END], "n2": [start], "n0": [kill, END]}
    assert (found.texts, found.timers, found.ends) == (["one", "two"], [timer], True)
    assert Dispatch.of([ABORT], node_of, []) == Dispatch(for_nodes={"n1": [ABORT]})
