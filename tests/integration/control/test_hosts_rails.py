"""A job on two hosts with two rails: a rail fails, then the other one, and training goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.control.test_hosts import Spread
from tests.integration.hosts import Host
from tests.integration.processes import Mark, marked, wait_until
from tests.integration.training import LONG, Outcome, survived
from tests.message_texts import has
from tests.network.rail_hosts import MakeRails, RailNetwork, needs_rails, rails

from understudy.messages import network_rails

pytest.importorskip("pyroute2", reason="needs pyroute2 (pip install 'understudy[network]')")
pytestmark = [needs_rails, pytest.mark.timeout(900)]
HEAL = {"pull": "plug", "set_down": "set_up", "deafen": "hear"}
# A busy machine may take longer than the usual limits to send again what was lost: that is no loss of a node here.
PATIENT = ("--node-timeout", "120", "--hang-limit", "600")


@pytest.fixture
def mark() -> Iterator[Mark]:
    with marked() as mark:
        yield mark


@pytest.fixture
def make(tmp_path: Path, mark: Mark) -> Iterator[MakeRails]:
    with rails(tmp_path, mark) as make:
        yield make


def nodes(status: dict[str, Any]) -> list[str]:
    return [rank["node"] for rank in status["ranks"]]


def uses(made: RailNetwork, rails: list[str]) -> None:
    one, other = made.hosts
    wait_until(lambda: one.hops(other) == other.hops(one) == rails, f"routes over {rails}", LONG)


def addresses_of_connections(made: RailNetwork) -> set[str]:
    """The first two bytes of the addresses of all TCP connections between the hosts."""
    found = set()
    for line in made.hosts[0].run("cat", "/proc/net/tcp").splitlines()[1:]:
        here, there, state = line.split()[1:4]
        if state == "01" and here.partition(":")[0] != there.partition(":")[0]:
            found |= {".".join(str(byte) for byte in bytes.fromhex(one.partition(":")[0])[:1:-1]) for one in (here, there)}
    return found


@pytest.mark.parametrize("fault", HEAL)
def test_training_outlives_the_loss_of_each_rail_in_turn(
    fault: str, make: MakeRails, tmp_path: Path, mark: Mark, undisturbed_spread: Callable[[int], Outcome]
) -> None:
    """There is no incident, and the result is bit by bit that of an undisturbed run under torchrun."""
    made = make()
    made.apply()
    made.watch()
    job = Spread(cast(list[Host], made.hosts), tmp_path / "job", mark, *PATIENT, HELD="1:3,1:8", EACH="1", WAIT="1")
    for step, rail, left, hit in ((3, "r1", "r2", 0), (8, "r2", "r1", 1)):
        job.wait_for(f"held {step}")
        assert addresses_of_connections(made) == {"10.72"}, "all of the job's connections are between host addresses"
        getattr(made.hosts[hit], fault)(rail)
        (job.folder / f"let go {step}").touch()  # the step's collectives meet the rail that has failed
        job.wait_for_step(step + 3, generation=0)
        uses(made, [left])
        getattr(made.hosts[hit], HEAL[fault])(rail)
        uses(made, ["r1", "r2"])
    (job.folder / "end").touch()
    assert survived(job.ends(), undisturbed_spread(2), losses=0) == []
    assert [event["rail"] for event in made.agents[0].events("NextHopWithdrawn")] == ["r1", "r2"]


def test_a_rank_leaves_the_node_whose_rail_stays_down(
    make: MakeRails, tmp_path: Path, mark: Mark, undisturbed_spread: Callable[[int], Outcome]
) -> None:
    """The rail agent finds it, the detector reports it, the policy decides, and the rank moves at a boundary while the other rail works."""
    made = make(hosts=3)
    made.apply()
    made.watch()
    detectors = tmp_path / "detectors.toml"
    detectors.write_text(f'[network]\nstate = "{made.hosts[0].here}/rails.json"\nafter = 1\nevery = 0.5\n')
    job = Spread(cast(list[Host], made.hosts), tmp_path / "job", mark, *PATIENT, "--detectors", str(detectors), HELD="1:6", WAIT="1")
    job.wait_for("held 6")
    wait_until(lambda: [spare["state"] for spare in job.ask("status")["spares"]] == ["warm"] * 3, "warm spares", LONG)
    made.hosts[1].pull("r2")
    wait_until(lambda: job.ask("status")["state"] == "recovering", "a spare that has set up, and the pause", LONG)
    taints = job.ask("status")["taints"]
    assert list(taints) == ["node1"] and has(taints["node1"], network_rails.RAIL_DOWN_HERE, rail="r2", peers=2, elsewhere=2)
    (job.folder / "let go").touch()
    wait_until(lambda: "node1" not in nodes(job.ask("status")), "no rank on that node", LONG)
    (job.folder / "end").touch()
    (incident,) = survived(job.ends(), undisturbed_spread(3))
    assert (incident["planned"], incident["cause"], incident["rank"]) == (True, "migrated", 1)
