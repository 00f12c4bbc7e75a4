"""Connections among the members of a generation, with real sockets: every member is a thread of this process."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tests.integration.processes import wait_until
from tests.message_texts import refused

from understudy.core.buddies import Place
from understudy.messages import worker_processes
from understudy.worker.encoding.messages import PeerAddress, unpack
from understudy.worker.errors import BadMessage, GenerationAborted, PeerLost
from understudy.worker.transport import peers
from understudy.worker.transport.channel import HAND_OVER, RESULT, Channel
from understudy.worker.transport.peers import Peers, frame, framed, read_frame
from understudy.worker.transport.rendezvous import Rendezvous, StoreServer
from understudy.worker.transport.strangers import MOST

LIMIT = 60.0  # seconds


class Members:
    """`size` members of one generation."""

    def __init__(self, size: int) -> None:
        self.over = False
        self._server = StoreServer("127.0.0.1")
        self.meetings = [Rendezvous(self._server.address, 0, lambda: self.over) for _ in range(size)]
        self.peers = [Peers(meeting, member) for member, meeting in enumerate(self.meetings)]
        self._threads = ThreadPoolExecutor(size)

    def all(self, work: Callable[[int], Any]) -> list[Any]:
        return [future.result(LIMIT) for future in [self._threads.submit(work, member) for member in range(len(self.peers))]]

    def start(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._threads.submit(work, *arguments)

    def close(self) -> None:
        self.over = True
        for one in self.peers:
            one.abort()
        self._threads.shutdown()
        for one in self.peers:
            one.close()


@pytest.fixture(params=["on one node", "on several nodes"])
def members(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Members]]:
    made: list[Members] = []
    if request.param == "on several nodes":
        monkeypatch.setattr(peers, "_connect_locally", lambda local: None)

    def make(size: int) -> Members:
        made.append(Members(size))
        return made[-1]

    yield make
    for one in made:
        one.close()


def data_of(member: int, size: int) -> bytes:
    return bytes((member * 7 + i) % 251 for i in range(997)) * (size // 997) + bytes([member])


def test_everybody_sends_much_to_everybody_at_once(members: Callable[[int], Members]) -> None:
    group = members(3)

    def work(member: int) -> dict[int, bytes]:
        others = [other for other in range(3) if other != member]
        found: dict[int, bytes] = {}
        for size in (20_000_000, 0, 5):  # more than fits into sockets, then on the same connections
            found.clear()
            data = data_of(member, size)
            group.peers[member].exchange({o: frame(data) for o in others}, {o: read_frame(found, o) for o in others})
            assert found == {other: data_of(other, size) for other in others}
        return found

    group.all(work)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 9, 21])
def test_votes_copies_and_comparisons(members: Callable[[int], Members], size: int) -> None:
    group = members(size)

    def work(rank: int) -> tuple[dict[int, bytes], tuple[list[int], list[int]], list[bytes]]:
        channel = Channel(group.peers[rank], rank, [Place("rack", "node")] * size)
        voted = channel.vote([rank, -rank, 7], [1 << rank, 0])
        return channel.hand_over(data_of(rank, 9000)), voted, channel.gather(data_of(rank, 2000))

    for rank, (copies, agreed, gathered) in enumerate(group.all(work)):
        assert copies == {(rank - step) % size: data_of((rank - step) % size, 9000) for step in (1, 2) if step < size}
        assert agreed == ([size - 1, 0, 7], [(1 << size) - 1, 0])
        assert gathered == [data_of(other, 2000) for other in range(size)]


def test_a_vote_of_another_size_is_refused(members: Callable[[int], Members]) -> None:
    group = members(2)

    def work(rank: int) -> bool:
        with refused(BadMessage, worker_processes.OTHER_VOTE, size=8 * (2 - rank), wanted=8 * (1 + rank)):
            Channel(group.peers[rank], rank, [Place("rack", "node")] * 2).vote([0], [1] * rank)
        return True

    assert group.all(work) == [True, True]


def test_where_no_unix_socket_can_be_had_it_goes_without(members: Callable[[int], Members], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> socket.socket:
        raise PermissionError("not here")

    monkeypatch.setattr(peers, "_listen_locally", refused)
    group = members(3)
    for agreed in group.all(lambda rank: Channel(group.peers[rank], rank, [Place("rack", "node")] * 3).agree([rank])):
        assert agreed == [2]


def test_no_rank_passes_an_agreement_that_one_has_not_joined(members: Callable[[int], Members]) -> None:
    group = members(5)
    joined = threading.Event()

    def work(rank: int) -> bool:
        channel = Channel(group.peers[rank], rank, [Place("rack", "node")] * 5)
        if rank == 3:
            assert not any(other.done() for other in others)
            joined.set()
        channel.agree([rank])
        return joined.is_set()

    others = [group.start(work, rank) for rank in (0, 1, 2, 4)]
    assert group.start(work, 3).result(LIMIT)
    assert all(other.result(LIMIT) for other in others)


def test_no_rank_passes_a_receipt_before_its_buddies_have_kept_its_copy(members: Callable[[int], Members]) -> None:
    group = members(2)
    kept = threading.Event()

    def work(rank: int) -> bool:
        channel = Channel(group.peers[rank], rank, [Place("rack", "node")] * 2)
        channel.hand_over(b"")
        if rank == 0:
            assert not other.done()
            kept.set()
        channel.receipt()
        return kept.is_set()

    other = group.start(work, 1)
    assert group.start(work, 0).result(LIMIT) and other.result(LIMIT)


def test_who_waits_can_be_seen(members: Callable[[int], Members]) -> None:
    group = members(2)
    channels = [Channel(group.peers[rank], rank, [Place("rack", "node")] * 2) for rank in range(2)]
    first = group.start(channels[0].agree, [0])
    wait_until(lambda: group.peers[0].waiting, "it waits for the other one", LIMIT)
    assert not group.peers[1].waiting and not first.done()
    channels[1].agree([0])
    first.result(LIMIT)
    assert not any(one.waiting for one in group.peers)


def test_an_abort_ends_an_exchange(members: Callable[[int], Members]) -> None:
    group = members(2)
    entered = threading.Event()

    def room() -> Iterator[memoryview]:
        entered.set()
        yield memoryview(bytearray(1))

    waiting = group.start(group.peers[0].exchange, {}, {1: room()})
    assert entered.wait(LIMIT)
    group.over = True
    group.peers[0].abort()
    with pytest.raises(GenerationAborted):
        waiting.result(LIMIT)
    with pytest.raises(GenerationAborted):
        group.peers[0].exchange({}, {})  # nor does another one begin


def test_a_peer_that_ends_is_named(members: Callable[[int], Members]) -> None:
    group = members(2)

    def victim() -> None:
        group.peers[1].exchange({0: frame(b"first")}, {})
        group.peers[1].close()

    found: dict[int, bytes] = {}

    def survivor() -> None:
        group.peers[0].exchange({}, {1: read_frame(found, 1)})
        group.peers[0].exchange({}, {1: read_frame(found, 1)})

    waiting = group.start(survivor)
    group.start(victim).result(LIMIT)
    with refused(PeerLost, worker_processes.CONNECTION_LOST, member=1):
        waiting.result(LIMIT)
    assert found == {1: b"first"}
    with refused(PeerLost, worker_processes.BROKE_BEFORE):  # what comes next may be the middle of a message
        group.peers[0].exchange({1: frame(bytes(1000))}, {1: read_frame(found, 1)})


def test_who_does_not_know_the_token_is_not_let_in(members: Callable[[int], Members]) -> None:
    group = members(2)
    there = unpack(PeerAddress, group.meetings[0].get("peer/0"))
    address = there.host, there.port
    strangers = [socket.create_connection(address), socket.socket(socket.AF_UNIX), socket.create_connection(address)]
    strangers[1].connect(there.socket)
    strangers[0].sendall(bytes(16) + (1).to_bytes(4, "little") + b"forged")
    strangers[1].sendall(there.token[:5])  # and nothing more
    strangers[2].sendall(b"GET / HTTP/1.1\r\n\r\n" * 3)
    found: dict[int, bytes] = {}
    waiting = group.start(group.peers[0].exchange, {}, {1: read_frame(found, 1)})
    for closed in (strangers[0], strangers[2]):
        closed.settimeout(LIMIT)
        with suppress(ConnectionResetError):
            assert closed.recv(1) == b""
    group.start(group.peers[1].exchange, {0: frame(b"true")}, {}).result(LIMIT)
    waiting.result(LIMIT)
    assert found == {1: b"true"}
    for stranger in strangers:
        stranger.close()


def test_strangers_by_the_thousand_keep_no_member_out(members: Callable[[int], Members]) -> None:
    """Silent connections are closed again, the oldest first, while members still connect."""
    group = members(3)
    address = unpack(PeerAddress, group.meetings[0].get("peer/0"))
    knocking: list[socket.socket] = []
    try:
        for _ in range(4 * MOST):
            knocking.append(socket.create_connection((address.host, address.port), LIMIT))
        found: dict[int, bytes] = {}
        hearing = group.start(group.peers[0].exchange, {}, {1: read_frame(found, 1), 2: read_frame(found, 2)})
        group.start(group.peers[1].exchange, {0: frame(b"the first")}, {}).result(LIMIT)
        wait_until(lambda: not hearing.done() and 1 in found, "the first one is heard", LIMIT)
        assert len(list(group.peers[0]._strangers)) <= MOST
        group.start(group.peers[2].exchange, {0: frame(b"the second")}, {}).result(LIMIT)
        hearing.result(LIMIT)
        assert found == {1: b"the first", 2: b"the second"}
        knocking[0].settimeout(LIMIT)
        assert knocking[0].recv(1) == b"", "the oldest is closed"
    finally:
        for one in knocking:
            one.close()


def test_without_a_free_descriptor_members_are_waited_for(members: Callable[[int], Members], monkeypatch: pytest.MonkeyPatch) -> None:
    group = members(2)
    full, refused_once = threading.Event(), threading.Event()
    full.set()
    accept = socket.socket.accept

    def accepts(listener: socket.socket) -> Any:
        if full.is_set():
            refused_once.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepts)
    found: dict[int, bytes] = {}
    hearing = group.start(group.peers[0].exchange, {}, {1: read_frame(found, 1)})
    telling = group.start(group.peers[1].exchange, {0: frame(b"a vote")}, {})
    assert refused_once.wait(LIMIT)
    full.clear()
    telling.result(LIMIT), hearing.result(LIMIT)
    assert found == {1: b"a vote"}


def test_a_size_that_no_sender_would_use_is_refused(members: Callable[[int], Members]) -> None:
    """Not even from a member, which has shown the right token."""
    group, found = members(2), dict[int, bytes]()
    waiting = group.start(group.peers[0].exchange, {}, {1: read_frame(found, 1)})
    group.start(group.peers[1].exchange, {0: iter([memoryview((1 << 60).to_bytes(8, "little"))])}, {}).result(LIMIT)
    with refused(BadMessage, worker_processes.TOO_LARGE, member=1):
        waiting.result(LIMIT)


STEP = (7).to_bytes(8, "little")  # the transaction that a trail begins with


def channels_of(group: Members, size: int = 2) -> list[Channel]:
    """That have handed something over, so that they are connected."""
    made = [Channel(group.peers[rank], rank, [Place("rack", "node")] * size) for rank in range(size)]
    group.all(lambda rank: made[rank].hand_over(b"first"))
    return made


def test_the_records_of_a_rank_outlive_it(members: Callable[[int], Members]) -> None:
    group = members(2)
    lost, buddy = channels_of(group)
    assert lost.tell(STEP + b"one") and lost.tell(STEP + b" two")
    group.peers[0].close()
    assert buddy.take_trails() == {0: STEP + b"one two"}


def test_it_is_read_by_a_buddy_that_waits_for_a_vote_which_never_comes(members: Callable[[int], Members]) -> None:
    group = members(2)
    lost, buddy = channels_of(group)
    waiting = group.start(buddy.hand_over, b"second")
    wait_until(lambda: group.peers[1].waiting, "it waits for the other one", LIMIT)
    lost.tell(STEP + b"one")
    group.peers[0]._out[1].connection.send((20).to_bytes(8, "little") + b"t" + STEP)  # it dies in the middle of the next part
    group.peers[0].close()
    with pytest.raises(PeerLost):
        waiting.result(LIMIT)
    assert buddy.take_trails() == {0: STEP + b"one"}


def test_what_follows_the_message_that_an_ended_exchange_waited_for_is_read_too(members: Callable[[int], Members]) -> None:
    """As of a rank that has passed the vote, has begun its next transaction, and is lost, while another one is still in that vote."""
    group = members(2)
    _, buddy = channels_of(group)
    waiting = group.start(buddy.hand_over, b"second")
    wait_until(lambda: group.peers[1].waiting, "it waits for the other one", LIMIT)
    group.over = True
    group.peers[1].abort()
    with pytest.raises(GenerationAborted):
        waiting.result(LIMIT)
    group.peers[0]._out[1].connection.sendall(bytes(framed(b"second", HAND_OVER)) + bytes(framed(b"result", RESULT)))
    buddy.take_trails()
    assert buddy.results == {0: b"result"}


def test_reports_disturb_nothing_and_the_next_step_starts_fresh(members: Callable[[int], Members]) -> None:
    group = members(3)
    channels = channels_of(group, 3)

    def step(rank: int, number: int) -> tuple[dict[int, bytes], list[int]]:
        channels[rank].tell(number.to_bytes(8, "little") + bytes([rank]))
        return channels[rank].hand_over(data_of(rank, 9000)), channels[rank].agree([rank])

    for number in (3, 4):
        for rank, (copies, agreed) in enumerate(group.all(lambda rank, number=number: step(rank, number))):  # type: ignore[misc]
            assert copies == {other: data_of(other, 9000) for other in range(3) if other != rank} and agreed == [2]
    assert channels[0].trails == {rank: (4).to_bytes(8, "little") + bytes([rank]) for rank in (1, 2)}


def test_what_goes_with_the_next_hand_over_is_there_before_it(members: Callable[[int], Members]) -> None:
    group = members(2)
    lost, buddy = channels_of(group)
    lost.tell(STEP + b"one")
    lost.tell_with_next(STEP + b" two")
    assert group.all(lambda rank: (lost, buddy)[rank].hand_over(b"copy")) == [{1: b"copy"}, {0: b"copy"}]
    assert buddy.trails == {0: STEP + b"one two"}
    group.all(lambda rank: (lost, buddy)[rank].hand_over(b"copy"))
    assert buddy.trails == {0: STEP + b"one two"}, "and not once more"


def test_messages_beyond_a_full_connection_are_dropped_and_break_no_other(members: Callable[[int], Members]) -> None:
    group = members(2)
    lost, buddy = channels_of(group)
    parts = 0
    while lost.tell(STEP + bytes([parts % 251]) * 4096):
        parts += 1
    assert not lost.tell(STEP + b"more")
    handed = group.start(buddy.hand_over, b"copy of 1")
    assert lost.hand_over(b"copy of 0") == {1: b"copy of 1"} and handed.result(LIMIT) == {0: b"copy of 0"}
    trail = buddy.trails[0][8:]
    assert len(trail) % 4096 == 0 and trail == b"".join(bytes([part % 251]) * 4096 for part in range(len(trail) // 4096))
    assert lost.tell((8).to_bytes(8, "little") + b"one")
    group.peers[0].close()
    assert buddy.take_trails()[0][8:] == b"one"
