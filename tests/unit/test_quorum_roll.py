"""Who takes part: those whose disks are as old as the job, in every order in which they can meet."""

from __future__ import annotations

import itertools

from understudy.orchestrator.quorum.roll import Hello, Roll


def three() -> list[Roll]:
    return [Roll(number, 3, f"disk {number}") for number in range(3)]


def meet(rolls: list[Roll], pairs: list[tuple[int, int]]) -> None:
    """In each pair the first one greets the second one, who answers."""
    for one, other in pairs:
        rolls[other].hear(rolls[one].hello())
        rolls[one].hear(rolls[other].hello())


def test_all_must_have_met_the_first_one() -> None:
    for pairs in itertools.product(itertools.permutations(range(3), 2), repeat=3):
        rolls = three()
        meet(rolls, list(pairs))
        known = [roll.names for roll in rolls if roll.names]
        assert bool(rolls[0].names) == ({0, 1} in map(set, pairs) and {0, 2} in map(set, pairs))
        assert all(names == ("disk 0", "disk 1", "disk 2") for names in known)
        assert not any(roll.stranger for roll in rolls)


def test_a_new_disk_is_a_stranger() -> None:
    """Whichever member it is, and whomever of the two others it meets, once a majority has the roll."""
    for majority in ([0, 1], [0, 2], [0, 1, 2]):
        for lost in range(3):
            rolls = three()
            meet(rolls, [(0, 1), (0, 2), *((0, other) for other in majority[1:])])
            for number in {1, 2} - set(majority):
                rolls[number] = Roll(number, 3, f"disk {number}")  # it had not heard of it before it was started again
            rolls[lost] = Roll(lost, 3, "a new disk")
            meet(rolls, list(itertools.permutations(range(3), 2)) * 2)
            whole = [roll for roll in rolls if roll.names]
            assert not rolls[lost].names
            assert rolls[lost].stranger or not whole
            assert all(roll.refuses(rolls[lost].hello()) and not roll.accepts(rolls[lost].hello()) for roll in whole)


def test_another_roll_is_refused() -> None:
    roll = Roll(1, 3, "disk 1", ("disk 0", "disk 1", "disk 2"))
    assert roll.accepts(Hello(2, "disk 2", ("disk 0", "disk 1", "disk 2")))
    assert not roll.accepts(Hello(2, "disk 2", ()))
    assert not roll.refuses(Hello(2, "disk 2", ())), "it has not heard of it yet"
    assert roll.refuses(Hello(2, "disk 2", ("disk 0", "disk 1", "another")))
    assert roll.refuses(Hello(2, "another", ()))


def test_a_roll_of_another_size_is_another_jobs() -> None:
    """A member that was started with another list of hosts, and finds itself on a longer or shorter roll."""
    for names in (("disk 0", "disk 1"), ("disk 0", "disk 1", "disk 2", "disk 3", "disk 4")):
        roll = Roll(1, 3, "disk 1")
        assert not roll.hear(Hello(0, "disk 0", names))
        assert roll.stranger and not roll.names


def test_a_member_without_a_roll_accepts_and_refuses_nobody() -> None:
    roll = Roll(1, 3, "disk 1")
    for hello in (Hello(0, "disk 0", ()), Hello(0, "disk 0", ("disk 0", "disk 1", "disk 2"))):
        assert not roll.accepts(hello) and not roll.refuses(hello)
