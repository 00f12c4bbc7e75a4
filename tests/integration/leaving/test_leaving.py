"""Evidence of each detector of a node moves the ranks that are there, in every way to be parallel, bit by bit; and evidence that moves
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.parallel import Parallel
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service
from tests.integration.sights import PASSING, SIGHTS, Asked, Gpu, Link, Sight
from tests.integration.training import LONG, Outcome
from tests.matrix.cells import PARALLEL

GATE = ("command", "ddp")  # the cell of `make test`


@dataclass
class Setting:
    service: Service
    stack: ExitStack


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with ExitStack() as stack, marked() as mark:
        yield Setting(Service(tmp_path, mark), stack)


def _leaves(job: Parallel, sight: Sight, node: str) -> None:
    """Wait until both ranks of `node`, of which there is evidence, have left."""
    wait_until(lambda: job.status()["taints"] == {node: sight.why}, "the taint", LONG)
    assert [(one["source"], one["part"], one["leave"]) for one in job.status()["tainted"]] == [(sight.detector, sight.part, True)]
    seen = [(one["detector"], one["kind"], one["part"], one["severity"]) for one in job.status()["evidence"] if one["name"] == node]
    assert (sight.detector, sight.kind, sight.part, "suspect") in seen
    wait_until(lambda: all(rank["node"] != node for rank in job.status()["ranks"]), "no rank on that node", LONG)
    job.goes_on()


CELLS = [pytest.param(detector, mode, marks=[pytest.mark.gate] * ((detector, mode) == GATE)) for mode in PARALLEL for detector in SIGHTS]


@pytest.mark.parametrize(("detector", "mode"), CELLS)
def test_ranks_leave_a_node_of_which_a_detector_has_evidence(detector: str, mode: str, setting: Setting) -> None:
    sight = SIGHTS[detector](setting.service.folder, setting.stack)
    sight.begin(setting.service, "abc", 2)
    job = Parallel(setting.service, mode, 2)
    job.trains()
    job.has_spares(2)
    node = job.node_of(2)
    assert [rank["node"] == node for rank in job.status()["ranks"]] == [False, False, True, True]
    assert job.status()["taints"] == {}
    sight.appears(node)
    _leaves(job, sight, node)
    incidents = job.ends_as_undisturbed()
    (incident,) = incidents
    assert (incident["planned"], incident["decision"]) == (True, "boundary"), "both at the same boundary"
    assert [(part["rank"], part["cause"]) for part in incident["ranks"]] == [(2, "migrated"), (3, "migrated")]
    assert all(part["detail"].endswith(sight.why) for part in incident["ranks"])
    assert [job.held_by(rank) for rank in range(4)] == [1, 1, 2, 2]


def test_two_devices_of_a_node_with_two_ranks_and_one_spare(setting: Setting) -> None:
    """The job has one place on another node: one rank moves there, and the other one trains on where it is."""
    sight = Gpu(setting.service.folder, setting.stack)
    sight.begin(setting.service, "abc", 2)
    job = Parallel(setting.service, "hsdp", 1)
    job.trains()
    job.has_spares(1)
    node = job.node_of(2)
    for number in (0, 1):
        sight.gpus[node].gpu(number, xids=79)
    sight.gpus[node].write()
    wait_until(lambda: job.node_of(2) != node, "rank 2 on another node", LONG)
    assert list(job.status()["taints"]) == [node]
    assert {one["part"] for one in job.status()["tainted"]} == {"gpu0", "gpu1"}
    job.goes_on()
    assert job.node_of(3) == node
    incidents = job.ends_as_undisturbed()
    assert [(one["planned"], one["cause"], one["rank"]) for one in incidents] == [(True, "migrated", 2)]
    assert [job.held_by(rank) for rank in range(4)] == [1, 1, 2, 1]


NO_CHECK = """
[trust]
check = false

[[rule]]
name = "a node or a part of it that is suspected"
severity = ["suspect"]
action = "leave"
"""


@pytest.mark.parametrize("detector", PASSING)
def test_what_comes_and_goes_moves_its_rank_once(detector: str, setting: Setting, undisturbed_spread: Callable[[int], Outcome]) -> None:
    service = setting.service
    sight = PASSING[detector](service.folder, setting.stack)
    sight.begin(service, "ab", 2)
    (service.folder / "policy.toml").write_text(NO_CHECK)
    job = service.held("job", "--policy", str(service.folder / "policy.toml"), HELD="1:6,1:9", EACH="1")
    node = job.node_of(1)
    sight.appears(node)
    job.moves("let go 6", away_from=node)
    job.wait_for("held 9")
    for _ in range(3):
        sight.goes(node)
        job.wait_until(lambda status: status["taints"] == {}, "it is over")
        sight.appears(node)
        job.wait_until(lambda status: status["taints"] == {node: sight.why}, "it is there again")
    job.let("let go 9")
    (incident,) = job.ends_like(undisturbed_spread(2)).incidents
    assert (incident["planned"], incident["cause"], incident["rank"]) == (True, "migrated", 1)
    assert incident["ranks"][0]["detail"].endswith(sight.why)


def test_a_link_that_is_down_briefly_moves_no_rank(setting: Setting, undisturbed_spread: Callable[[int], Outcome]) -> None:
    service = setting.service
    sight = Link(service.folder, setting.stack)
    sight.begin(service, "ab", 2)
    job = service.held("job")
    node = job.node_of(1)
    for interface in ("eth2", "eth3", "eth4"):  # a note is reported once, so the last one shows that all before have arrived
        for _ in range(3):
            sight.blinks(node, interface)
        wait_until(lambda words=f"{interface} of node {node}: ": words in job.output, "the note", LONG)  # type: ignore[misc]
    assert job.status()["taints"] == {} and [line["taint"] for line in service.get("nodes")] == ["", ""]
    job.let("let go")
    assert job.ends_like(undisturbed_spread(2)).incidents == []


def test_of_nodes_that_are_not_known_nothing_follows(setting: Setting, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """A server names them, and other nodes of the job, which the agents there ask for themselves."""
    service = setting.service
    sight = Asked(service.folder, setting.stack)
    sight.begin(service, "ab", 2)
    job = service.held("job")
    node = job.node_of(1)
    (other,) = {"a", "b"} - {node}
    sight.lists(node, ("nowhere", 79), ("10.9.9.9", 79), (node.upper(), 79), (other, 79), (node, 0))
    asked = len(sight.pages[node].asked)
    wait_until(lambda: len(sight.pages[node].asked) > asked + 3, "more looks", LONG)
    status = job.status()
    assert (status["taints"], status["evidence"], status["state"]) == ({}, [], "training")
    assert [line["taint"] for line in service.get("nodes")] == ["", ""]
    sight.lists(node, ("nowhere", 79), (node, 79))
    job.moves("let go", away_from=node)
    assert job.status()["taints"] == {node: sight.why}
    (incident,) = job.ends_like(undisturbed_spread(2)).incidents
    assert incident["ranks"][0]["detail"].endswith(sight.why)
