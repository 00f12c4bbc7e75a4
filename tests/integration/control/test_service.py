"""Many jobs on many nodes: submitting, following, waiting for slots, cancelling; and deaths in the control plane that stop no training."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.integration.hosts import needs_hosts, network
from tests.integration.processes import is_alive, marked, pid_of, send, wait_for_end, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome, survived
from tests.message_texts import has

from understudy.messages import agents, asking, http_requests, orchestrators, recoveries, run_options, service_jobs

HELD = 6
RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "2"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        yield Service(tmp_path, mark)


def test_jobs_come_wait_and_go(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    assert service.command("jobs").stderr == f"understudy: {asking.NOTHING_LISTED()}\n"
    waiting = service.run("first", RANKS, "spread.py", WAIT="1")
    waiting.wait_for_state("waiting")
    wait_until(lambda: has(waiting.status()["message"], service_jobs.WAITS_FOR_SLOTS), "what is missing", LONG)
    for name in "ab":
        service.start_agent(name, 2, None, "--failure-domain", f"rack of {name}", "--label", "kind=test")
    waiting.wait_for_state("training")
    second = service.run("second", RANKS, "spread.py", WAIT="1")
    second.wait_for_state("waiting")
    third = service.run("third", RANKS, "spread.py")
    third.wait_for_state("waiting")
    assert service.command("cancel", "third").returncode == 0
    assert third.ends().code == 143
    nodes = service.ask("nodes")
    assert [(node["node"], node["domain"], node["labels"], node["free"], node["jobs"]) for node in nodes] == [
        ("a", "rack of a", {"kind": "test"}, 0, ["first"]),
        ("b", "rack of b", {"kind": "test"}, 0, ["first"]),
    ]
    again = service.run("first-again", ["--rdzv-id", "first"], "spread.py").ends()
    assert again.code == 1 and has(again.output, http_requests.JOB_NAME_USED, job="first")

    send(waiting.process.pid, signal.SIGINT)
    assert waiting.process.wait(LONG) == 0
    assert has(waiting.output, asking.DETACHED, job="first")
    waiting.let("end")
    logs = service.command("logs", "--follow", "first")
    assert logs.returncode == 0
    assert has(logs.stdout, recoveries.ALL_FINISHED, ranks=2, incidents="no incidents")
    waiting.process.wait()
    assert waiting.status()["step"] == 16
    found = Outcome(0, "", waiting.folder).record
    assert found == undisturbed_spread(2).record

    second.wait_for_state("training")  # in the slots of the first
    assert service.command("cancel", "second").returncode == 0
    assert second.ends().code == 143
    states = {job["job"]: job["state"] for job in service.ask("jobs")}
    assert states == {"first": "finished", "second": "failed", "third": "failed"}
    wait_until(lambda: all(node["free"] == node["slots"] for node in service.ask("nodes")), "free slots", LONG)


@pytest.mark.gate
def test_a_script_that_fails_gives_its_exit_code(service: Service) -> None:
    service.start_agent("a", 1)
    job = service.run("failing", ["--spares", "0"], "misuse.py nested").ends()
    assert job.code == 2, "understudy refuses a script that is not there"
    assert has(job.output, run_options.SCRIPT_MISSING)


def test_a_job_that_the_journal_cannot_restore_is_put_aside_and_hinders_no_other(service: Service) -> None:
    """Its workers go on, and can be ended."""
    service.start_agent("a", 2)
    patient = ["--hang-limit", "900"]  # a node without an orchestrator ends workers that make no progress, and these make none
    odd = service.run("odd", ["--spares", "0", *patient], "spread.py", WAIT="1")
    odd.wait_for_state("training")
    pid = pid_of(lambda: odd.status()["ranks"][0])
    service.kill_orchestrator()
    place = service.state / "journal.db"
    with closing(sqlite3.connect(place)) as journal, journal:
        ((was,),) = journal.execute("select event from events where job = 'odd' and number = 1")
        journal.execute("update events set event = '{\"type\":\"NodeJoined\"}' where job = 'odd' and number = 1")
    service.start_orchestrator()
    service.wait_for_nodes(1)
    health = httpx.get(f"{service.url}/v1/health").json()
    assert health["status"] == "degraded" and health["problems"] == [orchestrators.JOBS_ASIDE(count=1)]
    (line,) = service.ask("jobs")
    assert line["state"] == "aside" and has(line["message"], orchestrators.EVENT_DAMAGED, number=1)
    assert has(service.command("status", "--job", "odd").stderr, http_requests.JOB_ASIDE, job="odd")
    assert service.run("odd2", ["--spares", "0", "--rdzv-id", "odd"], "spread.py").ends().code == 1, "the name is taken"
    good = service.run("good", ["--spares", "0"], "spread.py").ends()
    assert good.code == 0, good.output
    assert is_alive(pid), "it trains on"
    assert service.command("cancel", "odd").returncode == 0
    wait_for_end(pid)
    odd.process.terminate()
    odd.process.wait(LONG)
    with closing(sqlite3.connect(place)) as journal, journal:  # every journal of the tests is read at their end
        journal.execute("update events set event = ? where job = 'odd' and number = 1", (was,))


def test_one_orchestrator_for_each_folder_and_none_for_everybody(service: Service, tmp_path: Path) -> None:
    second = service.command("orchestrator", "--listen", "127.0.0.1:0", "--state-dir", str(service.state))
    assert second.returncode == 2
    assert has(second.stderr, orchestrators.FOLDER_TAKEN, folder=service.state)
    open_ = service.command("orchestrator", "--listen", "0.0.0.0:0", "--state-dir", str(tmp_path / "other"), UNDERSTUDY_TOKEN="")
    assert open_.returncode == 2
    assert has(open_.stderr, orchestrators.TOKEN_NEEDED, host="0.0.0.0")


def test_deaths_in_the_control_plane_stop_no_training(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """The agent of a node, and the orchestrator twice; a rank that is lost while it is away is replaced when it is back."""
    service.start_nodes("ab", 2)
    job = service.run("job", RANKS, "spread.py", HELD=f"1:{HELD}", WAIT="1")
    job.wait_for(f"held {HELD}")
    before = job.status()["ranks"]
    node = before[1]["node"]
    service.restart_agent(node)
    service.wait_for_nodes(2)
    wait_until(
        lambda: has((service.folder / f"agent-{node}.txt").read_text(), agents.PART_TAKEN_UP, job="job"), "the part is taken up", LONG
    )
    service.kill_orchestrator()
    send(before[1]["pid"], signal.SIGKILL)
    wait_for_end(before[1]["pid"])
    service.start_orchestrator()
    job.wait_for(f"step {HELD + 1} on 1 in generation 1")
    service.kill_orchestrator()
    service.start_orchestrator()
    job.let("end")
    (incident,) = survived(job.ends(), undisturbed_spread(2))
    assert (incident["rank"], incident["cause"]) == (1, "killed")
    assert job.status()["ranks"][0]["pid"] == before[0]["pid"]
    wait_until(lambda: all(n["free"] == n["slots"] for n in service.ask("nodes")), "free slots", LONG)


def test_the_orchestrator_is_killed_in_every_phase_of_an_incident(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """While a survivor stops, the newcomer sets up, receives state, and redoes the step: four incidents."""
    service.start_nodes("ab", 2)
    phases = {"survivor": 6, "setup": 8, "apply": 10, "redo": 12}
    held = ",".join(f"1:{step}" for step in phases.values())
    job = service.run("job", RANKS, "spread.py", HELD=held, PHASES=",".join(f"{phase}:{step}" for phase, step in phases.items()))
    for phase, step in phases.items():
        job.wait_for(f"held {step}")
        wait_until(lambda: any(spare["state"] == "warm" for spare in job.status()["spares"]), "a warm spare", LONG)
        job.kill_rank(1)
        job.wait_for(phase)
        service.kill_orchestrator()
        service.start_orchestrator()
        job.let(f"go on {phase}")
    incidents = survived(job.ends(), undisturbed_spread(2), losses=4)
    assert [(incident["rank"], incident["cause"], incident["decision"]) for incident in incidents] == [(1, "killed", "redo")] * 4


def test_a_part_that_is_killed_again_and_again_is_one_incident(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """It is given up: its rank goes to the other node's spare, and the next part has a new one."""
    service.start_nodes("ab", 2)
    job = service.run("job", [*RANKS, "--node-timeout", "60"], "spread.py", HELD=f"1:{HELD}", WAIT="1")
    job.wait_for(f"held {HELD}")
    rank = job.status()["ranks"][1]
    note = service.folder / f"agent-{rank['node']}" / "parts" / "job" / "part.json"
    killed: list[int] = []

    def another() -> int | None:
        pid = int(json.loads(note.read_text())["pid"])
        return pid if pid not in killed else None

    for _ in range(6):
        killed.append(pid_of(another, LONG))
        send(killed[-1], signal.SIGKILL)
    job.wait_for(f"step {HELD + 1} on 1 in generation 1")
    wait_until(lambda: any(s["node"] == rank["node"] and s["state"] == "warm" for s in job.status()["spares"]), "a spare there", LONG)
    job.let("end")
    (incident,) = survived(job.ends(), undisturbed_spread(2))
    assert (incident["rank"], incident["cause"]) == (1, "node")
    wait_for_end(rank["pid"])


@needs_hosts
@pytest.mark.parametrize("rank", [0, 1])
def test_any_host_of_a_job_may_vanish(tmp_path: Path, undisturbed_spread: Callable[[int], Outcome], rank: int) -> None:
    """Rank 0's, too, in whose store the ranks have met: the orchestrator is elsewhere."""
    with marked() as mark, network(4) as hosts:
        service = Service(tmp_path, mark, hosts[3])
        for number in range(3):
            service.start_agent(f"node{number}", 1, hosts[number])
        service.wait_for_nodes(3)
        job = service.run("job", ["--nnodes", "2", "--spares", "1"], "spread.py", HELD=f"{rank}:{HELD}")
        job.wait_for(f"held {HELD}")
        node = job.status()["ranks"][rank]["node"]
        hosts[int(node.removeprefix("node"))].vanish()
        (incident,) = survived(job.ends(), undisturbed_spread(2))
        assert (incident["rank"], incident["cause"]) == (rank, "node")
        assert {n["node"]: n["state"] for n in service.ask("nodes")}[node] == "away"
