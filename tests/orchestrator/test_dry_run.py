"""What a policy would have done about the evidence in a journal; and that who leads next knows what was counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.core_job import Job
from tests.message_texts import has
from typer.testing import CliRunner, Result

import understudy.cli
from understudy.common.names import JOURNAL
from understudy.core.events import Event, NodeTainted
from understudy.core.model import JobSpec, Timeouts
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.messages import orchestrators, policies, service_jobs, tools
from understudy.orchestrator.detection import Responses, observed, observed_as
from understudy.orchestrator.journal import Journal
from understudy.orchestrator.settings import Settings
from understudy.policy.rules import parse

SPEC = JobSpec("job", world_size=2, workers_per_node=1, nodes=2, spares=2)
REPLAYS = Evidence("nvml", Subject.DEVICE, "n0", Severity.SUSPECT, "many replays", 100.0, "pcie-replay", "gpu3")
THRICE = '[[rule]]\nname = "flaky"\nkind = "pcie-*"\naction = "leave"\nafter = 3\nwithin = "10m"'


def opening() -> list[tuple[float, Event]]:
    """Of a job that trains."""
    found: list[tuple[float, Event]] = []

    class Recording(Job):
        def submit(self, event: Event) -> list[object]:  # type: ignore[override]
            answer = super().submit(event)
            found.append((self.now, event))
            return list(answer)

    Recording(SPEC)
    return found


def seen_at(*times: float, **more: object) -> list[tuple[float, Event]]:
    return [(at, observed(replace(REPLAYS, happened=at, **more))) for at in times]  # type: ignore[arg-type]


@pytest.fixture
def dry_run(tmp_path: Path) -> Callable[..., Result]:
    """`understudy policy check --dry-run` on a journal with these events."""

    def run(policy: str, events: list[tuple[float, Event]], *words: str) -> Result:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / JOURNAL).unlink(missing_ok=True)
        writer = Journal(folder / JOURNAL, print)
        writer.start()
        journal = writer.begin(Settings(SPEC, Timeouts()))
        for at, event in [*opening(), *events]:
            journal.append(at, event)
        writer.close()
        file = tmp_path / "policy.toml"
        file.write_text(policy)
        return CliRunner().invoke(understudy.cli.app, ["policy", "check", str(file), "--dry-run", str(folder), *words])

    return run


def done(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [step["done"] for step in json.loads(result.stdout)]


def test_another_policy_is_tried_out_on_what_was_seen(dry_run: Callable[..., Result]) -> None:
    events = seen_at(100.0, 200.0, 300.0, 400.0)
    noted, left = done(dry_run(THRICE, events, "--json"))  # each once, however often it is seen
    assert has(left, service_jobs.WOULD_LEAVE, node="n0")
    assert has(left, policies.DECIDED, detail="many replays", detector="nvml", rule="flaky")
    assert has(noted, service_jobs.NOTED, about="gpu3 of node n0")
    assert has(noted, policies.NOT_OFTEN_ENOUGH, rule="flaky", times=1, after=3, within=600)
    assert left not in done(dry_run(THRICE.replace("after = 3", "after = 5"), events, "--json"))
    (tainted,) = done(dry_run('[[rule]]\nname = "all"\naction = "taint"', events[:1], "--json"))
    assert has(tainted, service_jobs.WOULD_BE_TAINTED, node="n0")
    assert has(tainted, policies.DECIDED, detail="many replays", detector="nvml", rule="all")


def test_limits_and_ends_count_as_they_would_have(dry_run: Callable[..., Result]) -> None:
    leave = '[limits]\ndomains_at_a_time = 1\n[[rule]]\nname = "all"\naction = "leave"'
    both = seen_at(100.0) + seen_at(101.0, name="n1") + seen_at(150.0, until=150.0)
    found = done(dry_run(leave, both, "--json"))
    assert has(found[0], service_jobs.WOULD_LEAVE, node="n0")
    assert has(found[1], service_jobs.WOULD_BE_TAINTED, node="n1")
    assert has(found[2], service_jobs.RANKS_STAY_ON_NODE, node="n1") and has(found[2], policies.OTHERS_LEAVE, domains="n0")
    assert found[3] == service_jobs.WOULD_BE_TRUSTED(node="n0", detector="nvml")
    later = [*both, *seen_at(200.0, name="n1")]
    assert any(has(one, service_jobs.WOULD_LEAVE, node="n1") for one in done(dry_run(leave, later, "--json"))[4:])


def test_what_was_done_then_does_not_count_but_what_people_did_does(dry_run: Callable[..., Result]) -> None:
    then = (99.0, NodeTainted("n0", "as it was", "nvml", "gpu3", leave=True))
    leave = '[[rule]]\nname = "all"\naction = "leave"'
    (left,) = done(dry_run(leave, [then, *seen_at(100.0)], "--json"))
    assert has(left, service_jobs.WOULD_LEAVE, node="n0")
    assert has(left, policies.DECIDED, detail="many replays", detector="nvml", rule="all")
    person = (99.0, NodeTainted("n1", "a person's", leave=True))
    assert has(done(dry_run(leave, [person, *seen_at(100.0)], "--json"))[0], service_jobs.WOULD_BE_TAINTED, node="n0")


def test_for_a_person_it_is_a_table(dry_run: Callable[..., Result]) -> None:
    shown = dry_run('[[rule]]\nname = "all"\naction = "taint"', seen_at(100.0))
    assert has(shown.output, tools.DRY_RUN_ANSWERS, evidence="1 piece", answers="1 answer")
    assert time.strftime("%Y-%m-%d", time.localtime(100.0)) in shown.output
    assert has(dry_run(THRICE, []).output, tools.DRY_RUN_NOTHING, evidence="0 pieces")


def test_a_missing_journal_is_reported(tmp_path: Path) -> None:
    missing = CliRunner().invoke(understudy.cli.app, ["policy", "check", "--dry-run", str(tmp_path)])
    assert missing.exit_code == 2 and has(missing.output, orchestrators.NO_JOURNAL, folder=tmp_path)


def test_who_leads_next_counts_on() -> None:
    job = Job(SPEC)
    state, reported = job.machine.state, list[str]()
    first, second = (Responses(parse(THRICE, "x"), reported.append) for _ in range(2))
    for at in (100.0, 200.0):
        given = replace(REPLAYS, happened=at)
        assert first.news(given)
        assert first.event_of(given, state, at) is None
        second.recall(observed(given), state, at)
    third = replace(REPLAYS, happened=300.0)
    for responses in (first, second):
        assert responses.news(third)
        event = responses.event_of(third, state, 300.0)
        assert isinstance(event, NodeTainted) and event.leave


def test_who_leads_next_knows_what_ends_a_taint() -> None:
    job = Job(SPEC)
    responses = Responses(parse('[[rule]]\nname = "all"\naction = "leave"', "x"), print)
    job.submit(NodeTainted("n0", "many replays", "nvml", "gpu3", leave=True))
    responses.recall(observed(REPLAYS), job.machine.state, 100.0)
    over = responses.event_of(replace(REPLAYS, until=150.0), job.machine.state, 150.0)
    assert over == NodeTainted("n0", "", "nvml", "gpu3")


def test_the_same_is_no_news() -> None:
    responses = Responses(parse("", "x"), print)
    assert responses.news(REPLAYS) and not responses.news(REPLAYS)
    assert not responses.news(replace(REPLAYS, happened=101.0)), "a moment later"
    assert responses.news(replace(REPLAYS, happened=111.0))
    assert responses.news(replace(REPLAYS, happened=111.0, until=500.0))
    assert not responses.news(replace(REPLAYS, happened=111.0, until=505.0))
    assert responses.news(replace(REPLAYS, happened=111.0, until=900.0))
    assert responses.news(replace(REPLAYS, happened=111.0, until=900.0, severity=Severity.NOTE))
    assert observed_as(observed(REPLAYS)) == REPLAYS
