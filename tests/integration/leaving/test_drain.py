"""A node is drained under its running jobs, bit by bit the same as undisturbed; also in an incident, and past its deadline."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome
from tests.message_texts import has

from understudy.messages import asking, http_requests, moves, service_jobs

Undisturbed = Callable[[int], Outcome]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        yield Service(tmp_path, mark)


def draining(service: Service, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "understudy.cli", "drain", *words]
    return subprocess.Popen(command, env=service._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_node_that_serves_two_jobs_is_empty_and_used_again(service: Service, undisturbed_spread: Undisturbed) -> None:
    service.start_nodes("abc", 4)
    jobs = [service.held(name, spares=2) for name in ("first", "second")]
    (shared,) = {jobs[0].node_of(rank) for rank in (0, 1)} & {jobs[1].node_of(rank) for rank in (0, 1)}
    waiting = draining(service, shared, "--reason", "a new kernel", "--deadline", "10m", "--wait")
    for job in jobs:
        job.wait_for_pause()
    for job in jobs:
        assert job.status()["taints"] == {shared: "a new kernel"}
        assert job.status()["drains"][0]["stage"] == "draining" and job.status()["drains"][0]["ranks"]
        job.let("let go")
    output, _ = waiting.communicate(timeout=LONG)
    assert waiting.returncode == 0, output
    assert has(output, asking.DRAINED, node=shared)
    for job in jobs:
        status = job.status()
        assert all(one["node"] != shared for one in (*status["ranks"], *status["spares"])), status
        assert [drain["stage"] for drain in status["drains"]] == ["drained"]
    (line,) = [line for line in service.ask("nodes") if line["node"] == shared]
    assert (line["drain"], line["taint"]) == ("drained", service_jobs.NODE_DRAINED(reason="a new kernel"))
    service.orchestrator.kill()
    service.orchestrator.wait()
    service.start_orchestrator()
    service.wait_for_nodes(3)
    assert [line["drain"] for line in service.ask("nodes") if line["node"] == shared] == ["drained"], "it is known after a new start"
    back = service.command("undrain", shared, "--no-check")
    assert back.returncode == 0 and has(back.stdout + back.stderr, asking.UNDRAINED, node=shared, jobs="first, second"), back
    assert [(line["drain"], line["taint"]) for line in service.ask("nodes") if line["node"] == shared] == [("", "")]
    assert service.command("undrain", shared).returncode == 4
    for job in jobs:
        (incident,) = job.ends_like(undisturbed_spread(2)).incidents
        assert (incident["planned"], incident["cause"], incident["decision"]) == (True, "migrated", "boundary")
        assert incident["ranks"][0]["detail"] == moves.DRAINED(node=shared, reason="a new kernel")


def test_a_rack_is_drained_with_both_ranks(service: Service, undisturbed_spread: Undisturbed) -> None:
    """No rank goes from one of its nodes to the other; one waits until the other has moved, as one has to stay."""
    for name, rack in zip("abcd", ("rack1", "rack1", "rack2", "rack2"), strict=True):
        service.start_agent(name, 2, None, "--failure-domain", rack)
    service.wait_for_nodes(4)
    job = service.held("job", spares=2, HELD="1:6,1:9", EACH="1")
    ranks = [job.node_of(rank) for rank in range(2)]
    racks = {line["node"]: line["domain"] for line in service.ask("nodes")}
    rack = racks[ranks[0]]
    there = [node for node, its in racks.items() if its == rack]
    planned = service.command("drain", "--domain", rack, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    (plan,) = json.loads(planned.stdout)["plans"]
    leaving = [rank for rank in range(2) if ranks[rank] in there]
    assert (plan["ranks"], plan["warm"], plan["waiting"], plan["refused"]) == (leaving, len(leaving), 0, "")
    assert plan["pauses"] == len(leaving) and job.status()["taints"] == {}, "nothing has changed"
    waiting = draining(service, "--domain", rack, "--reason", "a new switch", "--wait")
    job.wait_for_pause()
    assert set(job.status()["taints"]) == set(there)
    job.let("let go 6")
    job.wait_for("held 9")
    if len(leaving) > 1:
        job.wait_for_pause()
    job.let("let go 9")
    output, _ = waiting.communicate(timeout=LONG)
    assert waiting.returncode == 0 and has(output, asking.DRAINED, node=" ".join(there)), output
    assert not {one["node"] for one in (*job.status()["ranks"], *job.status()["spares"])} & set(there)
    assert service.command("undrain", "--domain", rack, "--no-check").returncode == 0
    assert [line["drain"] for line in service.ask("nodes")] == ["", "", "", ""] and job.status()["taints"] == {}
    incidents = job.ends_like(undisturbed_spread(2)).incidents
    moved = sorted((part["rank"], part["cause"]) for one in incidents for part in one["ranks"])  # the one whose newcomer is ready is first
    assert moved == [(rank, "migrated") for rank in leaving]


def test_a_job_that_is_on_one_of_the_nodes_only(service: Service, undisturbed_spread: Undisturbed) -> None:
    """Nodes that the job does not use are no reason to refuse."""
    service.start_nodes("abcde", 2)
    job = service.held("job", spares=2)
    empty = [line["node"] for line in service.ask("nodes") if not line["jobs"]]
    assert empty, "ranks are on two nodes and spares on one or two"
    there = [job.node_of(1), *empty]
    planned = service.command("drain", *there, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    (plan,) = json.loads(planned.stdout)["plans"]
    assert (plan["ranks"], plan["pauses"], plan["refused"]) == ([1], 1, "")
    waiting = draining(service, *there, "--wait")
    job.wait_for_pause()
    job.let("let go")
    output, _ = waiting.communicate(timeout=LONG)
    assert waiting.returncode == 0, output
    assert [line["drain"] for line in service.ask("nodes") if line["node"] in there] == ["drained"] * len(there)
    (incident,) = job.ends_like(undisturbed_spread(2)).incidents
    assert [(part["rank"], part["cause"]) for part in incident["ranks"]] == [(1, "migrated")]


def test_what_is_to_be_drained_has_to_be_there(service: Service) -> None:
    service.start_nodes("a", 1)
    assert service.command("drain").returncode == 2
    unknown = service.command("drain", "--domain", "rack9")
    assert unknown.returncode == 2 and has(unknown.stderr + unknown.stdout, asking.NO_SUCH_DOMAIN, domain="rack9")
    assert service.command("drain", "a", "z").returncode == 4
    assert service.command("drain", "a", "--dry-run").returncode == 0
    assert [line["drain"] for line in service.ask("nodes")] == [""]


def test_past_its_deadline_what_is_late_is_given_up(service: Service, undisturbed_spread: Undisturbed) -> None:
    service.start_nodes("ab", 2)
    job = service.held("job", spares=2)
    node = job.node_of(1)
    waiting = draining(service, node, "--deadline", "4s", "--then", "lose", "--wait")  # rank 1 reaches no boundary
    output, _ = waiting.communicate(timeout=LONG)
    assert waiting.returncode == 0, output
    assert all(rank["node"] != node for rank in job.status()["ranks"])
    ended = job.ends_like(undisturbed_spread(2))
    assert "drained" in [rank["cause"] for incident in ended.incidents for rank in incident["ranks"]]


def test_past_its_deadline_what_is_late_is_left(service: Service, undisturbed_spread: Undisturbed) -> None:
    service.start_nodes("ab", 1)
    job = service.held("job", spares=0)
    node = job.node_of(1)
    refused = service.command("drain", node, "--reason", "a new kernel")
    assert refused.returncode == 4, refused
    assert has(refused.stderr + refused.stdout, moves.NOWHERE_TO_GO, ranks="rank 1"), refused
    assert job.status()["taints"] == {}, "nothing has changed"
    late = service.command("drain", node, "--force", "--deadline", "2s", "--wait", "--json")
    assert late.returncode == 3, late
    found = json.loads(late.stdout)
    assert (found["stage"], found["ranks"]) == ("late", {"job": [1]}), found
    assert job.node_of(1) == node
    job.let("let go")
    assert job.ends_like(undisturbed_spread(2)).incidents == []


def test_a_node_is_drained_in_an_incident(service: Service, undisturbed_spread: Undisturbed) -> None:
    service.start_nodes("abc", 2)
    job = service.held("job", spares=2, HELD="1:6,1:9", EACH="1", PHASES="apply:6")
    node = job.node_of(0)
    job.kill_rank(1)
    job.wait_for("apply")  # its newcomer takes over values
    waiting = draining(service, node, "--wait", "--deadline", "10m")
    wait_until(lambda: [drain["ranks"] for drain in job.status()["drains"]] == [[0]], "the drain is known", LONG)
    assert job.status()["drains"][0]["waits_for"], "it waits for the recovery"
    job.let("go on apply")
    job.wait_for("held 9")
    job.wait_for_pause()
    job.let("let go 9")
    output, _ = waiting.communicate(timeout=LONG)
    assert waiting.returncode == 0, output
    assert job.node_of(0) != node
    incidents = job.ends_like(undisturbed_spread(2)).incidents
    assert [(incident["planned"], incident["rank"]) for incident in incidents] == [(False, 1), (True, 0)]


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (["--deadline", "soon"], 2, asking.DEADLINE_FORM.code),
        (["--deadline", "0s"], 2, asking.DEADLINE_RANGE(value="0s")),
        (["--then", "explode"], 2, "explode"),
        ([], 1, http_requests.NO_SUCH_NODE(node="nowhere")),
    ],
)
def test_mistakes_are_reported(service: Service, words: list[str], code: int, reported: str) -> None:
    done = service.command("drain", "nowhere", *words)
    assert done.returncode == (4 if code == 1 else code) and reported in done.stdout + done.stderr, done
