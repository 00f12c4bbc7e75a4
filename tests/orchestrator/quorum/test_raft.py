"""Raft with time: hosts that crash, lose messages, hear them late and twice, and are cut off, as a seed decides."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.orchestrator.quorum import raft
from understudy.orchestrator.quorum.raft import (
    ELECTION,
    HEARTBEAT,
    LEASE,
    SPREAD,
    AppendEntries,
    AppendReply,
    Entry,
    Raft,
    RaftMessage,
    RequestVote,
    Role,
    Step,
    Vote,
)


@dataclass
class Cluster:
    """What is written is on the disk at once. The clocks of the members run at the same rate, and show different times."""

    size: int
    chance: random.Random
    now: float = 0.0
    disks: list[tuple[tuple[int, int], list[Entry]]] = field(default_factory=list)
    members: list[Raft | None] = field(default_factory=list)  # None: down
    network: list[tuple[float, int, int, RaftMessage]] = field(default_factory=list)  # when it comes, to, from, what
    cut_off: set[int] = field(default_factory=set)
    leaders: dict[int, int] = field(default_factory=dict)  # of each term
    committed: list[Entry] = field(default_factory=list)
    loss: float = 0.0

    def __post_init__(self) -> None:
        self.disks = [((0, -1), []) for _ in range(self.size)]
        self.members = [None] * self.size
        self.clocks = [self.chance.uniform(0, 1000) for _ in range(self.size)]
        for number in range(self.size):
            self.start(number)

    def start(self, number: int) -> None:
        hard_state, log = self.disks[number]
        self.members[number] = Raft(number, self.size, self.time_of(number), self.chance.random, hard_state, log)

    def time_of(self, number: int) -> float:
        return self.now + self.clocks[number]

    def run(self, seconds: float, late: float = 0.05) -> None:
        """Time passes; a message takes up to `late` seconds."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.05
            due = [each for each in self.network if each[0] <= self.now]
            self.network = [each for each in self.network if each[0] > self.now]
            self.chance.shuffle(due)
            for _, to, sender, message in due:
                member = self.members[to]
                if member is not None and not self.cut_off & {to, sender}:
                    member.receive(sender, message, self.time_of(to))
                    self.settle(to, late)
            for number, member in enumerate(self.members):
                if member is not None:
                    member.tick(self.time_of(number))
                    self.settle(number, late)

    def propose(self, text: str) -> None:
        for number, member in enumerate(self.members):
            if member is not None and member.leads():
                member.propose([text], self.time_of(number))
                self.settle(number, 0.05)

    def settle(self, number: int, late: float) -> None:
        member = self.members[number]
        assert member is not None
        step = member.ready()
        hard_state, log = self.disks[number]
        self.disks[number] = step.hard_state or hard_state, log[: step.keep] + list(step.entries) if step.entries else log
        assert self.disks[number] == ((member.term, member.vote), member.log)
        for other, message in step.messages:
            for _ in range(self.chance.choice((1, 1, 1, 2))):
                if self.chance.random() >= self.loss:
                    self.network.append((self.now + self.chance.uniform(0, late), other, number, message))
        self.look()

    def look(self) -> None:
        there = [member for member in self.members if member is not None]
        for member in there:
            if member.role is Role.LEADER:
                assert self.leaders.setdefault(member.term, member.number) == member.number, "two leaders in one term"
            mine = member.log[: member.committed]
            assert mine[: len(self.committed)] == self.committed[: len(mine)], "two members have committed different entries"
            self.committed += mine[len(self.committed) :]
        on_disk = [log for _, log in self.disks]
        for index, entry in enumerate(self.committed[-3:], max(0, len(self.committed) - 3)):
            assert 2 * sum(log[index : index + 1] == [entry] for log in on_disk) > self.size, "committed, and not with a majority"
        sure = [member for member in there if member.leads() and self.time_of(member.number) <= member.good_until()]
        for member in sure:
            others = [other for other in there if other.role is Role.LEADER and other.term > member.term]
            assert not others, f"{member.number} may decide, and {others[0].number} leads"

    def leader(self) -> Raft:
        (found,) = [member for member in self.members if member is not None and member.role is Role.LEADER]
        return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([3, 5]))
def test_whatever_happens(seed: int, size: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster(size, chance)
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
        cluster.propose(f"entry {number}")
        cluster.run(chance.choice((0.05, 0.3, 2.0, 5.0)), late=chance.choice((0.01, 0.3, 3.0)))
    cluster.loss, cluster.cut_off = 0.0, set()
    for down, member in enumerate(cluster.members):
        if member is None:
            cluster.start(down)
    cluster.run(4 * (ELECTION + SPREAD))
    cluster.propose("the last one")
    cluster.run(2.0)
    logs = [member.log[: member.committed] for member in cluster.members if member is not None]
    assert logs == [logs[0]] * size
    assert logs[0][-1].text == "the last one"


def test_a_member_that_was_cut_off_deposes_no_leader() -> None:
    cluster = Cluster(3, random.Random(1))
    cluster.run(1.0)
    leader = cluster.leader()
    assert (leader.number, leader.term) == (0, 1), "the first one stands for election at once"
    cluster.cut_off = {2}
    cluster.run(10 * ELECTION)
    cluster.cut_off = set()
    cluster.run(2 * ELECTION)
    assert cluster.leader() is leader
    assert leader.term == 1


@pytest.mark.parametrize("asked", [0, 2], ids=["the leader", "a follower"])
@pytest.mark.parametrize("pre_vote", [True, False])
def test_no_member_votes_for_another_leader_while_one_may_decide(asked: int, pre_vote: bool) -> None:
    """No member raises its term either (4.2.3): so the answers of a majority are a lease, and one that was cut off deposes no leader."""
    cluster = Cluster(3, random.Random(4))
    cluster.run(1.0)
    cluster.cut_off = {0, 1, 2}  # no member hears of another from now on
    member = cluster.members[asked]
    assert member is not None
    ask = RequestVote(member.term + 1, 1 << 30, member.term, pre_vote)
    for later, votes in ((LEASE / 2, False), (2 * ELECTION, True)):
        member.receive(1, ask, cluster.time_of(asked) + later)
        ((_, vote),) = member.ready().messages
        assert (vote, member.term) == (Vote(ask.term if votes else 1, votes, pre_vote), 2 if votes and not pre_vote else 1)


def reported(member: Raft) -> list[RaftMessage]:
    return [message for _, message in member.ready().messages]


def test_a_member_with_a_shorter_log_gets_no_vote() -> None:
    """Neither one whose last entry is of an older term, nor one whose log is shorter (5.4.1): it would cut off what is committed."""
    for log, last, last_term, votes in (
        ([Entry(1, "a")], 0, 0, False),
        ([Entry(1, "a"), Entry(1, "b")], 1, 1, False),
        ([Entry(2, "a")], 9, 1, False),
        ([Entry(1, "a")], 1, 1, True),
        ([Entry(1, "a"), Entry(1, "b")], 1, 2, True),
    ):
        for pre_vote in (True, False):
            member = Raft(0, 3, 0.0, lambda: 0.0, (2, -1), log)
            member.receive(1, RequestVote(3, last, last_term, pre_vote), 10 * ELECTION)
            (vote,) = reported(member)
            assert isinstance(vote, Vote) and vote.granted == votes, (log, last, last_term, pre_vote)


def test_a_vote_is_given_once_in_a_term() -> None:
    """Even after that leader has led and is silent: another one of the same term could lead at the same time."""
    member = Raft(0, 3, 0.0, lambda: 0.0)
    member.receive(1, RequestVote(1, 0, 0, pre_vote=False), 0.0)
    assert reported(member) == [Vote(1, True, pre_vote=False)]
    member.receive(1, RequestVote(1, 0, 0, pre_vote=False), 0.0)
    assert reported(member) == [Vote(1, True, pre_vote=False)], "the answer was lost, and it asks again"
    member.receive(1, AppendEntries(1, 0, 0, (), 0, 0.0), 0.0)
    member.ready()
    member.receive(2, RequestVote(1, 5, 1, pre_vote=False), 10 * ELECTION)
    assert reported(member) == [Vote(1, False, pre_vote=False)]


def test_who_has_given_its_vote_leaves_the_other_time_to_lead() -> None:
    member = Raft(1, 3, 0.0, lambda: 0.0, (1, -1))
    member.receive(0, RequestVote(2, 0, 0, pre_vote=False), ELECTION)
    assert reported(member) == [Vote(2, True, pre_vote=False)]
    member.tick(2 * ELECTION - 0.1)
    assert member.role is Role.FOLLOWER and reported(member) == []
    member.tick(2 * ELECTION + 0.1)
    assert [type(message) for message in reported(member)] == [RequestVote, RequestVote]


@pytest.mark.parametrize("support", [True, False])
def test_an_answer_to_an_earlier_question_is_no_support(support: bool) -> None:
    """Neither of whether it would be elected, nor a vote of an earlier term."""
    member = Raft(0, 5, 0.0, lambda: 0.0, (3, -1))
    member.campaign(ELECTION)
    for sender in (1, 2, 3):
        member.receive(sender, Vote(3 + support, True, pre_vote=True), ELECTION)
    assert member.role == (Role.CANDIDATE if support else Role.PRE_CANDIDATE)
    for sender in (1, 2, 3):
        member.receive(sender, Vote(3, True, pre_vote=False), ELECTION)
        member.receive(sender, Vote(4, False, pre_vote=False), ELECTION)
    assert member.role == (Role.CANDIDATE if support else Role.FOLLOWER), "it hears of a newer term than its own"


def test_a_leader_that_is_cut_off_steps_down_before_another_can_lead() -> None:
    cluster = Cluster(3, random.Random(2))
    cluster.run(1.0)
    cluster.cut_off = {0}
    old = cluster.leader()
    cluster.run(LEASE + 2 * HEARTBEAT)
    assert old.role is not Role.LEADER
    cluster.run(2 * (ELECTION + SPREAD))
    assert cluster.leader().number != 0


def test_a_tail_that_no_other_member_has_is_cut_off() -> None:
    cluster = Cluster(3, random.Random(3))
    cluster.run(1.0)
    cluster.cut_off = {0}
    cluster.propose("to nobody")
    cluster.run(2 * (ELECTION + SPREAD))
    cluster.propose("to a majority")
    cluster.cut_off = set()
    cluster.run(2.0)
    assert [entry.text for entry in cluster.disks[0][1]] == ["", "", "to a majority"]


def test_an_entry_of_an_older_term_is_committed_with_one_of_the_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 8: a majority has it, and yet it can be lost until an entry of the leader's own term is with a majority, too."""
    monkeypatch.setattr(raft, "BATCH", -1)  # one entry in each message
    members = [Raft(number, 3, 0.0, lambda: 0.0) for number in range(3)]

    def elect(number: int, voter: int) -> list[tuple[int, RaftMessage]]:
        """Its first messages as a leader."""
        members[number]._be_candidate(0.0)
        (asked,) = [message for to, message in members[number].ready().messages if to == voter]
        members[voter].receive(number, asked, 0.0)
        ((_, vote),) = members[voter].ready().messages
        members[number].receive(voter, vote, 0.0)
        return list(members[number].ready().messages)

    elect(0, 2)  # term 1: what it writes stays with it
    elect(1, 2)  # the same term, in which member 2 does not vote again
    elect(1, 2)  # term 2
    assert [member.role for member in members] == [Role.LEADER, Role.LEADER, Role.FOLLOWER]
    members[2].log, members[2]._keep = [], 0
    for reported in (2, 3):  # member 0 hears of the newer terms, and leads in the next one
        members[0]._look_at_term(reported, 0.0)
    ((_, first), *_) = [each for each in elect(0, 2) if each[0] == 2]
    assert isinstance(first, AppendEntries) and first.before == 1
    answers: list[RaftMessage] = [first]
    while members[0].committed == 0:
        members[2].receive(0, answers.pop(), 0.0)
        ((_, answer),) = members[2].ready().messages
        members[0].receive(2, answer, 0.0)
        held = [entry.term for entry in members[2].log]
        assert members[0].committed == (2 if held == [1, 4] else 0), held
        answers += [message for to, message in members[0].ready().messages if to == 2]
    assert [entry.term for entry in members[2].log] == [1, 4]


def test_a_ballot_alone_or_an_entry_alone_goes_to_the_disk() -> None:
    entry = Entry(1, "x")
    assert Step((1, 0), 0, (), ()).writes and Step(None, 0, (entry,), ()).writes
    assert not Step(None, 0, (), ()).writes


def led(size: int, log: list[Entry], term: int = 3) -> Raft:
    """Member 0 leads in `term`, and has announced it."""
    member = Raft(0, size, 0.0, lambda: 0.0, (term - 1, -1), log)
    member._be_candidate(0.0)
    for other in range(1, size):
        member.receive(other, Vote(term, True, pre_vote=False), 0.0)
    assert member.role is Role.LEADER
    member.ready()
    return member


def test_who_stops_to_lead_leaves_the_others_time_and_follows_whom_it_hears() -> None:
    member = led(3, [])
    member.tick(10.0)
    assert (member.role, member.leader) == (Role.FOLLOWER, None)
    member.tick(10.0 + ELECTION - 0.1)
    assert member.role == Role.FOLLOWER, "it has waited from the moment at which it stopped"
    member.receive(2, AppendEntries(4, 0, 0, (), 0, 0.0), 12.0)
    assert [member.leader, member.role] == [2, Role.FOLLOWER]


def test_what_is_on_its_way_is_not_sent_again_with_what_comes_later() -> None:
    member = led(2, [])
    member.receive(1, AppendReply(3, True, 1, 0.0), 0.1)
    member.ready()
    member.propose(["a"], 0.2)
    ((_, first),) = member.ready().messages
    member.propose(["b"], 0.3)
    assert isinstance(first, AppendEntries) and [entry.text for entry in first.entries] == ["a"]
    assert member.ready().messages == ()
    member.receive(1, AppendReply(3, True, 2, 0.2), 0.4)
    ((_, second),) = member.ready().messages
    assert isinstance(second, AppendEntries) and [entry.text for entry in second.entries] == ["b"]


def test_who_lacks_the_end_of_the_log_gets_the_end_and_not_all_of_it() -> None:
    member = led(2, [Entry(1, str(number)) for number in range(9)])
    member.receive(1, AppendReply(3, False, 7, 0.0), 0.1)
    ((_, message),) = member.ready().messages
    assert isinstance(message, AppendEntries)
    assert (message.before, [entry.text for entry in message.entries]) == (7, ["7", "8", ""])


def test_one_vote_is_no_majority_of_five() -> None:
    """Nor a message that one would be given."""
    member = Raft(0, 5, 0.0, lambda: 0.0, (3, -1))
    member.campaign(ELECTION)
    for sender, role in ((1, Role.PRE_CANDIDATE), (1, Role.PRE_CANDIDATE), (2, Role.CANDIDATE)):
        member.receive(sender, Vote(4, True, pre_vote=True), ELECTION)
        assert member.role is role
    for sender, role in ((1, Role.CANDIDATE), (1, Role.CANDIDATE), (2, Role.LEADER)):
        member.receive(sender, Vote(4, True, pre_vote=False), ELECTION)
        assert member.role is role


def test_an_answer_to_a_leader_that_it_was_before_is_not_counted() -> None:
    """What it had sent then may have been cut off since."""
    member = led(3, [Entry(1, "a")], term=5)
    member.receive(1, AppendReply(3, True, 2, 0.0), 0.1)
    assert member.committed == 0 and member.role is Role.LEADER
    member.receive(1, AppendReply(5, True, 2, 0.0), 0.1)
    assert member.committed == 2


def test_a_member_with_other_entries_asks_for_those_after_the_committed_ones() -> None:
    member = Raft(1, 3, 0.0, lambda: 0.0, (1, -1), [Entry(1, text) for text in "abcd"])
    member.receive(0, AppendEntries(1, 2, 1, (), 2, 0.0), 0.0)
    assert member.committed == 2
    member.ready()
    member.receive(0, AppendEntries(3, 4, 2, (), 2, 0.1), 0.1)
    assert reported(member) == [AppendReply(3, False, 2, 0.1)]


def test_who_is_refused_a_vote_has_not_got_it_later_either() -> None:
    member = Raft(0, 3, 0.0, lambda: 0.0, (3, 1))
    for _ in range(2):
        member.receive(2, RequestVote(3, 0, 0, pre_vote=False), ELECTION + 1)
        assert reported(member) == [Vote(3, False, pre_vote=False)] and member.vote == 1


def test_who_was_elected_leads_when_an_entry_of_its_own_is_committed() -> None:
    """Until then it does not know what is, and it begins after its own entries."""
    member = Raft(0, 3, 0.0, lambda: 0.0, (2, -1), [Entry(1, text) for text in "abcd"])
    member.receive(1, AppendEntries(2, 4, 1, (), 4, 0.0), 0.0)
    assert member.committed == 4
    member.ready()
    member._be_candidate(9.0)
    member.receive(2, Vote(3, True, pre_vote=False), 9.0)
    sent = [message for message in reported(member) if isinstance(message, AppendEntries)]
    assert [(message.before, [entry.text for entry in message.entries]) for message in sent] == [(4, [""])] * 2
    assert member.role is Role.LEADER and not member.leads()
    member.receive(2, AppendReply(3, True, 5, 9.0), 9.1)
    assert member.leads()


def test_what_is_more_than_a_batch_goes_in_several() -> None:
    texts = [str(number) * (raft.BATCH // 2) for number in range(3)]
    member = led(2, [Entry(1, text) for text in texts])
    member.receive(1, AppendReply(3, False, 0, 0.0), 0.1)
    (message,) = reported(member)
    assert isinstance(message, AppendEntries) and [entry.text for entry in message.entries] == texts[:2]


def test_a_leader_sends_heartbeats() -> None:
    member = led(3, [])
    for now, messages in ((HEARTBEAT / 2, 0), (HEARTBEAT, 2), (HEARTBEAT * 1.5, 0), (HEARTBEAT * 2, 2)):
        member.tick(now)
        assert len(reported(member)) == messages
    member.receive(2, AppendEntries(4, 0, 0, (), 0, 0.0), HEARTBEAT * 2)
    assert member.role is Role.FOLLOWER and (member.leader, member.term) == (2, 4)


def test_a_member_that_refuses_a_vote_campaigns_as_soon_as_before() -> None:
    member = Raft(0, 3, 0.0, lambda: 0.0, (3, -1), [Entry(3, "a")])
    member.receive(2, RequestVote(5, 0, 0, pre_vote=False), ELECTION)
    assert reported(member) == [Vote(5, False, pre_vote=False)]
    member.tick(ELECTION)
    assert member.role is Role.PRE_CANDIDATE


def test_it_is_known_to_all_when_all_others_have_answered() -> None:
    member = led(3, [])
    for other, known in ((1, False), (2, True)):
        member.receive(other, AppendReply(3, True, 1, 0.5), 0.6)
        assert member.known_by(0.4) is known and not member.known_by(0.5)


def test_who_is_a_candidate_waits_for_the_votes() -> None:
    member = Raft(0, 3, 0.0, lambda: 0.0, (3, -1))
    member.campaign(ELECTION)
    member.receive(1, Vote(4, True, pre_vote=True), ELECTION * 1.9)
    member.tick(ELECTION * 2)
    assert member.role is Role.CANDIDATE


def test_who_hears_a_leader_of_an_earlier_term_does_not_follow_it() -> None:
    member = Raft(1, 3, 0.0, lambda: 0.0, (5, -1), [Entry(5, "kept")])
    member.receive(0, AppendEntries(3, 0, 0, (Entry(3, "old"),), 1, 0.1), 0.1)
    assert reported(member) == [AppendReply(5, False, 0, 0.1)]
    assert (member.leader, member.log, member.committed) == (None, [Entry(5, "kept")], 0)


def test_half_of_four_members_is_no_majority_for_an_entry() -> None:
    member = led(4, [])
    member.receive(1, AppendReply(3, True, 1, 0.0), 0.1)
    assert member.committed == 0
    member.receive(2, AppendReply(3, True, 1, 0.0), 0.1)
    assert member.committed == 1


def test_a_member_that_has_heard_a_leader_since_it_asked_does_not_stand_for_election() -> None:
    """What the others have answered comes late."""
    member = Raft(0, 3, 0.0, lambda: 0.0, (3, -1))
    member.campaign(ELECTION)
    member.receive(1, AppendEntries(3, 0, 0, (), 0, 0.0), ELECTION)
    member.ready()
    for sender in (1, 2):
        member.receive(sender, Vote(4, True, pre_vote=True), ELECTION)
    assert (member.role, member.term, member.leader) == (Role.FOLLOWER, 3, 1) and reported(member) == []
