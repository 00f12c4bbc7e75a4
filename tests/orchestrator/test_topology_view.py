"""Where groups are and what a loss would do, for programs and for people."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from tests.core.core_job import Job
from tests.message_texts import codes, has
from typer.testing import CliRunner

from understudy.cli import app
from understudy.cli.show_topology import topology_view
from understudy.core import events
from understudy.core.model import JobSpec
from understudy.messages import asking
from understudy.orchestrator import topology_view as view
from understudy.orchestrator.topology_view import topology_table


def two_racks(kept: tuple[str, ...] = ("tp",)) -> Job:
    """Ranks 0, 1 in rack a and 2, 3 in rack b; a spare in rack c, and one in rack a."""
    job = Job(JobSpec("job", 4, 1, nodes=4, spares=0, keep_together=kept), spares={**dict.fromkeys(range(4), 0), 4: 1, 5: 1})
    for number, rack in enumerate("aabbca"):
        job.submit(events.NodeLabelled(f"n{number}", (("nvlink-domain", rack), ("switch", "s1" if number < 3 else ""))))
    groups = [("tp", (0, 1)), ("tp", (2, 3)), ("dp", (0, 2)), ("world", (0, 1, 2, 3))]
    job.submit(events.GroupsListed("w0", 1, tuple(events.RankGroup(name, ranks) for name, ranks in groups)))
    return job


def shown(table: Any) -> str:
    terminal = io.StringIO()
    Console(file=terminal, width=160).print(topology_view(json.loads(json.dumps(table))))
    return terminal.getvalue()


def test_groups_and_where_they_are() -> None:
    table = topology_table(two_racks().machine)
    assert (table["job"], table["keep_together"], table["left_out"]) == ("job", ["tp"], 0)
    first, second, across, world = table["groups"]
    assert first == {
        "group": "tp",
        "ranks": [0, 1],
        "kept_together": True,
        "nvlink_domains": {"a": 2},
        "failure_domains": {"n0": 1, "n1": 1},
        "switches": {"s1": 2},
        "nodes": {"n0": 1, "n1": 1},
        "split": False,
    }
    assert second["switches"] == {"": 1, "s1": 1}
    assert (across["nvlink_domains"], across["kept_together"], across["split"]) == ({"a": 1, "b": 1}, False, False)
    assert world["ranks"] == [0, 1, 2, 3]
    places = {node["node"]: (node["nvlink_domain"], node["switch"], node["ranks"], node["spares"]) for node in table["nodes"]}
    assert places["n0"] == ("a", "s1", [0], 0) and places["n5"] == ("a", "", [], 1)


def test_losses_and_what_they_would_do() -> None:
    table = topology_table(two_racks().machine)
    found = {(loss["kind"], loss["name"]): loss for loss in table["losses"]}
    nodes = [("node", f"n{number}") for number in range(4)]
    assert found.keys() == {("nvlink-domain", "a"), ("nvlink-domain", "b"), ("switch", "s1"), *nodes}, "n4 and n5 have no rank"
    assert found["node", "n0"]["ranks"] == [{"rank": 0, "spare": "w5", "node": "n5", "splits": False}]
    assert found["node", "n2"]["ranks"] == [{"rank": 2, "spare": "w4", "node": "n4", "splits": True}]
    rack = found["nvlink-domain", "b"]
    assert rack["nodes"] == ["n2", "n3"] and [one["node"] for one in rack["ranks"]] == ["n4", "n5"] and rack["spares_coming"] == 0
    gone = found["nvlink-domain", "a"]
    assert [one["spare"] for one in gone["ranks"]] == ["w4", None] and gone["nodes"] == ["n0", "n1", "n5"]


def test_people_see_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    job = two_racks()
    job.lose("w2")
    text = shown(topology_table(job.machine))
    rows = {line.split("│")[1].strip() + " " + line.split("│")[2].strip(): line for line in text.splitlines() if line.count("│") > 2}
    assert "SPLIT" in rows["tp, kept together 2-3"] and "b (1), c (1)" in rows["tp, kept together 2-3"]
    assert "SPLIT" not in rows["tp, kept together 0-1"] and "world 0-3" in rows
    assert "0: w5 on n5" in rows["node n0 0"]
    assert "none at once" in rows["NVLink domain a 0-1"]
    monkeypatch.setattr(view, "MOST", 2)
    table = topology_table(job.machine)
    assert len(table["losses"]) == 2 and table["left_out"] > 2 and f"and {table['left_out']} more" in shown(table)


def test_of_very_many_ranks_the_first_losses_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_RANKS", 4)
    table = topology_table(two_racks().machine)
    assert [loss["name"] for loss in table["losses"]] == ["a", "b"] and table["left_out"] == 5


def test_the_same_nodes_are_lost_once() -> None:
    job = two_racks()
    for number in range(6):
        job.machine.state.nodes[f"n{number}"].domain = "row" + "aabbca"[number]
    kinds = [(loss["kind"], loss["name"]) for loss in topology_table(job.machine)["losses"] if loss["kind"] != "node"]
    assert kinds == [("nvlink-domain", "a"), ("nvlink-domain", "b"), ("switch", "s1")]


def test_before_the_first_comparison_no_group_is_known() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    table = topology_table(job.machine)
    assert table["groups"] == [] and has(shown(table), asking.GROUPS_UNKNOWN)
    job.submit(events.StopAsked("enough", 0))
    assert topology_table(job.machine)["losses"] == [], "a job that has ended loses nothing"


def test_one_question_at_a_time(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["status", "--state", "--topology", "--run-dir", str(tmp_path)])
    assert outcome.exit_code == 2 and asking.STATE_AND_TOPOLOGY.code in codes(outcome.output)


def test_a_name_is_no_markup() -> None:
    table = cast("dict[str, Any]", topology_table(two_racks().machine))
    table["groups"][0]["group"] = "[/]"
    assert "[/], kept together" in shown(table)
