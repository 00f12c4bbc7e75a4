"""Several orchestrators, on the hosts that train: the host of the one that leads is lost like any other, and two never lead at once."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.control.test_hosts import HELD, Spread, Start
from tests.integration.hosts import Host, needs_hosts, network
from tests.integration.processes import marked, pid_of, send, wait_for_end, wait_until
from tests.integration.training import LONG, Outcome, survived
from tests.message_texts import has

from understudy.common.names import JOURNAL
from understudy.messages import quorums, service_jobs
from understudy.orchestrator import journal

pytestmark = needs_hosts


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with marked() as mark, network(3) as hosts:
        yield lambda *flags, **options: Spread(hosts, tmp_path / "spread", mark, *flags, endpoints=3, **options)


@pytest.fixture
def undisturbed(undisturbed_spread: Callable[[int], Outcome]) -> Outcome:
    return undisturbed_spread(3)


def _warm(job: Spread, node: str) -> bool:
    return any(spare["node"] == node and spare["state"] == "warm" for spare in job.ask("status")["spares"])


def orchestrator(host: Host) -> int:
    """The process that serves there."""
    (pid,) = [pid for pid in host.pids() if b"understudy.orchestrator" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid


def leader(job: Spread) -> tuple[int, int]:
    """Return the highest term in which one has reported that it leads, and the number of its host."""
    reported = [(job.folder / f"output{number}.txt").read_text() for number in range(len(job.hosts))]
    return max((int(term), number) for number, text in enumerate(reported) for term in re.findall(rf"{quorums.LEADS.code}: .* (\d+)", text))


def leads_after(job: Spread, term: int) -> bool:
    return leader(job)[0] > term


def serves_after(job: Spread, number: int, pid: int) -> bool:
    found: int = json.loads((job.folder / f"run{number}" / "orchestrator.json").read_text())["pid"]
    return found != pid


def same_journals(job: Spread, *hosts: int) -> None:
    """In the folders of these hosts, after the end, and they are the whole story."""
    found = [journal.read(job.folder / f"run{number}" / JOURNAL) for number in hosts]
    first = found[0]
    assert first is not None and all(each is not None and each.events == first.events for each in found)
    assert journal.replay(first.settings, first.events).state.ended is not None


def test_the_host_of_rank_0_which_leads_vanishes(start: Start, undisturbed: Outcome) -> None:
    job = start(HELD=f"0:{HELD}")
    job.wait_for(f"held {HELD}")
    assert leader(job) == (1, 0)
    job.main = job.hosts[1]
    job.hosts[0].vanish()
    outcome = job.ends()
    (incident,) = survived(outcome, undisturbed)
    assert (incident["cause"], incident["rank"], len(incident["ranks"])) == ("node", 0, 1)
    assert has(incident["ranks"][0]["detail"], service_jobs.SILENT_WITH_ORCHESTRATOR)
    assert job.processes[2].wait(LONG) == 0
    same_journals(job, 1, 2)
    status = outcome.ask("status")
    assert (status["step"], status["exit_code"]) == (16, 0)


def test_the_leaders_host_is_cut_off_and_comes_back(start: Start, undisturbed: Outcome) -> None:
    """It decides nothing any more, hears that its rank is another's, and serves again."""
    job = start(HELD=f"0:{HELD}", WAIT="1")
    job.wait_for(f"held {HELD}")
    old = pid_of(lambda: job.ask("status")["ranks"][0])
    job.main = job.hosts[1]
    job.hosts[0].cut()
    job.wait_for_words(0, quorums.LEADS_NO_MORE.code)
    job.wait_for_step(HELD + 1, generation=1)
    (job.folder / "let go").touch()
    job.hosts[0].heal()
    wait_for_end(old)
    wait_until(lambda: _warm(job, "node0"), "a new spare there", LONG)
    (job.folder / "end").touch()
    (incident,) = survived(job.ends(), undisturbed)
    assert (incident["cause"], incident["rank"]) == ("node", 0)
    assert [process.wait(LONG) for process in job.processes] == [0, 0, 0]
    same_journals(job, 0, 1, 2)


def test_the_orchestrator_that_leads_is_killed_in_the_middle_of_incidents(start: Start, undisturbed: Outcome) -> None:
    """Each time another one leads; the one that was killed is started again and catches up."""
    phases = {"survivor": 6, "apply": 10}
    named = ",".join(f"{phase}:{step}" for phase, step in phases.items())
    job = start(HELD=",".join(f"1:{step}" for step in phases.values()), PHASES=named)
    for phase, step in phases.items():
        job.wait_for(f"held {step}")
        wait_until(lambda: any(spare["state"] == "warm" for spare in job.ask("status")["spares"]), "a warm spare", LONG)
        send(pid_of(lambda: job.ask("status")["ranks"][1]), signal.SIGKILL)
        job.wait_for(phase)
        term, number = leader(job)
        pid = orchestrator(job.hosts[number])
        send(pid, signal.SIGKILL)
        wait_until(partial(leads_after, job, term), "another one leads", LONG)
        wait_until(partial(serves_after, job, number, pid), "the one that was killed is there again", LONG)
        (job.folder / f"go on {phase}").touch()
    incidents = survived(job.ends(), undisturbed, losses=len(phases))
    assert [(incident["rank"], incident["cause"]) for incident in incidents] == [(1, "killed")] * len(phases)
    assert [process.wait(LONG) for process in job.processes] == [0, 0, 0]
    same_journals(job, 0, 1, 2)


def test_a_listed_host_that_lost_its_disk_takes_no_part_but_serves(start: Start, undisturbed: Outcome) -> None:
    """It has forgotten what it had acknowledged, so it must not vote again; it can be a node of the job."""
    job = start(HELD=f"2:{HELD}", WAIT="1")
    job.wait_for(f"held {HELD}")
    job.hosts[2].vanish()
    job.wait_for_step(HELD + 1, generation=1)
    job.hosts[2].heal()
    job.start_again(2)
    job.wait_for_words(2, quorums.MEMBER_REPLACED())
    wait_until(lambda: _warm(job, "node2"), "a new spare there", LONG)
    (job.folder / "end").touch()
    survived(job.ends(), undisturbed)
    assert job.processes[2].wait(LONG) == 0
    same_journals(job, 0, 1)
    assert journal.read(job.folder / "run2 again" / JOURNAL) is None
