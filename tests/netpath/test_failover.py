"""Rails fail while messages are under way: no byte may be wrong, none may come twice, and nothing may hang.

The driver checks the bytes. The tests wait until the counters show that the fault has had its effect, so that none passes without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.processes import wait_until
from tests.netpath.builds import Build
from tests.netpath.hosts import RECEIVER, SENDER, Hosts
from tests.netpath.transfer import LONG, transfer

MIXED = "random:7:2000000"

Make = Callable[[int], Hosts]


def test_a_rail_is_cut_and_returns(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(30)
        two.drop(RECEIVER, 0)
        running.wait_for("failovers", 0, interface="r0")
        running.wait_for_messages(30)
        two.pass_again(RECEIVER, 0)
        before = running.total("chunks", interface="r0")
        running.wait_for("chunks", before, interface="r0")  # it carries data again
        two.link(SENDER, 1, "down")
        running.wait_for_messages(30)
        two.link(SENDER, 1, "up")
        before = running.total("chunks", interface="r1")
        running.wait_for("chunks", before, interface="r1")
        print(running.stop())
        assert running.total("retransmits") > 0


FAULTS: dict[str, Callable[[Hosts], None]] = {
    "link down at the sender": lambda two: two.link(SENDER, 0, "down"),
    "link down at the receiver": lambda two: two.link(RECEIVER, 0, "down"),
    "data is lost": lambda two: two.drop(RECEIVER, 0),
    "acknowledgements are lost": lambda two: two.drop(SENDER, 0),
}


@pytest.mark.whole
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rails", [2, 4])
def test_a_rail_fails_for_ever(plugin: Build, hosts: Make, tmp_path: Path, fault: str, rails: int) -> None:
    two = hosts(rails)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(100)
        FAULTS[fault](two)
        running.wait_for("failovers", 0, interface="r0")
        running.wait_for_messages(300)
        print(fault, running.stop()["gap_ms"])


@pytest.mark.whole
def test_packets_are_lost(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    for rail in range(2):
        two.drop(RECEIVER, rail, percent=2)
        two.drop(SENDER, rail, percent=1)
    with transfer(plugin, two, tmp_path, MIXED, UNDERSTUDY_NET_CRC="1") as running:
        running.wait_for_messages(300)
        print("2 % and 1 % of the packets", running.stop()["gap_ms"])


@pytest.mark.whole
def test_a_slow_rail_gets_less_and_wins_back_its_share(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    two.shape(SENDER, 0, "200mbit")
    two.shape(SENDER, 1, "10mbit")
    with transfer(plugin, two, tmp_path, "1000000") as running:
        running.wait_for_messages(200)
        before = {rail: running.total("bytes", interface=rail) for rail in ("r0", "r1")}
        running.wait_for_messages(200)
        fast, slow = (running.total("bytes", interface=rail) - before[rail] for rail in ("r0", "r1"))
        assert fast > 4 * slow
        two.shape(SENDER, 1, "200mbit")
        # Later it carries its half again: 1 of 2, after 1 of 20.
        goal = running.total("rate_mb_s", interface="r0") // 2
        running.wait_for("rate_mb_s", goal, interface="r1")
        print(running.stop()["gap_ms"])


@pytest.mark.whole
def test_rails_flap(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(30)
        for turn in range(6):
            rail = turn % 2
            before = running.total("failovers", interface=f"r{rail}")
            two.link(SENDER if turn < 3 else RECEIVER, rail, "down")
            running.wait_for("failovers", before, interface=f"r{rail}")
            two.link(SENDER if turn < 3 else RECEIVER, rail, "up")
            before = running.total("chunks", interface=f"r{rail}")
            running.wait_for("chunks", before, interface=f"r{rail}")
        print("flaps", running.stop()["gap_ms"])


@pytest.mark.whole
def test_a_link_that_cannot_be_queried_is_not_down(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    """Without free descriptors, an event of one link leaves the others alone."""
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(30)
        with running.no_descriptors():
            two.link(SENDER, 0, "down")
            running.wait_for_messages(300)
            two.link(SENDER, 0, "up")
            running.wait_for_messages(30)
        before = running.total("chunks", interface="r0")
        running.wait_for("chunks", before, interface="r0")
        running.stop()


@pytest.mark.whole
def test_all_rails_fail_for_a_while(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    """While all are silent none is suspected, so the streams are not even opened again."""
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(50)
        for rail in range(2):
            two.drop(RECEIVER, rail)
        running.sender_is_quiet()
        for rail in range(2):
            two.pass_again(RECEIVER, rail)
        running.wait_for_messages(100)
        print("all rails", running.stop()["gap_ms"])


@pytest.mark.whole
def test_a_stalled_peer_is_waited_for(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(50)
        with running.receiver_stopped():
            running.sender_is_quiet()
            failovers = running.total("failovers")
            running.sender_is_quiet()
            assert running.total("failovers") == failovers
        running.wait_for_messages(100)
        running.stop()


@pytest.mark.whole
def test_time_in_which_a_process_is_stopped_does_not_count(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    """Both are stopped for longer than the limit of silence, which is 3 s here."""
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED, UNDERSTUDY_NET_GIVE_UP_S="3") as running:
        running.wait_for_messages(50)
        two.drop(RECEIVER, 0)  # nothing that arrives after the stop shows that the peer is there
        two.drop(SENDER, 1)
        with running.both_stopped():
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > 4, "more time than the limit", LONG)
            two.pass_again(RECEIVER, 0)
            two.pass_again(SENDER, 1)
        running.wait_for_messages(100)
        running.stop()


@pytest.mark.whole
def test_an_error_comes_when_nothing_is_left(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED, UNDERSTUDY_NET_GIVE_UP_S="3") as running:
        running.wait_for_messages(50)
        for rail in range(2):
            two.drop(RECEIVER, rail)
        assert running.codes() == (4, 4)
        assert "UNDERSTUDY_NET_GIVE_UP_S" in running.errors()


@pytest.mark.whole
@pytest.mark.parametrize("lost, settings", [("sender", {}), ("receiver", {}), ("receiver", {"NETPATH_CHILD": "1"})])
def test_the_end_of_a_process_is_noticed(plugin: Build, hosts: Make, tmp_path: Path, lost: str, settings: dict[str, str]) -> None:
    """Long before UNDERSTUDY_NET_GIVE_UP_S, which is 300: its host refuses connections, or they end and do not return, even if a forked
    process lives on."""
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED, **settings) as running:
        running.wait_for_messages(50)
        getattr(running, lost).kill()
        code = running.codes()[0 if lost == "receiver" else 1]
        assert code == 4, running.errors()


@pytest.mark.whole
def test_the_end_of_the_receiver_is_noticed_while_a_rail_is_cut(plugin: Build, hosts: Make, tmp_path: Path) -> None:
    """One rail refuses connections, and the other one is silent."""
    two = hosts(2)
    with transfer(plugin, two, tmp_path, MIXED) as running:
        running.wait_for_messages(50)
        two.drop(RECEIVER, 0)
        running.wait_for("failovers", 0, interface="r0")
        running.receiver.kill()
        assert running.codes()[0] == 4, running.errors()
