"""A member that has forgotten entries of its disk is detected by those that know, and no other is accused, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.orchestrator.quorum.test_raft import Cluster

from understudy.orchestrator.quorum.memory import NOTHING, Acknowledged, Known, Memory
from understudy.orchestrator.quorum.raft import (
    ELECTION,
    SPREAD,
    AppendEntries,
    Contradicted,
    Entry,
    Raft,
    RaftMessage,
    RequestVote,
    Step,
    Vote,
)
from understudy.orchestrator.quorum.storage import Storage


class Remembering(Raft):
    """With a memory, which is on the disk as of its last write."""

    saved: dict[int, Acknowledged]
    memory: Memory

    def receive(self, sender: int, message: RaftMessage, now: float) -> None:
        super().receive(sender, message, now)
        self.memory.hear(sender, message, self)

    def ready(self) -> Step:
        self.memory.look(self)
        step = super().ready()
        if step.writes:
            rows = self.memory.to_write()
            self.saved |= rows
            self.memory.written(rows)
        return step


class Cluster3(Cluster):
    def __post_init__(self) -> None:
        self.saved: list[dict[int, Acknowledged]] = [{} for _ in range(self.size)]
        super().__post_init__()

    def start(self, number: int) -> None:
        hard_state, log = self.disks[number]
        member = Remembering(number, self.size, self.time_of(number), self.chance.random, hard_state, log)
        member.saved, member.memory = self.saved[number], Memory(number, self.size, self.saved[number])
        self.members[number] = member

    def of(self, number: int) -> Remembering:
        found = self.members[number]
        assert isinstance(found, Remembering)
        return found

    def up(self) -> list[Remembering]:
        return [self.of(number) for number in range(self.size) if self.members[number] is not None]

    def share(self) -> None:
        """Send the leaders' knowledge of all members to those that hear them."""
        for leader in self.up():
            for other in self.up():
                if leader.leads() and other is not leader and not self.cut_off & {leader.number, other.number}:
                    other.memory.learn(leader.memory.known())

    def accused(self, by: int | None = None) -> set[int]:
        """Who would find, from the messages of the others (or this one), that it has forgotten something."""
        found = set()
        for one in self.up():
            for other in self.up() if by is None else [self.of(by)]:
                if one is not other and other.memory.of(one.number).lacking(one.term, one.log):
                    found.add(one.number)
        return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([3, 5]))
def test_no_member_with_its_own_disk_is_accused(seed: int, size: int) -> None:
    """Crashes, losses, partitions, messages that come late and twice: a bound that is out of date is a bound."""
    chance = random.Random(seed)
    cluster = Cluster3(size, chance)
    for number in range(25):
        cluster.loss = chance.choice((0.0, 0.0, 0.3))
        victim = chance.randrange(size)
        match chance.randrange(6):
            case 0:
                cluster.members[victim] = None
            case 1:
                cluster.cut_off ^= {victim}
            case 2:
                for down, member in enumerate(cluster.members):
                    if member is None:
                        cluster.start(down)
            case 3:
                cluster.start(victim)
            case 4:
                cluster.share()
        cluster.propose(f"entry {number}")
        cluster.run(chance.choice((0.05, 0.3, 2.0, 5.0)), late=chance.choice((0.01, 0.3, 3.0)))
        assert not cluster.accused()


def three(seed: int = 1) -> Cluster3:
    """Three members, of which 0 leads."""
    cluster = Cluster3(3, random.Random(seed))
    cluster.run(2.0)
    assert cluster.leader().number == 0
    return cluster


def words(cluster: Cluster3, texts: Iterable[str]) -> None:
    for text in texts:
        cluster.propose(text)
        cluster.run(1.0)


def restored(cluster: Cluster3, number: int, then: Callable[[], None]) -> None:
    """Its disk, with all that is on it, is put back to before `then`."""
    (hard_state, log), saved = cluster.disks[number], dict(cluster.saved[number])
    old = hard_state, list(log)
    then()
    cluster.disks[number], cluster.saved[number] = old, saved


def test_a_restored_member_is_detected_by_the_leader_and_by_members_that_it_informed() -> None:
    cluster = three()
    words(cluster, ["a", "b"])
    restored(cluster, 1, lambda: words(cluster, ["c", "d", "e", "f", "g"]))
    cluster.share()
    cluster.start(1)
    assert cluster.accused(by=0) == {1} and cluster.accused(by=2) == {1}


def test_it_is_found_after_all_were_started_again() -> None:
    """They know what they knew when they last wrote something: here, before the last entry."""
    cluster = three()
    words(cluster, ["a", "b"])

    def five_words() -> None:
        words(cluster, ["c", "d", "e"])
        cluster.share()
        words(cluster, ["f", "g"])

    restored(cluster, 1, five_words)
    for number in range(3):
        cluster.start(number)
    assert cluster.accused(by=0) == {1} and cluster.accused(by=2) == {1}


def test_a_leader_that_was_restored_is_found() -> None:
    cluster = three()
    words(cluster, ["a", "b"])
    restored(cluster, 0, lambda: words(cluster, ["c", "d", "e"]))
    cluster.start(0)
    assert cluster.accused(by=1) == {0} and cluster.accused(by=2) == {0}


def test_a_vote_that_was_forgotten_is_found() -> None:
    cluster = Cluster3(3, random.Random(1))
    restored(cluster, 1, lambda: cluster.run(2.0))
    cluster.start(1)
    assert cluster.accused(by=0) == {1}


def test_what_is_committed_is_missed_in_any_later_term() -> None:
    """The only one that knows better was away when a leader was elected with the help of one that had forgotten."""
    cluster = three()
    words(cluster, ["a", "b"])
    cluster.members[2] = None

    def five_words() -> None:
        words(cluster, ["c", "d", "e", "f", "g"])

    restored(cluster, 1, five_words)
    knows = cluster.of(0)
    cluster.committed = cluster.committed[:3]  # an empty one and two words: the rest is lost now, and no member there knows it
    cluster.members[0] = None
    cluster.start(1)
    cluster.start(2)
    assert not cluster.accused()
    cluster.run(4 * (ELECTION + SPREAD))
    words(cluster, ["h"])
    led = cluster.leader()
    assert led.term > knows.term
    assert knows.memory.of(1).lacking(cluster.of(1).term, cluster.of(1).log), "one that comes back and knows it says so"
    assert not knows.memory.of(2).lacking(cluster.of(2).term, cluster.of(2).log), "that one never had it"
    cluster.start(0)
    back = cluster.of(0)
    back.floor = back.memory.of(0).committed
    assert back.floor > 3
    there = AppendEntries(led.term, 3, led.log[2].term, tuple(led.log[3:]), led.committed, 0.0)
    with pytest.raises(Contradicted):
        back.receive(led.number, there, cluster.time_of(0))


def test_one_that_has_forgotten_does_not_count_for_what_is_not_committed_yet() -> None:
    leader = Raft(0, 5, 0.0, lambda: 0.0, (3, 0), [Entry(3, "a")])
    leader._lead(0.0)
    leader._match[1] = len(leader.log)
    assert leader.matched() == {1: 2}
    leader.discount(1)
    leader._match[2] = len(leader.log)
    leader._commit()
    assert leader.committed == 0 and leader.matched() == {2: 2}


@pytest.mark.parametrize("message", [RequestVote(9, 0, 0, pre_vote=True), Vote(9, True, pre_vote=True)])
def test_a_term_that_is_only_asked_about_is_no_term(message: RaftMessage) -> None:
    member = Raft(0, 3, 0.0, lambda: 0.0)
    memory = Memory(0, 3, {})
    memory.hear(1, message, member)
    assert memory.of(1) == NOTHING


def test_a_member_ignores_others_about_itself_and_lists_of_another_size() -> None:
    memory = Memory(0, 3, {})
    more = Acknowledged(5, 7, 5, 6, 5)
    memory.learn(Known((more, more)))
    assert memory.known() == Known((NOTHING, NOTHING, NOTHING))
    memory.learn(Known((more, more, NOTHING)))
    assert memory.known() == Known((NOTHING, more, NOTHING))


def test_it_is_on_the_disk_with_what_is_written(tmp_path: Path) -> None:
    rows = {0: Acknowledged(committed=1, committed_term=1), 2: Acknowledged(4, 7, 3, 6, 3)}
    step = Step((4, 1), 0, (Entry(4, ""),), ())
    storage = Storage(tmp_path / "quorum.db")
    storage.write(step, {2: Acknowledged(1, 1, 1)})
    storage.write(step, rows)
    storage.forget("why")
    storage.close()
    again = Storage(tmp_path / "quorum.db")
    assert (again.acknowledged, again.forgot, again.hard_state) == (rows, "why", (4, 1))
    again.close()
