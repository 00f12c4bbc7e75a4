"""Who takes part: those whose disks are as old as the job, in every order in which they can meet."""

from __future__ import annotations

import itertools

from understudy.orchestrator.quorum.roster import MemberHello, Roster


def three() -> list[Roster]:
    return [Roster(number, 3, f"disk {number}") for number in range(3)]


def meet(rosters: list[Roster], pairs: list[tuple[int, int]]) -> None:
    """In each pair the first one greets the second one, who answers."""
    for one, other in pairs:
        rosters[other].hear(rosters[one].hello())
        rosters[one].hear(rosters[other].hello())


def test_all_must_have_met_the_first_one() -> None:
    for pairs in itertools.product(itertools.permutations(range(3), 2), repeat=3):
        rosters = three()
        meet(rosters, list(pairs))
        known = [roster.names for roster in rosters if roster.names]
        assert bool(rosters[0].names) == ({0, 1} in map(set, pairs) and {0, 2} in map(set, pairs))
        assert all(names == ("disk 0", "disk 1", "disk 2") for names in known)
        assert not any(roster.non_member for roster in rosters)


def test_a_new_disk_is_a_non_member() -> None:
    """Whichever member it is, and whomever of the two others it meets, once a majority has the roster."""
    for majority in ([0, 1], [0, 2], [0, 1, 2]):
        for lost in range(3):
            rosters = three()
            meet(rosters, [(0, 1), (0, 2), *((0, other) for other in majority[1:])])
            for number in {1, 2} - set(majority):
                rosters[number] = Roster(number, 3, f"disk {number}")  # it had not heard of it before it was started again
            rosters[lost] = Roster(lost, 3, "a new disk")
            meet(rosters, list(itertools.permutations(range(3), 2)) * 2)
            whole = [roster for roster in rosters if roster.names]
            assert not rosters[lost].names
            assert rosters[lost].non_member or not whole
            assert all(roster.refuses(rosters[lost].hello()) and not roster.accepts(rosters[lost].hello()) for roster in whole)


def test_another_roll_is_refused() -> None:
    roster = Roster(1, 3, "disk 1", ("disk 0", "disk 1", "disk 2"))
    assert roster.accepts(MemberHello(2, "disk 2", ("disk 0", "disk 1", "disk 2")))
    assert not roster.accepts(MemberHello(2, "disk 2", ()))
    assert not roster.refuses(MemberHello(2, "disk 2", ())), "it has not heard of it yet"
    assert roster.refuses(MemberHello(2, "disk 2", ("disk 0", "disk 1", "another")))
    assert roster.refuses(MemberHello(2, "another", ()))


def test_a_roll_of_another_size_is_another_jobs() -> None:
    """A member that was started with another list of hosts, and finds itself on a longer or shorter roster."""
    for names in (("disk 0", "disk 1"), ("disk 0", "disk 1", "disk 2", "disk 3", "disk 4")):
        roster = Roster(1, 3, "disk 1")
        assert not roster.hear(MemberHello(0, "disk 0", names))
        assert roster.non_member and not roster.names


def test_a_member_without_a_roster_accepts_and_refuses_no_other() -> None:
    roster = Roster(1, 3, "disk 1")
    for hello in (MemberHello(0, "disk 0", ()), MemberHello(0, "disk 0", ("disk 0", "disk 1", "disk 2"))):
        assert not roster.accepts(hello) and not roster.refuses(hello)
