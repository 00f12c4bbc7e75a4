"""The state of the rails: its file, its metrics, and what `understudy network status` shows of it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.message_texts import codes, refused
from typer.testing import CliRunner

from understudy.cli import app
from understudy.common.rail_state import STALE, Failover, PathView, RailState, RailView, UnreadableState, read, write
from understudy.messages import network_rails
from understudy.network import metrics

WELL = PathView("node1", "r1", True, "", 90.0, 0.001, 100, 0, 0, 0.0)
STATE = RailState(
    "node0",
    4711,
    100.0,
    True,
    (RailView("r1", "10.1.0.1", "up", 1), RailView("r2", "10.2.0.1", "missing", 0)),
    (WELL, PathView("node1", "r2", False, "link", 80.0, None, 50, 7, 3, 12.0)),
    (),
    (Failover("node1", "r2", "link", 80.0, 0.02),),
    1,
    2,
    3,
)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "rails.json", STATE)
    assert read(tmp_path / "folder" / "rails.json") == STATE
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["rails.json"]


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]"])
def test_what_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rails.json").write_text(text)
    with refused(UnreadableState, network_rails.BAD_STATE, path=tmp_path / "rails.json"):
        read(tmp_path / "rails.json")
    with refused(UnreadableState, network_rails.NO_STATE, path=tmp_path / "none"):
        read(tmp_path / "none")


def test_metrics(tmp_path: Path) -> None:
    metrics.write(tmp_path / "folder" / "rails.prom", STATE)
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families((tmp_path / "folder" / "rails.prom").read_text())
        for sample in family.samples
    }
    assert found["understudy_rail_link", "r1"] == 1 and found["understudy_rail_link", "r2"] == 0
    assert found["understudy_rail_path_up", "node1", "r1"] == 1 and found["understudy_rail_path_up", "node1", "r2"] == 0
    assert found["understudy_rail_path_probes_total", "node1", "r2"] == 50
    assert found["understudy_rail_path_probes_lost_total", "node1", "r2"] == 7
    assert found["understudy_rail_path_failovers_total", "node1", "r2"] == 3
    assert found["understudy_rail_path_rtt_seconds", "node1", "r1"] == 0.001
    assert ("understudy_rail_path_rtt_seconds", "node1", "r2") not in found
    assert found["understudy_rail_packets_ignored_total", "unauthenticated"] == 2


@pytest.mark.parametrize(
    "change, code",
    [
        ({"paths": (WELL,)}, 0),
        ({}, 1),
        ({"paths": (WELL,), "stalled": ("node1",)}, 1),
        ({"paths": (WELL,), "running": False}, 1),
    ],
)
def test_status_ends_with_1_if_something_is_not_well(tmp_path: Path, change: dict[str, object], code: int) -> None:
    write(tmp_path / "rails.json", replace(STATE, written=time.time(), **change))  # type: ignore[arg-type]
    for more in ([], ["--json"]):
        shown = CliRunner().invoke(app, ["network", "status", "--state", str(tmp_path / "rails.json"), *more])
        assert shown.exit_code == code, shown.output
    found = json.loads(shown.stdout)
    assert (found["stale"], found["host"]) == ("running" in change, "node0")


def test_a_state_that_is_not_written_any_more_is_stale(tmp_path: Path) -> None:
    write(tmp_path / "rails.json", replace(STATE, paths=(WELL,), written=time.time() - 2 * STALE))
    shown = CliRunner().invoke(app, ["network", "status", "--state", str(tmp_path / "rails.json")])
    assert shown.exit_code == 1 and codes(shown.output) == [network_rails.STALE.code]


def test_without_a_state_there_is_no_status(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["network", "status", "--state", str(tmp_path / "none")])
    assert shown.exit_code == 2 and codes(shown.output) == [network_rails.NO_STATE.code]
