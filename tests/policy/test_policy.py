"""From evidence to what is done about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import understudy.cli
from understudy.detectors.base import LEFT_OUT, Evidence, Severity, Subject
from understudy.policy.engine import Engine, Standing, explain, held_back
from understudy.policy.rules import Action, Back, BadPolicy, Limits, Policy, default, default_text, parse

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
    assert found.why == "many replays (nvml), by rule 'a node or a part of it that is suspected'"
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


def test_it_counts_what_happens_and_not_how_often_it_is_told() -> None:
    engine = Engine(parse(THREE, "x.toml"))
    for _ in range(5):
        found = engine.decide(seen(), NODES, NOW)
        assert found.action is Action.NOTE and "seen 1 of 3 times in 600 s" in found.why
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
    assert over.over and over.action is Action.NOTE and over.why.endswith("which is over")


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
    standing = Standing(86400.0 * 20_000 + hour * 3600 + minute * 60, spares=1)
    told = held_back(limits(f'quiet_hours = ["{hours}"]'), standing, "a")
    assert (told == f"it is {clock} UTC, in quiet hours") is quiet and (told == "") is not quiet


def test_so_many_nodes_an_hour() -> None:
    two = limits("nodes_per_hour = 2")
    assert held_back(two, Standing(NOW, left=[NOW - 3600, NOW - 1], spares=1), "a") == ""
    assert "2 node(s) were left within an hour" in held_back(two, Standing(NOW, left=[NOW - 3599, NOW - 1], spares=1), "a")


def test_one_failure_domain_at_a_time() -> None:
    standing = Standing(NOW, leaving=["a"], spares=1)
    assert held_back(Limits(), standing, "a") == ""
    assert held_back(Limits(), standing, "b") == "ranks are leaving a (domains_at_a_time = 1)"
    assert held_back(Limits(domains_at_a_time=2), standing, "b") == ""


def test_so_many_spares_are_left() -> None:
    assert held_back(Limits(), Standing(NOW, spares=1), "a") == ""
    assert "0 warm spares" in held_back(Limits(), Standing(NOW), "a")
    assert held_back(Limits(spares_left=1), Standing(NOW, spares=2), "a") == ""
    assert "spares_left = 1" in held_back(Limits(spares_left=1), Standing(NOW, spares=1), "a")


WRONG = {
    "no TOML": ("[[rule", "x.toml is not TOML"),
    "unknown key of the scheduler": ("[scheduler]\ndrained = true", "x.toml: scheduler.drained: Extra inputs are not permitted"),
    "a word for yes": ('[scheduler]\nrelease = "yes"', "x.toml: scheduler.release"),
    "a number for yes": ("[scheduler]\ndrain = 1", "x.toml: scheduler.drain"),
    "no table": ("scheduler = true", "x.toml: scheduler"),
    "unknown key": ('[[rule]]\nname = "a"\naction = "note"\ncolour = "red"', "x.toml: rule 1 (a), colour: Extra inputs are not permitted"),
    "no action": ('[[rule]]\nname = "a"', "rule 1 (a), action: Field required"),
    "unknown action": ('[[rule]]\nname = "a"\naction = "explode"', "'note', 'taint', 'leave' or 'lost'"),
    "no name": ('[[rule]]\naction = "note"', "rule 1, name: Field required"),
    "a duration": ('[[rule]]\nname = "a"\naction = "note"\nhold = "soon"', "'soon' is no duration: write 30s, 10m, 1.5h or 2d"),
    "a truth for a duration": ('[[rule]]\nname = "a"\naction = "note"\nhold = true', "True is no duration"),
    "no time at all": ('[[rule]]\nname = "a"\naction = "note"\nhold = 0', "greater than 0"),
    "for ever": ('[[rule]]\nname = "a"\naction = "note"\nhold = inf', "less than or equal to"),
    "never": ('[[rule]]\nname = "a"\naction = "note"\nafter = 0', "greater than or equal to 1"),
    "a lost node": ('[[rule]]\nname = "a"\naction = "lost"', 'action = "lost" ends a worker: say subject = ["worker"]'),
    "hours": ('[limits]\nquiet_hours = ["25:00-26:00"]', "'25:00-26:00' is no time of day: write 22:00-06:00"),
    "no hours": ('[limits]\nquiet_hours = ["22:00-22:00"]', "begins when it ends"),
    "less than nothing": ("[limits]\nnodes_per_hour = -1", "greater than or equal to 0"),
    "no domain": ("[limits]\ndomains_at_a_time = 0", "greater than 0"),
    "twice": ('[[rule]]\nname = "a"\naction = "note"\n[[rule]]\nname = "a"\naction = "taint"', "two rules have the name 'a'"),
    "rules that are none": ("rule = 3", "x.toml: rule: "),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_policy_that_cannot_be_meant_is_refused_with_its_place(what: str) -> None:
    text, told = WRONG[what]
    with pytest.raises(BadPolicy) as error:
        parse(text, "x.toml")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "release", "drain"),
    [("", True, False), ("[scheduler]\nrelease = false", False, False), ("[scheduler]\ndrain = true", True, True)],
)
def test_what_becomes_of_nodes_that_are_not_needed(text: str, release: bool, drain: bool) -> None:
    assert parse(text, "x.toml").scheduler == Back(release=release, drain=drain)
    assert default().scheduler == Back()


def test_it_is_explained_in_sentences() -> None:
    done = "the node gets no more ranks and spares, and its ranks leave it"
    assert explain(default())[3] == f"4. a node or a part of it that is suspected: of severity lost or suspect: {done}."
    policy = parse('[limits]\nquiet_hours = ["22:00-06:00"]\n' + THREE, "x.toml")
    assert explain(policy) == [
        "1. flaky: detector nvml, kind pcie-*, on nodes rack1-*, about a device, seen 3 times within 600 s: "
        f"{done} for 3600 s behind the last time.",
        "What fits none of them is a note: told once, and nothing is done.",
        "Ranks begin to leave at most 6 node(s) in an hour, of 1 failure domain(s) at a time, each only if 0 warm spare(s) on trusted "
        "nodes are left then; none in quiet hours (22:00 to 06:00 UTC).",
        "A node whose taints have ended is trusted again when it has passed understudy check-node, unless ranks of the job are there.",
        "In a job whose nodes a scheduler has given, one that ranks have left for good, or that is lost goes back to it.",
    ]
    home = explain(parse('[trust]\ncheck = false\nreturn_home = true\nafter = "1h"', "x.toml"))
    assert home[-2:] == [
        "A node whose taints have ended is trusted again at once.",
        "When it has been trusted for 3600 s, the ranks that were started there go back, one after the other.",
    ]
    assert Engine(Policy()).decide(seen(), NODES, NOW).action is Action.NOTE


def command(*arguments: str) -> Result:
    return CliRunner().invoke(understudy.cli.app, ["policy", *arguments], env={"COLUMNS": "200"})


def test_the_command_line_explains_it_and_tells_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(command("show").output)
    assert file.read_text() == default_text()
    assert command("check", str(file)).output.splitlines() == explain(default())
    assert json.loads(command("check", "--json").output)["rule"][0]["action"] == "lost"
    file.write_text('[limits]\nnodes_per_hour = -1\n[[rule]]\nname = "a"')
    found = command("check", str(file))
    assert found.exit_code == 2
    assert f"understudy: {file}: limits.nodes_per_hour: Input should be greater than or equal to 0" in found.stderr
    assert "rule 1 (a), action: Field required" in found.stderr
    assert command("check", str(tmp_path / "none.toml")).exit_code == 2
