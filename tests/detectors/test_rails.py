"""The detector of rails that stay down: one cable between two hosts is blamed on neither, and a rail that fails for all on none."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from tests.message_texts import has

from understudy.common.rail_state import STALE, PathView, RailState, RailView, write
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.choice import choose
from understudy.detectors.rails import AFTER, HOLDS, Rails
from understudy.messages import network_rails

NOW = 1_700_000_000.0
DOWN = NOW - AFTER - 1
RAILS = ("r1", "r2")
Broken = set[frozenset[str]]  # pairs of hosts between which the first rail does not work


def state(host: str, hosts: int, broken: Broken, since: float = DOWN) -> RailState:
    """What the agent of `host` publishes when the first rail does not work between these pairs of hosts."""
    names = [f"n{number}" for number in range(hosts)]
    peers = [name for name in names if name != host]

    def reaches(one: str, rail: str) -> bool:
        """Whether it reaches any host there."""
        return any(rail != "r1" or frozenset((one, other)) not in broken for other in names if other != one)

    paths = [
        PathView(
            peer, rail, (up := rail != "r1" or frozenset((host, peer)) not in broken), "" if up else "probes", since, 0.1, 9, 0, 1, 0.0
        )
        for peer in peers
        for rail in RAILS
    ]
    rails = [RailView(rail, f"10.{number}.0.1", "up", sum(reaches(peer, rail) for peer in peers)) for number, rail in enumerate(RAILS, 1)]
    return RailState(host, 1, NOW, True, tuple(rails), tuple(paths), (), (), 0, 0, 0)


def look(found: RailState, folder: Path, after: float = AFTER) -> list[Evidence]:
    write(folder / "rails.json", found)
    return Rails(folder / "rails.json", after, lambda: NOW).look()


def pairs(*names: str) -> Broken:
    return {frozenset(pair) for pair in combinations(names, 2)}


def of(host: str, hosts: int) -> Broken:
    """Its own cable."""
    return {frozenset((host, f"n{number}")) for number in range(hosts) if f"n{number}" != host}


@pytest.mark.parametrize("hosts", [3, 4, 7])
def test_the_host_whose_cable_has_failed_is_suspect_and_no_other(hosts: int, tmp_path: Path) -> None:
    for number in range(hosts):
        found = look(state(f"n{number}", hosts, of("n0", hosts)), tmp_path)
        if number:
            assert found == []
            continue
        (evidence,) = found
        assert (evidence.subject, evidence.severity, evidence.part, evidence.kind) == (Subject.LINK, Severity.SUSPECT, "r1", "rail-down")
        assert (evidence.happened, evidence.until) == (DOWN, NOW + HOLDS)
        assert has(evidence.detail, network_rails.RAIL_DOWN_HERE, rail="r1", peers=hosts - 1, elsewhere=hosts - 1)


@pytest.mark.parametrize("hosts", [3, 4, 7])
def test_one_cable_between_two_hosts_is_blamed_on_neither(hosts: int, tmp_path: Path) -> None:
    for number in range(hosts):
        assert look(state(f"n{number}", hosts, pairs("n0", "n1")), tmp_path) == []


@pytest.mark.parametrize("hosts", [2, 3, 5])
def test_a_rail_that_fails_for_all_makes_no_host_suspect(hosts: int, tmp_path: Path) -> None:
    """With two hosts, it cannot be known which end is to blame."""
    names = [f"n{number}" for number in range(hosts)]
    for name in names:
        (evidence,) = look(state(name, hosts, pairs(*names)), tmp_path)
        assert (evidence.severity, evidence.kind) == (Severity.NOTE, "rail-down-everywhere")


def test_a_rail_is_reported_only_after_its_time(tmp_path: Path) -> None:
    for seconds, count in ((1.0, 0), (AFTER - 1, 0), (AFTER, 1)):
        assert len(look(state("n0", 3, of("n0", 3), NOW - seconds), tmp_path)) == count
    assert len(look(state("n0", 3, of("n0", 3), NOW - 5.0), tmp_path, after=5.0)) == 1


def test_stalled_peers_show_nothing(tmp_path: Path) -> None:
    found = state("n0", 3, of("n0", 3))
    assert look(replace(found, stalled=("n1", "n2")), tmp_path) == []
    assert len(look(replace(found, stalled=("n1",)), tmp_path)) == 1


def test_rails_that_nobody_watches_are_noted(tmp_path: Path) -> None:
    well = state("n0", 3, set())
    assert look(well, tmp_path) == []
    for stale in (replace(well, running=False), replace(well, written=NOW - STALE - 1)):
        (evidence,) = look(stale, tmp_path)
        assert (evidence.severity, evidence.kind) == (Severity.NOTE, "rails-unwatched")
        assert has(evidence.detail, network_rails.STALE, host="n0")
    (evidence,) = Rails(tmp_path / "none", now=lambda: NOW).look()
    assert evidence.kind == "rails-unwatched" and has(evidence.detail, network_rails.NO_STATE)


def test_it_looks_only_where_the_file_asks_for_it(tmp_path: Path) -> None:
    assert "network" not in [one.name for one in choose()]
    write(tmp_path / "rails.json", state("n0", 3, of("n0", 3), since=0.0))
    text = f'[network]\nstate = "{tmp_path}/rails.json"\nafter = 1\nevery = 5\n'
    (choice,) = (one for one in choose(text, "d.toml") if one.name == "network")
    assert (choice.every, choice.origin, choice.missing(), choice.off) == (5.0, "d.toml", "", False)
    (evidence,) = choice.make().look()  # by the real clock, the state is old
    assert evidence.kind == "rails-unwatched"
