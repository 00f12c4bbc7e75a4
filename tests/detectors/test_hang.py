"""The hang watch: which rank is named, when, and when none is."""

from __future__ import annotations

import pytest
from tests.message_texts import has

from understudy.common.page_view import ALONE, UNKNOWN, Activity, PageView, Process
from understudy.core.model import Timeouts
from understudy.detectors.base import JobView, Severity, Subject
from understudy.detectors.hang import HangWatch, Verdict
from understudy.messages import training_evidence

LIMITS = Timeouts(hang_floor=10.0, hang_factor=20.0, hang_first=100.0, alone=10.0)
PATIENT = Timeouts(hang_floor=10.0, hang_factor=20.0, hang_first=100.0, alone=1000.0)
OFFSET = 5000.0  # unix time minus the host's monotonic clock
RANKS = {0: "w0", 1: "w1", 2: "w2"}


def page(
    activity: Activity = Activity.RUNNING,
    transaction: int = 7,
    *,
    step: int = 7,
    collectives: int = 40,
    beat_at: float = 0.0,
    since: float = 0.0,
    longest: float = 0.3,
    waits: int = UNKNOWN,
    granted: float = 0.0,
    process: int = 0,
) -> PageView:
    return PageView(1, beat_at, activity, transaction, step, since, collectives, longest, waits, granted=granted, process=process)


class Host:
    """Reads pages with its clock; each page's beat follows the clock unless it is frozen."""

    def __init__(self, limits: Timeouts = LIMITS) -> None:
        self.watch = HangWatch(limits)
        self.clock = 1.0

    def read(self, pages: dict[str, PageView], clock: float, frozen: tuple[str, ...] = ()) -> None:
        self.clock = clock
        beating = {name: page if name in frozen else page._replace(beat_at=clock) for name, page in pages.items()}
        self.watch.observe(beating, clock, clock + OFFSET)

    def stand(self, pages: dict[str, PageView], seconds: int = 20, frozen: tuple[str, ...] = ()) -> Verdict | None:
        """Show the same pages once a second; return the verdict at the end."""
        for second in range(seconds):
            self.read(pages, 1.0 + second, frozen)
        return self.judge()

    def judge(self, idle: tuple[str, ...] = ()) -> Verdict | None:
        return self.watch.judge(RANKS, idle, self.clock + OFFSET)


def test_a_stopped_process_is_named_when_its_limit_is_over() -> None:
    host = Host()
    pages = {name: page() for name in RANKS.values()}
    for second in range(11):
        host.read(pages, 1.0 + second, frozen=("w1",))
        verdict = host.judge()
        if second < 10:
            assert verdict is None
    host.read(pages, 11.5, frozen=("w1",))
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w1" and has(verdict.detail, training_evidence.SILENT)
    assert verdict.happened == OFFSET  # its last beat was at 0 of the host's clock


def test_a_newcomer_that_is_stopped_while_its_state_arrives_is_not_granted_the_time_of_a_set_up() -> None:
    for activity, named in ((Activity.SETUP, None), (Activity.RECOVERING, "w1")):
        host = Host(PATIENT)
        pages = {"w0": page(Activity.RECOVERING), "w1": page(activity, step=0), "w2": page(Activity.RECOVERING)}
        verdict = host.stand(pages, frozen=("w1",))
        assert (verdict and verdict.worker) == named


def test_the_limit_is_learnt_from_the_longest_transaction() -> None:
    host = Host()
    pages = {"w0": page(longest=2.0), "w1": page(), "w2": page()}
    host.read(pages, 39.0, frozen=("w1",))
    assert host.judge() is None
    host.read(pages, 41.0, frozen=("w1",))
    assert host.judge() is not None


def test_before_the_first_commit_the_limit_is_generous() -> None:
    host = Host()
    pages = {name: page(Activity.SETUP, -1, step=0, longest=0.0) for name in RANKS.values()}
    host.read(pages, 99.0, frozen=("w1",))
    assert host.judge() is None
    host.read(pages, 101.0, frozen=("w1",))
    assert host.judge() is not None


def test_when_all_are_silent_no_rank_is_named() -> None:
    host = Host()
    host.read({name: page() for name in RANKS.values()}, 500.0, frozen=("w0", "w1", "w2"))
    assert host.judge() is None


def test_old_readings_prove_nothing() -> None:
    host = Host()
    host.read({name: page() for name in RANKS.values()}, 9.0, frozen=("w1",))
    assert host.watch.judge(RANKS, (), OFFSET + 60.0) is None


def test_a_stopped_spare_is_named() -> None:
    host = Host()
    pages = {name: page(since=50.0) for name in RANKS.values()} | {"w3": page(Activity.WARM, -1, step=0)}
    host.read(pages, 50.0, frozen=("w3",))
    verdict = host.judge(idle=("w3",))
    assert verdict is not None and verdict.worker == "w3"


def test_the_rank_in_a_lower_transaction_holds_up_the_job() -> None:
    host = Host()
    pages = {"w0": page(transaction=8), "w1": page(Activity.IDLE, 7), "w2": page(transaction=8)}
    host.read(pages, 9.0)
    assert host.judge() is None
    host.read(pages, 10.5)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w1" and has(verdict.detail, training_evidence.BEHIND, rank=1)
    assert verdict.happened == OFFSET


def test_the_rank_that_has_not_voted_holds_up_the_job() -> None:
    host = Host()
    pages = {"w0": page(Activity.VOTED), "w1": page(Activity.VOTED), "w2": page()}
    host.read(pages, 10.5)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w2"


def test_the_rank_that_has_issued_fewer_collectives_holds_up_the_job() -> None:
    host = Host()
    pages = {"w0": page(collectives=39), "w1": page(), "w2": page()}
    host.read(pages, 10.5)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w0"


def test_a_new_holder_is_not_judged_by_what_was_read_before_it_came() -> None:
    host = Host()
    pages = {"w0": page(), "w1": page(), "w2": page(), "w3": page(Activity.WARM, -1, step=0)}
    host.read(pages, 9.0)
    assert host.judge() is None
    host.read(pages, 10.5)  # w3 has taken rank 2 since then, and all ranks go on, but no page shows it yet
    newly = {0: "w0", 1: "w1", 2: "w3"}
    assert host.watch.judge(newly, (), 10.5 + OFFSET) is None
    host.read(pages, 20.4)
    assert host.watch.judge(newly, (), 20.4 + OFFSET) is None
    host.read(pages, 20.6)
    verdict = host.watch.judge(newly, (), 20.6 + OFFSET)
    assert verdict is not None and verdict.worker == "w3"


def test_ranks_that_differ_in_collectives_by_nature_are_not_judged_by_them() -> None:
    host = Host()
    host.read({"w0": page(collectives=10), "w1": page(collectives=20), "w2": page(collectives=30)}, 100.0)
    assert host.judge() is None


def test_a_rank_that_is_alone_in_its_job_does_not_lag() -> None:
    host = Host()
    for second in range(300):
        host.read({"w0": page(waits=0)}, 1.0 + second)
    assert host.watch.judge({0: "w0"}, (), host.clock + OFFSET) is None


def test_any_progress_of_any_rank_counts() -> None:
    host = Host()
    for second in range(30):
        host.read({"w0": page(collectives=second), "w1": page(collectives=50), "w2": page(collectives=50)}, 1.0 + second)
        assert host.judge() is None


def test_no_rank_alone_lags() -> None:
    host = Host()
    host.read({name: page() for name in RANKS.values()}, 50.0)
    assert host.judge() is None
    assert host.watch.stalled(RANKS, host.clock + OFFSET) == 50.0


def in_vote(*waits: int) -> dict[str, PageView]:
    """All in the vote of the same transaction, with so many waits each."""
    return {f"w{rank}": page(Activity.VOTED, waits=number) for rank, number in enumerate(waits)}


def test_where_none_is_behind_a_rank_that_waits_for_no_other_holds_up_the_job() -> None:
    verdict = Host().stand(in_vote(1, 2, 0))
    assert verdict is not None and verdict.worker == "w2" and has(verdict.detail, training_evidence.WAITS_FOR_NONE, rank=2)
    assert verdict.happened == OFFSET


def test_where_several_are_behind_a_rank_that_waits_for_no_other_holds_up_the_job() -> None:
    """In the forward of DDP with buffers: the source of their broadcast has got further than the rest, and the rest are not all equally
    far.
    """
    pages = {"w0": page(collectives=43, waits=1), "w1": page(collectives=41, waits=1), "w2": page(waits=0)}
    verdict = Host().stand(pages)
    assert verdict is not None and verdict.worker == "w2"
    pages = {"w0": page(Activity.VOTED, waits=0), "w1": page(transaction=8, waits=1), "w2": page(Activity.VOTED, waits=1)}
    verdict = Host().stand(pages)
    assert verdict is not None and verdict.worker == "w0"


@pytest.mark.parametrize("waits", [(1, 1, 1), (0, 0, 1), (0, 0, 0), (0, 1, UNKNOWN), (1, 1, UNKNOWN), (UNKNOWN, UNKNOWN, 0)])
def test_waits_that_name_no_rank(waits: tuple[int, ...]) -> None:
    assert Host().stand(in_vote(*waits)) is None


@pytest.mark.parametrize("activity", [Activity.SETUP, Activity.RECOVERING])
def test_waits_of_which_not_all_are_counted_name_no_rank(activity: Activity) -> None:
    pages = {name: page(activity, waits=number) for name, number in zip(RANKS.values(), (1, 0, 1), strict=True)}
    assert Host().stand(pages, seconds=200) is None


def test_who_is_known_to_wait_is_not_the_culprit_because_it_has_issued_less() -> None:
    pages = {"w0": page(collectives=39, waits=1), "w1": page(waits=1), "w2": page(waits=0)}
    verdict = Host().stand(pages)
    assert verdict is not None and verdict.worker == "w2"
    pages["w2"] = page(waits=1)
    assert Host().stand(pages) is None


def test_a_number_of_waits_must_last() -> None:
    """A thread that is woken for a moment, by a signal, say, goes on waiting."""
    host = Host()
    assert host.stand(in_vote(1, 1, 1)) is None
    host.read(in_vote(1, 0, 1), 21.0)
    assert host.judge() is None
    host.read(in_vote(1, 0, 1), 25.0)
    assert host.judge() is None
    host.read(in_vote(1, 0, 1), 26.0)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w1"


def test_an_old_number_of_waits_proves_nothing() -> None:
    """It has stopped, and would be lost for its silence if it were granted less time."""
    pages = in_vote(1, 0, 1) | {"w3": page(longest=5.0)}
    host = Host()
    assert host.stand(pages, seconds=71) is None
    for second in range(71, 102):
        host.read(pages | {"w1": pages["w1"]._replace(beat_at=71.0)}, 1.0 + second, frozen=("w1",))
    assert host.judge() is None
    verdict = Host().stand(pages, seconds=102)
    assert verdict is not None and verdict.worker == "w1"


OTHERS = {"w1": page(Activity.VOTED), "w2": page(Activity.VOTED)}
FINISHED = {"w1": page(Activity.FINISHED), "w2": page(Activity.FINISHED)}
NEXT = {"w1": page(transaction=8), "w2": page(transaction=8)}


@pytest.mark.parametrize(
    ("alone", "others"),
    [
        (page(Activity.IDLE), NEXT),
        (page(Activity.IDLE), FINISHED),
        (page(Activity.IDLE, process=Process.ENDING), OTHERS),
        (page(Activity.SETUP, -1, step=0), {name: page(Activity.VOTED, -1, step=0) for name in ("w1", "w2")}),
        (page(granted=ALONE), OTHERS),  # a section, or one of the first steps of a function
    ],
)
def test_outside_of_steps_a_rank_that_works_alone_is_reported_long_before_it_is_ended(alone: PageView, others: dict[str, PageView]) -> None:
    host = Host(PATIENT)
    host.read({"w0": alone, **others}, 9.0)
    assert host.watch.alone(RANKS, host.clock + OFFSET) is None
    for clock, ended in ((11.0, False), (999.0, False), (1001.0, True)):
        host.read({"w0": alone, **others}, clock)
        verdict, found = host.judge(), host.watch.alone(RANKS, clock + OFFSET)
        assert found is not None and (found.rank, found.worker, found.seconds, found.limit) == (0, "w0", clock, 1000.0)
        assert (verdict is not None and verdict.worker == "w0") == ended


@pytest.mark.parametrize("limit", [3.0, 50.0])
def test_a_stretch_that_the_script_has_named_has_a_limit_of_its_own(limit: float) -> None:
    host = Host(PATIENT)
    for clock, ended in ((limit - 1.0, False), (limit + 1.0, True)):
        host.read({"w0": page(granted=limit), **OTHERS}, clock)
        verdict = host.judge()
        assert (verdict is not None and verdict.worker == "w0") == ended


def test_in_a_step_the_limit_is_that_of_the_steps() -> None:
    host = Host(PATIENT)
    host.read({"w0": page(), **OTHERS}, 10.5)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w0"


@pytest.mark.parametrize("process", [Process.DEBUGGED, Process.TRACED])
def test_while_a_rank_is_in_a_debugger_no_rank_is_considered_hung(process: Process) -> None:
    host = Host(PATIENT)
    host.read({"w0": page(process=process), **OTHERS}, 5000.0)
    assert host.judge() is None and host.watch.alone(RANKS, 5000.0 + OFFSET) is None


def test_ranks_whose_script_has_failed_and_never_ends_are_found_although_all_are_alike() -> None:
    host = Host(PATIENT)
    pages = {name: page(Activity.IDLE, process=Process.ENDING) for name in RANKS.values()}
    for clock, found in ((999.0, False), (1001.0, True)):
        host.read(pages, clock)
        assert (host.watch.never_ends(RANKS, clock + OFFSET) is not None) == found


def test_a_process_that_is_traced_is_not_taken_for_stopped() -> None:
    for process, named in ((0, True), (Process.TRACED, False)):
        host = Host()
        pages = {"w0": page(process=process), "w1": page(since=20.0), "w2": page(since=20.0)}
        host.read(pages, 20.0, frozen=("w0",))
        verdict = host.judge()
        assert (verdict is not None and verdict.worker == "w0") == named


def test_a_rank_lost_in_an_uninterruptible_call_speaks_against_its_node() -> None:
    host = Host()
    host.read({"w0": page(process=Process.UNINTERRUPTIBLE), **OTHERS}, 10.5)
    found = host.watch.look(JobView(10.5 + OFFSET, RANKS, nodes={"w0": "n0", "w1": "n1", "w2": "n1"}))
    assert [(one.subject, one.name, one.severity) for one in found] == [
        (Subject.NODE, "n0", Severity.SUSPECT),
        (Subject.WORKER, "w0", Severity.LOST),
    ]


def test_a_transaction_before_which_others_have_ended_can_never_commit() -> None:
    host = Host()
    done = {"w0": page(Activity.FINISHED, 8), "w1": page(Activity.FINISHED, 8)}
    for activity, transaction in ((Activity.IDLE, 8), (Activity.COMMITTING, 7), (Activity.RECOVERING, 8), (Activity.FINISHED, 8)):
        host.read(done | {"w2": page(activity, transaction)}, 50.0)  # may still end
        assert host.watch.left_behind(RANKS) is None
    for activity in (Activity.RUNNING, Activity.VOTED):
        host.read(done | {"w2": page(activity, 8)}, 51.0)
        host.watch.left_behind(RANKS)
        assert host.watch.left_behind(RANKS) is None  # the same reading
        host.read(done | {"w2": page(Activity.COMMITTING, 7)}, 52.0)
        assert host.watch.left_behind(RANKS) is None  # it was torn
        for clock in (53.0, 54.0):
            host.read(done | {"w2": page(activity, 8)}, clock)
            left = host.watch.left_behind(RANKS)
        assert left is not None
        assert left[0] == 2
        assert left[2] == training_evidence.LEFT_BEHIND(where="transaction 8", others=0)


@pytest.mark.parametrize(("transaction", "words"), [(0, "transaction 0"), (-1, "the first transaction")])
def test_a_rank_that_is_left_behind_is_named_by_its_number(transaction: int, words: str) -> None:
    host = Host()
    for clock in (50.0, 51.0):
        host.read({"w0": page(Activity.FINISHED, transaction), "w2": page(Activity.RUNNING, transaction)}, clock)
        left = host.watch.left_behind(RANKS)
    assert left is not None and has(left[2], training_evidence.LEFT_BEHIND, where=words)


def test_ranks_at_the_same_transaction_leave_none_behind() -> None:
    host = Host()
    for clock in (50.0, 51.0, 52.0):
        host.read({"w0": page(Activity.FINISHED, 9), "w1": page(Activity.RUNNING, 8), "w2": page(Activity.VOTED, 8)}, clock)
        assert host.watch.left_behind(RANKS) is None


def test_a_rank_that_sets_up_for_long_does_not_lag() -> None:
    waiting = page(Activity.VOTED, -1, step=0)
    pages = {"w0": page(Activity.SETUP, -1, step=0), "w1": waiting, "w2": waiting}
    assert Host(PATIENT).stand(pages, 150) is None


def test_who_does_not_come_to_rest_while_all_others_wait_in_recovery() -> None:
    host = Host()
    pages = {"w0": page(Activity.RECOVERING), "w1": page(Activity.RECOVERING, 8), "w2": page()}
    host.read(pages, 50.0)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w2"


def test_a_forgotten_worker_is_not_judged() -> None:
    host = Host()
    host.read({name: page() for name in RANKS.values()}, 50.0, frozen=("w1",))
    host.watch.forget({"w0", "w2"})
    assert host.judge() is None


def test_who_was_stopped_itself_does_not_take_that_time_for_the_jobs() -> None:
    """Its readings are as old, and the rank that lagged then has long gone on."""
    host = Host()
    pages = {"w0": page(Activity.VOTED, 8), "w1": page(Activity.VOTED, 8), "w2": page()}
    assert host.stand(pages, 3) is None
    assert host.watch.judge(RANKS, (), host.clock + OFFSET + 60.0) is None
    host.read(pages, host.clock + 60.0)
    verdict = host.judge()
    assert verdict is not None and verdict.worker == "w2"


def test_one_that_has_not_beaten_yet_is_not_silent() -> None:
    """Its page is there before its first beat, and does not show when it began."""
    host = Host()
    pages = {"w0": page(), "w1": page()._replace(beats=0, beat_at=0.0), "w2": page()}
    assert host.stand(pages, seconds=40, frozen=("w1",)) is None
    pages["w1"] = page()._replace(beats=1, beat_at=0.0)
    verdict = host.stand(pages, seconds=40, frozen=("w1",))
    assert verdict is not None and verdict.worker == "w1" and has(verdict.detail, training_evidence.SILENT)


def test_one_rank_that_makes_progress_is_enough_and_one_that_makes_none_is_not() -> None:
    host = Host()
    pages = {name: page() for name in RANKS.values()}
    host.read(pages, 1.0)
    for second in range(2, 60):
        pages["w1"] = page(transaction=7 + second, since=float(second))
        host.read(pages, float(second))
    assert host.watch.moves(RANKS, 59.0 + OFFSET)
    host.read(pages, 71.0)
    assert not host.watch.moves(RANKS, 71.0 + OFFSET)


def test_how_long_some_make_no_progress_is_known_even_if_one_was_never_read() -> None:
    host = Host()
    host.read({"w0": page()}, 1.0)
    host.read({"w0": page()}, 11.0)
    assert host.watch.still(["w0", "w9"], 11.0 + OFFSET) == 11.0


def test_the_first_transaction_is_one_like_any_other() -> None:
    host = Host()
    pages = {"w0": page(Activity.VOTED, 0), "w1": page(Activity.VOTED, 0), "w2": page(transaction=0)}
    verdict = host.stand(pages, 120)
    assert verdict is not None and verdict.worker == "w2" and has(verdict.detail, training_evidence.BEHIND)
