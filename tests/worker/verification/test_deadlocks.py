"""Calls that wait for others in the first transaction after a recovery: two or three ranks as threads, with a real store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.message_texts import has, refused

from understudy.messages import newcomers
from understudy.worker.encoding.messages import AwaitedCall
from understudy.worker.errors import UnderstudyError
from understudy.worker.transport.rendezvous import Rendezvous, StoreServer
from understudy.worker.verification import deadlocks as held_calls
from understudy.worker.verification.deadlocks import FITS, LOOK, BlockedCalls

LIMIT = 60.0  # seconds


class Rank:
    def __init__(self, server: StoreServer, rank: int) -> None:
        self.rank = rank
        self.reported: list[str] = []
        self.stopped = threading.Event()
        self.server = server
        self.client = self.connect()
        self.calls = BlockedCalls(rank, (1,), self.connect, self.stopped.set, self.reported.append)

    def connect(self) -> Rendezvous:
        return Rendezvous(self.server.address, 3, lambda: False)

    def issue(self, place: str, others: list[int], bound: bool = False) -> None:
        """Announces what it issues at `place`, and waits until it may go on."""
        self.client.put(f"{place}/{self.rank}", b"")
        keys = {other: f"{place}/{other}" for other in others}
        with self.calls.hold(AwaitedCall(keys, "", bound, f"call {place}"), f"{place}/verdict {self.rank}") as due:
            if due:
                self.calls.read(self.client.get(f"{place}/verdict {self.rank}"))

    def take(self, place: str, other: int) -> None:
        """Waits for a message in the library below, which ends when that is stopped."""
        with self.calls.hold(AwaitedCall({other: place}, f"{place}/anybody", False, f"message {place}")):
            assert self.stopped.wait(LIMIT)


@pytest.fixture
def ranks() -> Iterator[list[Rank]]:
    server = StoreServer("127.0.0.1")
    made = [Rank(server, rank) for rank in range(3)]
    yield made
    for rank in made:
        rank.calls.end()


def failed(done: Future[None]) -> str:
    with pytest.raises(UnderstudyError) as caught:
        done.result(LIMIT)
    return str(caught.value)


def test_ranks_in_a_ring_go_on_unchecked_and_one_of_them_reports_it(ranks: list[Rank]) -> None:
    with ThreadPoolExecutor(3) as threads:
        calls = [
            threads.submit(ranks[0].issue, "a", [1]),
            threads.submit(ranks[1].issue, "b", [2]),
            threads.submit(ranks[2].issue, "c", [0]),
        ]
        for call in calls:
            call.result(LIMIT)
    assert all(rank.calls.over for rank in ranks)
    (text,) = [text for rank in ranks for text in rank.reported]
    assert has(text, newcomers.NOT_CHECKED) and has(text, newcomers.WAIT_FOR_EACH_OTHER)
    assert "rank 0 in call a" in text and "rank 2 in call c" in text
    ranks[0].issue("d", [1])  # and from then on no rank waits


def test_a_slow_rank_is_waited_for(ranks: list[Rank]) -> None:
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(ranks[0].issue, "a", [1, 2]), threads.submit(ranks[1].issue, "a", [0, 2])]
        looked = ranks[2].client
        looked.get("first/standing/0")  # it has looked
        with pytest.raises(TimeoutError):
            calls[0].result(3 * LOOK)
        for rank in (0, 1):
            looked.put(f"a/verdict {rank}", FITS)
        for call in calls:
            call.result(LIMIT)
    assert not any(rank.calls.over or rank.reported for rank in ranks)


def test_who_waits_for_a_rank_that_votes_hears_that(ranks: list[Rank]) -> None:
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(ranks[0].issue, "a", [1, 2]), threads.submit(ranks[2].issue, "a", [0, 1])]
        ranks[1].calls.vote(ranks[1].client)
        for call in calls:
            text = failed(call)
            assert has(text, newcomers.VOTED_WITHOUT, rank=0, call="call a", other=1)
            assert has(text, newcomers.DOES_NOT_FIT, newcomers="rank 1")
    assert not any(rank.reported for rank in ranks)


def test_a_message_that_a_voter_has_not_sent_stops_the_library_below(ranks: list[Rank]) -> None:
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(ranks[0].take, "m", 1)
        ranks[1].calls.vote(ranks[1].client)
        waits.result(LIMIT)
    with refused(UnderstudyError, newcomers.VOTED_WITHOUT, rank=0, call="message m", other=1):
        ranks[0].calls.refuse()


def test_a_wait_for_a_message_may_close_a_ring(ranks: list[Rank]) -> None:
    with ThreadPoolExecutor(2) as threads:
        waits = threads.submit(ranks[0].take, "m", 1)
        threads.submit(ranks[1].issue, "a", [0]).result(LIMIT)
        ranks[0].stopped.set()
        waits.result(LIMIT)
    assert not ranks[1].calls.mismatch


def test_nothing_is_reported_about_the_sender_to_a_rank_that_receives_from_any(ranks: list[Rank]) -> None:
    ranks[2].client.put("m/anybody", b"")
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(ranks[0].take, "m", 1)
        ranks[1].calls.vote(ranks[1].client)
        ranks[2].client.get("first/standing/0")
        assert not ranks[0].stopped.wait(3 * LOOK)
        ranks[0].stopped.set()
        waits.result(LIMIT)
    ranks[0].calls.refuse()


def test_a_ring_in_which_the_script_waits_anyway_is_a_difference(ranks: list[Rank], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_calls, "PATIENCE", LOOK)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(ranks[0].issue, "a", [1], True), threads.submit(ranks[1].issue, "b", [0], True)]
        for call in calls:
            assert has(failed(call), newcomers.WAIT_FOR_EACH_OTHER)


@pytest.mark.parametrize("bound", [True, False])
def test_patience_ends_where_the_script_need_not_wait(ranks: list[Rank], monkeypatch: pytest.MonkeyPatch, bound: bool) -> None:
    monkeypatch.setattr(held_calls, "PATIENCE", LOOK)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(ranks[0].issue, "a", [2], bound)
        if not bound:
            call.result(LIMIT)
            assert has(ranks[0].reported[0], newcomers.WAITED, rank=0)
            return
        with pytest.raises(TimeoutError):
            call.result(5 * LOOK)
        ranks[2].client.put("a/verdict 0", FITS)
        call.result(LIMIT)
    assert not ranks[0].calls.over


def test_the_wait_for_a_newcomer_has_a_patience_of_its_own(ranks: list[Rank], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_calls, "PATIENCE_WITH_NEWCOMERS", LOOK)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(ranks[0].issue, "a", [1]).result(LIMIT)
    assert has(ranks[0].reported[0], newcomers.WAITED, rank=0)
