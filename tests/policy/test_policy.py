"""From evidence to its consequences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.message_texts import has, refused
from typer.testing import CliRunner, Result

import understudy.cli
from understudy.detectors.base import LEFT_OUT, Evidence, Severity, Subject
from understudy.messages import policies
from understudy.messages.base import Message
from understudy.policy.engine import Engine, PolicyContext, explain, held_back
from understudy.policy.rules import MOST_REPORTED, MOST_RULES, Action, Back, BadPolicy, Limits, Policy, default, default_text, parse

NOW = 1_000_000.0
NODES = {"w0": "rack1-a", "w1": "rack2-b"}
THREE = """
[[rule]]
name = "flaky"
detector = "nvml"
kind = "pcie-*"
node = "rack1-*"
subject = ["device"]
action = "leave"
after = 3
within = "10m"
hold = "1h"
"""


def seen(kind: str = "pcie-replay", happened: float = NOW, **more: Any) -> Evidence:
    rest = {"subject": Subject.DEVICE, "name": "rack1-a", "severity": Severity.SUSPECT, "detail": "many replays", "part": "gpu3", **more}
    return Evidence("nvml", happened=happened, kind=kind, **rest)


def test_the_default_policy_leaves_suspected_nodes_ends_lost_workers_and_notes_the_rest() -> None:
    engine = Engine(default())
    found = engine.decide(seen(), NODES, NOW)
    assert (found.action, found.node, found.until) == (Action.LEAVE, "rack1-a", 0.0)
    rule = "a node or a part of it that is suspected"
    assert found.why == policies.DECIDED(detail="many replays", detector="nvml", rule=rule)
    assert engine.decide(seen(severity=Severity.NOTE), NODES, NOW).action is Action.NOTE
    worker = seen(subject=Subject.WORKER, name="w1", part="")
    assert engine.decide(worker, NODES, NOW).action is Action.NOTE
    lost = engine.decide(seen(subject=Subject.WORKER, name="w1", part="", severity=Severity.LOST), NODES, NOW)
    assert (lost.action, lost.node) == (Action.LOST, "rack2-b")


@pytest.mark.parametrize(
    "other",
    [{"kind": "ecc"}, {"name": "rack2-b"}, {"subject": Subject.NODE}, {"subject": Subject.LINK}],
    ids=lambda other: next(iter(other)),
)
def test_what_no_rule_fits_is_a_note(other: dict[str, Any]) -> None:
    engine = Engine(parse(THREE.replace("after = 3", "after = 1"), "x.toml"))
    assert engine.decide(seen(), NODES, NOW).action is Action.LEAVE
    found = engine.decide(seen(**other), NODES, NOW)
    assert (found.action, found.rule) == (Action.NOTE, "")


def test_it_counts_events_and_not_how_often_they_are_reported() -> None:
    engine = Engine(parse(THREE, "x.toml"))
    for _ in range(5):
        found = engine.decide(seen(), NODES, NOW)
        assert found.action is Action.NOTE and has(found.why, policies.NOT_OFTEN_ENOUGH, rule="flaky", times=1, after=3, within=600)
    assert engine.decide(seen(happened=NOW + 60), NODES, NOW + 60).action is Action.NOTE
    assert engine.decide(seen(happened=NOW + 90, part="gpu4"), NODES, NOW + 90).action is Action.NOTE, "another part"
    third = engine.decide(seen(happened=NOW + 120), NODES, NOW + 120)
    assert (third.action, third.until) == (Action.LEAVE, NOW + 120 + 3600)


def test_a_detector_that_is_left_out_speaks_against_itself_only() -> None:
    engine = Engine(parse('[[rule]]\nname = "all"\naction = "leave"', "x.toml"))
    assert engine.decide(seen(), NODES, NOW).action is Action.LEAVE
    assert engine.decide(seen(kind=LEFT_OUT), NODES, NOW).action is Action.NOTE


def test_what_is_too_long_ago_does_not_count() -> None:
    engine = Engine(parse(THREE, "x.toml"))
    for then in (0, 550, 1101):
        assert engine.decide(seen(happened=NOW + then), NODES, NOW + then).action is Action.NOTE
    assert engine.decide(seen(happened=NOW + 1102), NODES, NOW + 1102).action is Action.LEAVE, "the last three are within ten minutes"


def test_the_end_of_a_taint_is_put_off_as_long_as_it_is_seen() -> None:
    engine = Engine(parse(THREE.replace("after = 3", "after = 1"), "x.toml"))
    assert [engine.decide(seen(happened=NOW + at), NODES, NOW + at).until for at in (0, 10)] == [NOW + 3600, NOW + 3610]


def test_evidence_that_has_worn_off_is_a_note_and_its_end_is_the_taint_s() -> None:
    engine = Engine(default())
    assert engine.decide(seen(until=NOW + 5), NODES, NOW).until == NOW + 5
    over = engine.decide(seen(until=NOW + 5), NODES, NOW + 5)
    assert over.over and over.action is Action.NOTE and has(over.why, policies.IS_OVER, detector="nvml")


def test_parts_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.policy.engine.MOST", 10)
    engine = Engine(parse(THREE, "x.toml"))
    for number in range(100):
        engine.decide(seen(part=f"gpu{number}"), NODES, NOW)
    assert len(engine._seen) == 10


def limits(text: str) -> Limits:
    return parse("[limits]\n" + text, "x.toml").limits


@pytest.mark.parametrize(
    ("hours", "clock", "quiet"),
    [
        ("22:00-06:00", "21:59", False),
        ("22:00-06:00", "22:00", True),
        ("22:00-06:00", "05:59", True),
        ("22:00-06:00", "06:00", False),
        ("09:00-17:00", "08:59", False),
        ("09:00-17:00", "09:00", True),
        ("09:00-17:00", "17:00", False),
    ],
)
def test_quiet_hours(hours: str, clock: str, quiet: bool) -> None:
    hour, minute = map(int, clock.split(":"))
    context = PolicyContext(86400.0 * 20_000 + hour * 3600 + minute * 60, spares=1)
    reason = held_back(limits(f'quiet_hours = ["{hours}"]'), context, "a")
    assert reason == (policies.QUIET_HOURS(clock=clock) if quiet else "")


def test_so_many_nodes_an_hour() -> None:
    two = limits("nodes_per_hour = 2")
    assert held_back(two, PolicyContext(NOW, left=[NOW - 3600, NOW - 1], spares=1), "a") == ""
    assert held_back(two, PolicyContext(NOW, left=[NOW - 3599, NOW - 1], spares=1), "a") == policies.ENOUGH_AN_HOUR(count=2, most=2)


def test_one_failure_domain_at_a_time() -> None:
    context = PolicyContext(NOW, leaving=["a"], spares=1)
    assert held_back(Limits(), context, "a") == ""
    assert held_back(Limits(), context, "b") == policies.OTHERS_LEAVE(domains="a", most=1)
    assert held_back(Limits(domains_at_a_time=2), context, "b") == ""


def test_so_many_spares_are_left() -> None:
    assert held_back(Limits(), PolicyContext(NOW, spares=1), "a") == ""
    assert held_back(Limits(), PolicyContext(NOW), "a") == policies.TOO_FEW_SPARES(spares=0, least=0)
    assert held_back(Limits(spares_left=1), PolicyContext(NOW, spares=2), "a") == ""
    assert held_back(Limits(spares_left=1), PolicyContext(NOW, spares=1), "a") == policies.TOO_FEW_SPARES(spares=1, least=1)


def rule(more: str = "") -> str:
    return f'[[rule]]\nname = "a"\naction = "note"\n{more}\n'


WRONG: dict[str, tuple[str, Message, dict[str, object]]] = {
    "no TOML": ("[[rule", policies.NOT_TOML, {"path": "x.toml"}),
    "unknown key of the scheduler": ("[scheduler]\ndrained = true", policies.BAD_VALUE, {"path": "x.toml", "place": "scheduler.drained: "}),
    "a word for yes": ('[scheduler]\nrelease = "yes"', policies.BAD_VALUE, {"place": "scheduler.release: "}),
    "a number for yes": ("[scheduler]\ndrain = 1", policies.BAD_VALUE, {"place": "scheduler.drain: "}),
    "no table": ("scheduler = true", policies.BAD_VALUE, {"place": "scheduler: "}),
    "unknown key": (rule('colour = "red"'), policies.BAD_VALUE, {"path": "x.toml", "place": "rule 1 (a), colour: "}),
    "no action": ('[[rule]]\nname = "a"', policies.BAD_VALUE, {"place": "rule 1 (a), action: "}),
    "unknown action": ('[[rule]]\nname = "a"\naction = "explode"', policies.BAD_VALUE, {"place": "rule 1 (a), action: "}),
    "no name": ('[[rule]]\naction = "note"', policies.BAD_VALUE, {"place": "rule 1, name: "}),
    "a duration": (rule('hold = "soon"'), policies.NO_DURATION, {"value": "soon"}),
    "a truth for a duration": (rule("hold = true"), policies.NO_DURATION, {"value": True}),
    "no time at all": (rule("hold = 0"), policies.BAD_VALUE, {"place": "rule 1 (a), hold: "}),
    "for ever": (rule("hold = inf"), policies.BAD_VALUE, {"place": "rule 1 (a), hold: "}),
    "never": (rule("after = 0"), policies.BAD_VALUE, {"place": "rule 1 (a), after: "}),
    "a lost node": ('[[rule]]\nname = "a"\naction = "lost"', policies.LOST_IS_FOR_WORKERS, {}),
    "hours": ('[limits]\nquiet_hours = ["25:00-26:00"]', policies.NO_TIME_OF_DAY, {"value": "25:00-26:00"}),
    "no hours": ('[limits]\nquiet_hours = ["22:00-22:00"]', policies.EMPTY_HOURS, {"value": "22:00-22:00"}),
    "less than nothing": ("[limits]\nnodes_per_hour = -1", policies.BAD_VALUE, {"place": "limits.nodes_per_hour: "}),
    "no domain": ("[limits]\ndomains_at_a_time = 0", policies.BAD_VALUE, {"place": "limits.domains_at_a_time: "}),
    "twice": (rule() + rule().replace("note", "taint"), policies.TWO_RULES, {"name": "a"}),
    "rules that are none": ("rule = 3", policies.BAD_VALUE, {"path": "x.toml", "place": "rule: "}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_policy_that_cannot_be_meant_is_refused_with_its_place(what: str) -> None:
    text, message, arguments = WRONG[what]
    with refused(BadPolicy, message, **arguments) as error:
        parse(text, "x.toml")
    assert "x.toml: " in str(error.value) or message is policies.NOT_TOML


@pytest.mark.parametrize(
    ("text", "release", "drain"),
    [("", True, False), ("[scheduler]\nrelease = false", False, False), ("[scheduler]\ndrain = true", True, True)],
)
def test_what_becomes_of_nodes_that_are_not_needed(text: str, release: bool, drain: bool) -> None:
    assert parse(text, "x.toml").scheduler == Back(release=release, drain=drain)
    assert default().scheduler == Back()


def test_it_is_explained_with_all_its_figures() -> None:
    assert explain(default())[4].startswith("5. a node or a part of it that is suspected: ")
    lines = explain(parse('[limits]\nquiet_hours = ["22:00-06:00"]\n' + THREE, "x.toml"))
    flaky = ("1. flaky: ", "detector nvml", "kind pcie-*", "nodes rack1-*", "device", "3 times", "600 s", "3600 s")
    figures: list[tuple[str, ...]] = [
        flaky,
        (),
        ("6 node(s)", "1 failure domain(s)", "0 warm spare(s)", "22:00 to 06:00"),
        ("check-node",),
        (),
    ]
    for line, words in zip(lines, figures, strict=True):
        assert all(word in line for word in words), line
    trusted, home = explain(parse('[trust]\ncheck = false\nreturn_home = true\nafter = "1h"', "x.toml"))[-2:]
    assert "check-node" not in trusted and "3600 s" in home
    assert Engine(Policy()).decide(seen(), NODES, NOW).action is Action.NOTE


def command(*arguments: str) -> Result:
    return CliRunner().invoke(understudy.cli.app, ["policy", *arguments], env={"COLUMNS": "200"})


def test_the_command_line_explains_it_and_reports_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(command("show").output)
    assert file.read_text() == default_text()
    assert command("check", str(file)).output.splitlines() == explain(default())
    assert json.loads(command("check", "--json").output)["rule"][0]["action"] == "lost"
    file.write_text('[limits]\nnodes_per_hour = -1\n[[rule]]\nname = "a"')
    found = command("check", str(file))
    assert found.exit_code == 2
    assert has(found.stderr, policies.BAD_VALUE, path=file, place="limits.nodes_per_hour: ")
    assert has(found.stderr, policies.BAD_VALUE, path=file, place="rule 1 (a), action: ")
    assert command("check", str(tmp_path / "none.toml")).exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".".join("a" * 30_000) + " = 1", policies.TOO_DEEP),
        ("[" + ".".join(["x"] * 20_000) + "]", policies.TOO_DEEP),
        ("# " + "x" * (1 << 16), policies.TOO_LONG),
        ("a = " + "[" * 30_000, policies.NOT_TOML),
        ("a = " + "9" * 60_000, policies.NOT_TOML),
    ],
)
def test_what_would_take_long_to_parse_is_refused(text: str, message: Message) -> None:
    """A tenant sends it, and the orchestrator serves others meanwhile."""
    with refused(BadPolicy, message):
        parse(text, "policy")


def test_what_lasts_may_last_for_a_year() -> None:
    rule = '[[rule]]\nname = "a"\nseverity = ["suspect"]\naction = "taint"\nhold = "365d"'
    assert parse(rule, "policy").rule[0].hold == 365 * 86400.0


def test_many_rules_and_many_mistakes_are_bounded() -> None:
    rules = "".join(f'[[rule]]\nname = "{number}"\naction = "leave"\n' for number in range(MOST_RULES + 1))
    for text in (rules, "[[rule]]\n" * 7000):
        with refused(BadPolicy, policies.BAD_VALUE) as caught:
            parse(text, "policy")
        assert len(caught.value.args[0].splitlines()) <= MOST_REPORTED
