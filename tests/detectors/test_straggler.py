"""The straggler: which rank is named, and for which phase; and that none is where all are alike, by chance, or when the job does
something else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.message_texts import arguments_of, has

from understudy.common.page_view import Activity, PageView
from understudy.detectors.base import Evidence, JobView, Severity, Subject
from understudy.detectors.straggler import Straggler
from understudy.messages import training_evidence

OFFSET = 5000.0  # unix time minus the host's monotonic clock
EVERY = 0.2  # seconds between two looks of a worker
SLOW = 200  # seconds: ever so many windows


@dataclass
class Work:
    """Seconds of a step that a rank spends by itself, in each activity."""

    running: float
    committing: float = 0.0
    idle: float = 0.0

    @property
    def whole(self) -> float:
        return self.running + self.committing + self.idle


@dataclass
class Ranks:
    """Ranks that train together: each step takes as long as the slowest of them does, and `network` seconds more."""

    work: list[Work]
    network: float = 0.02
    roles: Sequence[int] = ()
    seed: int = 0
    generation: int = 0
    pages: dict[str, PageView] = field(default_factory=dict)
    now: float = 1.0
    steps: float = 0.0

    def __post_init__(self) -> None:
        self.straggler = Straggler()
        self.chance = random.Random(self.seed)
        self.roles = self.roles or [0] * len(self.work)
        self.pages = {f"w{rank}": PageView(1, 0.0, Activity.RUNNING, 5, 5, 0.0, 9, 0.3, -1, 1) for rank in range(len(self.work))}

    def second(self) -> list[Evidence]:
        """Trains for a second, and looks."""
        self.now += 1.0
        step = max(one.whole for one in self.work) + self.network
        self.steps += 1.0 / step
        for rank, one in enumerate(self.work):
            page = self.pages[f"w{rank}"]
            own = [page.own_running, page.own_committing, page.own_idle]
            for _ in range(round(1.0 / EVERY)):
                place, spent = self.chance.uniform(0.0, step), 0.0
                for number, part in enumerate((one.running, one.committing, one.idle)):
                    own[number] += int(1000 * EVERY) * (spent <= place < spent + part)
                    spent += part
            self.pages[f"w{rank}"] = page._replace(
                step=int(self.steps), looks=page.looks + round(1.0 / EVERY), own_running=own[0], own_committing=own[1], own_idle=own[2]
            )
        return self.look()

    def look(self, **changed: object) -> list[Evidence]:
        self.straggler.observe(self.pages, self.now)
        ranks = {rank: f"w{rank}" for rank in range(len(self.work))}
        view = JobView(self.now + OFFSET, ranks, ["w9"], roles=self.roles, generation=self.generation)
        return self.straggler.look(replace(view, **changed))  # type: ignore[arg-type]

    def train(self, seconds: int) -> list[Evidence]:
        """All that was found meanwhile."""
        found: list[Evidence] = []
        for _ in range(seconds):
            found += self.second()
        return found

    def until_found(self, seconds: int = SLOW) -> list[Evidence]:
        for _ in range(seconds):
            if found := self.second():
                return found
        return []


def ranks(*running: float, **more: object) -> Ranks:
    return Ranks([Work(seconds) for seconds in running], **more)  # type: ignore[arg-type]


def test_a_rank_that_computes_longer_than_its_replicas_is_named() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    (found,) = job.until_found()
    assert (found.detector, found.subject, found.name, found.severity) == ("straggler", Subject.WORKER, "w3", Severity.SUSPECT)
    assert (found.kind, found.happened, found.until) == ("straggler", job.now + OFFSET, 0.0)
    assert has(found.detail, training_evidence.COMPUTES_LONGER, rank=3, others=3, activity="RUNNING")
    figures = arguments_of(found.detail)
    assert figures["own"] == pytest.approx(300, abs=30) and figures["usual"] == pytest.approx(100, abs=30), found.detail
    assert int(str(figures["steps"])) >= 60
    assert job.now >= 31, "three windows, of ten seconds each"


def test_it_is_named_as_long_as_it_is_slow_and_proven_again() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    (first,) = job.until_found()
    found = job.train(40)
    assert len(found) == 40 and len({one.happened for one in found}) == 2, "the same, until it is proven again"
    assert found[0] == first
    job.work[3] = Work(0.1)
    job.train(20)
    assert job.train(40) == [], "a window in which it is not slow"


def test_a_rank_that_is_slow_in_two_windows_is_not_named() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    found = job.train(21)
    job.work[3] = Work(0.1)
    assert found + job.train(60) == []


def test_a_window_in_which_it_is_little_slower_starts_a_new_streak() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.8)
    for _ in range(5):
        job.work[3] = Work(0.8)
        assert job.train(21) == []
        job.work[3] = Work(0.12)
        assert job.train(21) == []


@pytest.mark.parametrize(
    ("running", "named"),
    [((0.3, 0.1, 0.3, 0.1), {"w0", "w2"}), ((0.3, 0.3, 0.3, 0.3), set()), ((0.1, 0.3), {"w1"}), ((0.02, 0.6, 0.9), {"w2"})],
)
def test_all_that_are_slower_than_most_of_their_replicas_are_named(running: tuple[float, ...], named: set[str]) -> None:
    assert {one.name for one in ranks(*running).train(SLOW)} == named


def test_a_rank_is_compared_with_ranks_of_its_role_only() -> None:
    assert ranks(0.1, 0.3, 0.1, 0.3, roles=(0, 1, 0, 1)).train(SLOW) == []
    (found,) = ranks(0.1, 0.1, 0.1, 0.3, roles=(0, 1, 0, 1)).until_found()
    assert found.name == "w3" and has(found.detail, training_evidence.COMPUTES_LONGER, rank=3, others=1)
    assert ranks(0.3, 0.1, roles=(0, 1)).train(SLOW) == [], "alone in its role"


def test_less_than_the_margin_or_the_floors_is_nothing() -> None:
    assert ranks(0.1, 0.1, 0.1, 0.14).train(SLOW) == []
    assert ranks(0.01, 0.01, 0.01, 0.06, network=0.6).train(5 * SLOW) == [], "a step would hardly be shorter"
    assert ranks(0.001, 0.001, 0.001, 0.004, network=0.001).train(SLOW) == [], "so short that anything may be the cause"


def test_what_chance_may_explain_is_nothing_yet() -> None:
    job = ranks(0.05, 0.05, 0.05, 0.09, network=0.03)
    found = job.until_found(600)
    assert found and job.now > 61, "more windows than three were needed"
    assert int(str(arguments_of(found[0].detail)["steps"])) > 300


def test_a_rank_s_own_work_after_the_vote_or_between_steps_is_a_note() -> None:
    for own, kind in ((Work(0.1, committing=0.2), "busy-behind-votes"), (Work(0.1, idle=0.2), "busy-between-steps")):
        (found,) = Ranks([own, Work(0.1), Work(0.1)]).until_found()
        assert (found.name, found.severity, found.kind) == ("w0", Severity.NOTE, kind)


def test_a_suspected_rank_is_not_noted_as_well() -> None:
    found = Ranks([Work(0.1, 0.1, 0.1), Work(0.1, 0.1, 0.1), Work(0.3, 0.3, 0.3)]).train(SLOW)
    assert {one.kind for one in found} == {"straggler"}


def test_a_checkpoint_now_and_then_is_nothing() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.1)
    for _ in range(8):
        job.work[0] = Work(0.1, idle=2.0)
        assert job.train(5) == []
        job.work[0] = Work(0.1)
        assert job.train(20) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"steady": False},
        {"generation": 1},
        {"ranks": {0: "w0", 1: "w1", 2: "w2", 3: "w9"}},
        {"roles": ()},
        {"roles": (0, 0, 1, 1)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_was_seen_before_a_change_does_not_count(changed: dict[str, object]) -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    job.pages["w9"] = job.pages["w3"]
    for _ in range(10):
        assert job.train(25) == []
        assert job.look(**changed) == []
    (found,) = job.until_found()
    assert job.look(**changed) == [], "nor is the finding reported any more"
    assert found.name == "w3"


def test_a_rank_that_does_not_train_or_report_starts_a_new_window() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    for _ in range(3):
        for changed in ({"activity": Activity.RECOVERING}, {"looks": 0}):
            assert job.train(25) == []
            known = job.pages["w1"]
            job.pages["w1"] = known._replace(**changed)
            assert job.look() == []
            job.pages["w1"] = known
    assert [one.name for one in job.until_found()] == ["w3"]


def test_a_rank_that_could_not_report_for_a_moment_starts_a_new_window() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    assert {one.name for one in job.train(SLOW)} == {"w3"}
    job.pages["w1"] = job.pages["w1"]._replace(looks=1)
    assert job.train(30)[-1:] == []
    assert [one.name for one in job.until_found(30)] == ["w3"]


def test_where_waits_are_not_known_there_is_no_verdict() -> None:
    job = ranks(0.1, 0.1, 0.1, 0.3)
    for _ in range(SLOW):
        job.pages["w0"] = job.pages["w0"]._replace(looks=-10)
        assert job.second() == []


def test_impossible_pages_do_no_harm() -> None:
    odd = (-(1 << 61), 1 << 61, 0)
    job, chance = ranks(0.1, 0.1), random.Random(3)
    for _ in range(3000):
        for page, name in [(page, name) for name, page in job.pages.items()]:
            numbers = [chance.choice((value, value, *odd)) for value in (page.step, page.looks, page.own_running)]
            job.pages[name] = page._replace(step=numbers[0], looks=numbers[1], own_running=numbers[2])
        job.now += chance.choice((0.0, 1.0, 20.0))
        job.look()


def test_more_time_of_its_own_than_there_is_does_no_harm() -> None:
    job = ranks(0.1, 0.1, 0.1)
    for _ in range(100):
        job.pages["w0"] = job.pages["w0"]._replace(own_running=job.pages["w0"].own_running + (1 << 40))
        job.second()


def test_workers_that_are_gone_are_forgotten() -> None:
    job = ranks(0.1, 0.1)
    job.straggler.observe({"w7": job.pages["w0"]}, 1.0)
    job.look()
    assert job.straggler._newest.keys() == {"w0", "w1"}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.9, 1.1), min_size=2, max_size=6), st.floats(0.01, 1.0), st.floats(0.05, 2.0), st.integers(0, 1 << 30))
def test_no_rank_is_named_in_an_undisturbed_job(factors: list[float], seconds: float, waiting: float, seed: int) -> None:
    job = ranks(*(seconds * factor for factor in factors), network=seconds * waiting, seed=seed)
    assert job.train(120) == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.95, 1.05), min_size=3, max_size=6),
    st.floats(2.5, 8.0),
    st.floats(0.02, 0.3),
    st.floats(0.0, 0.5),
    st.integers(0, 1 << 30),
)
def test_only_the_rank_that_is_slow_indeed_is_named(factors: list[float], factor: float, seconds: float, waiting: float, seed: int) -> None:
    slow = random.Random(seed).randrange(len(factors))
    factors[slow] = factor
    job = ranks(*(seconds * one for one in factors), network=seconds * waiting, seed=seed)
    found = job.train(400)
    assert {one.name for one in found} == {f"w{slow}"}
