"""Apply and undo, on a kernel in memory: refused or killed at every change, what was there before comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.message_texts import refused
from tests.network.fake_kernel import HOSTS, FakeKernel, Killed

from understudy.messages import network_rails
from understudy.network import changes
from understudy.network.configuration import BadNetwork
from understudy.network.kernel import Hop, KernelRefused, Link, Route
from understudy.network.steps import Outcome

STEPS = 1 + 1 + 5 + 2  # bridge, address, settings, routes


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "before.json"


def test_apply_and_undo(kernel: FakeKernel, record: Path) -> None:
    before = kernel.everything()
    assert [there for _, there in changes.pending(kernel.network(), kernel)] == [False] * STEPS
    assert kernel.everything() == before, "a plan changes nothing"
    made = changes.apply(kernel.network(), kernel, record)
    assert (len(made.done), made.there, made.reverted) == (STEPS, (), ())
    assert kernel.route["10.72.0.3"].hops == (Hop("10.1.0.3", "r1"), Hop("10.2.0.3", "r2"))
    assert "undo" in json.loads(record.read_text())["about"]
    undone = changes.undo(kernel, record)
    assert {outcome for _, outcome in undone.steps} == {Outcome.RESTORED} and len(undone.steps) == STEPS
    assert kernel.everything() == before
    with refused(BadNetwork, network_rails.NOTHING_APPLIED, path=record):
        changes.undo(kernel, record)


def test_a_second_apply_changes_nothing_and_keeps_the_first_values(kernel: FakeKernel, record: Path) -> None:
    before = kernel.everything()
    changes.apply(kernel.network(), kernel, record)
    kernel.route["10.72.0.2"] = replace(kernel.route["10.72.0.2"], hops=(Hop("10.2.0.2", "r2"),))  # the agent has withdrawn one
    applied, text = kernel.everything(), record.read_text()
    made = changes.apply(kernel.network(), kernel, record)
    assert (made.done, len(made.there)) == ((), STEPS)
    assert (kernel.everything(), record.read_text()) == (applied, text)
    kernel.settings["net/ipv4/conf/r1/rp_filter"] = "1"
    made = changes.apply(kernel.network(), kernel, record)
    assert [step.command for step in made.done] == ["sysctl -w net.ipv4.conf.r1.rp_filter=2"]
    changes.undo(kernel, record)
    assert kernel.everything() == before


def test_what_was_there_before_apply_stays(kernel: FakeKernel, record: Path) -> None:
    kernel.settings["net/ipv4/conf/r1/rp_filter"] = "2"
    kernel.link["understudy0"] = Link(9, True, False, "bridge")
    before = kernel.everything()
    assert len(changes.apply(kernel.network(), kernel, record).done) == STEPS - 2
    changes.undo(kernel, record)
    assert kernel.everything() == before


@pytest.mark.parametrize("number", range(1, STEPS + 1))
def test_an_apply_that_is_refused_is_undone(kernel: FakeKernel, record: Path, number: int) -> None:
    before, kernel.refuse_at = kernel.everything(), number
    with pytest.raises(KernelRefused, match="refused by the test"):
        changes.apply(kernel.network(), kernel, record)
    assert kernel.everything() == before
    assert not record.exists()


@pytest.mark.parametrize("number", range(1, STEPS + 1))
def test_an_apply_that_was_killed_can_be_undone_or_finished(kernel: FakeKernel, record: Path, number: int) -> None:
    before = kernel.everything()
    for finish in (False, True):
        kernel.changes, kernel.kill_at = 0, number
        kernel.at_kill = lambda: (record.parent / "copy").write_bytes(record.read_bytes())
        with pytest.raises(Killed):
            changes.apply(kernel.network(), kernel, record)
        (record.parent / "copy").rename(record)  # as it was at the kill
        kernel.kill_at, kernel.frozen = 0, False
        if finish:
            assert len(changes.apply(kernel.network(), kernel, record).done) == STEPS - number + 1
        undone = changes.undo(kernel, record)
        assert sum(outcome is Outcome.RESTORED for _, outcome in undone.steps) == (STEPS if finish else number - 1)
        assert kernel.everything() == before


@pytest.mark.parametrize("number", range(1, STEPS + 1))
def test_an_undo_that_is_refused_can_be_repeated(kernel: FakeKernel, record: Path, number: int) -> None:
    before = kernel.everything()
    changes.apply(kernel.network(), kernel, record)
    kernel.changes, kernel.refuse_at = 0, number
    with pytest.raises(KernelRefused):
        changes.undo(kernel, record)
    kernel.refuse_at = 0
    undone = changes.undo(kernel, record)
    assert sum(outcome is Outcome.GONE for _, outcome in undone.steps) == number - 1
    assert kernel.everything() == before


def test_an_apply_that_cannot_be_undone_keeps_the_record(kernel: FakeKernel, record: Path) -> None:
    before = kernel.everything()

    def refuse(address: str, device: str) -> None:
        raise KernelRefused("nor this")

    kernel.refuse_at, kernel.remove_address = 4, refuse  # type: ignore[method-assign]
    with refused(BadNetwork, network_rails.NOT_REVERTED, reason="refused by the test", problem="nor this"):
        changes.apply(kernel.network(), kernel, record)
    del kernel.remove_address
    changes.undo(kernel, record)
    assert kernel.everything() == before


def test_another_configuration_adds_and_removes_what_differs(kernel: FakeKernel, record: Path) -> None:
    before = kernel.everything()
    changes.apply(kernel.network(), kernel, record)
    moved = [HOSTS[0], HOSTS[1].replace("10.2.0.2", "10.2.0.9"), "node3=10.72.0.4,10.1.0.4,10.2.0.4"]
    made = changes.apply(kernel.network(moved), kernel, record)
    assert sorted(kernel.route) == ["10.72.0.2", "10.72.0.4"]
    assert kernel.route["10.72.0.2"].hops[1] == Hop("10.2.0.9", "r2")
    assert [(step.key, outcome) for step, outcome in made.reverted] == [(("route", "10.72.0.3"), Outcome.RESTORED)]
    changes.undo(kernel, record)
    assert kernel.everything() == before


@pytest.mark.parametrize("number", [1, 2])
def test_another_configuration_that_is_refused_leaves_the_first_one(kernel: FakeKernel, record: Path, number: int) -> None:
    before = kernel.everything()
    changes.apply(kernel.network(), kernel, record)
    applied, text = kernel.everything(), record.read_text()
    moved = [HOSTS[0], HOSTS[1].replace("10.2.0.2", "10.2.0.9"), "node3=10.72.0.4,10.1.0.4,10.2.0.4"]
    kernel.changes, kernel.refuse_at = 0, number
    with pytest.raises(KernelRefused):
        changes.apply(kernel.network(moved), kernel, record)
    assert (kernel.everything(), record.read_text()) == (applied, text)
    changes.undo(kernel, record)
    assert kernel.everything() == before


def test_what_another_program_has_changed_since_is_left(kernel: FakeKernel, record: Path) -> None:
    changes.apply(kernel.network(), kernel, record)
    kernel.settings["net/ipv4/conf/r2/rp_filter"] = "1"
    del kernel.settings["net/ipv4/conf/r1/rp_filter"]  # the device is gone
    kernel.link["understudy0"] = replace(kernel.link["understudy0"], ports=1)
    kernel.route["10.72.0.2"] = Route("10.72.0.2", "", (Hop("192.0.2.1", "eth0"),), protocol=4)
    del kernel.route["10.72.0.3"]
    outcomes = {step.key[1]: outcome for step, outcome in changes.undo(kernel, record).steps}
    assert outcomes["net/ipv4/conf/r2/rp_filter"] is outcomes["understudy0"] is outcomes["10.72.0.2"] is Outcome.KEPT
    assert outcomes["net/ipv4/conf/r1/rp_filter"] is outcomes["10.72.0.3"] is Outcome.GONE
    assert outcomes["10.72.0.1"] is Outcome.RESTORED
    assert kernel.settings["net/ipv4/conf/r2/rp_filter"] == "1" and "understudy0" in kernel.link


@pytest.mark.parametrize(
    "link, address, route, message",
    [
        ({"understudy0": Link(9, True, True, "veth")}, [], {}, network_rails.DEVICE_TAKEN),
        ({"understudy0": Link(9, True, True, "bridge", ports=1)}, [], {}, network_rails.DEVICE_TAKEN),
        ({"understudy0": Link(9, False, False, "bridge")}, [], {}, network_rails.DEVICE_TAKEN),
        ({}, [("10.72.0.1", "r1")], {}, network_rails.ADDRESS_TAKEN),
        ({}, [], {"10.72.0.3": Route("10.72.0.3", "", (Hop("192.0.2.1", "eth0"),), protocol=4)}, network_rails.ROUTE_TAKEN),
    ],
)
def test_what_others_use_is_refused_before_anything_changes(
    kernel: FakeKernel, record: Path, link: dict[str, Link], address: list[tuple[str, str]], route: dict[str, Route], message: object
) -> None:
    kernel.link |= link
    kernel.address += address
    kernel.route |= route
    with refused(BadNetwork, message):  # type: ignore[arg-type]
        changes.apply(kernel.network(), kernel, record)
    assert kernel.changes == 0 and not record.exists()


def test_a_rail_that_is_set_down_is_left_out_of_routes(kernel: FakeKernel, record: Path) -> None:
    kernel.link["r2"] = replace(kernel.link["r2"], up=False)
    changes.apply(kernel.network(), kernel, record)
    assert kernel.route["10.72.0.2"].hops == (Hop("10.1.0.2", "r1"),)
    assert changes.apply(kernel.network(), kernel, record).done == ()


def test_a_kernel_without_a_setting(kernel: FakeKernel, record: Path) -> None:
    del kernel.settings["net/ipv4/fib_multipath_hash_policy"]
    with refused(BadNetwork, network_rails.NO_SETTING, setting="net.ipv4.fib_multipath_hash_policy"):
        changes.apply(kernel.network(), kernel, record)


def test_undo_after_a_restart_only_removes_the_record(kernel: FakeKernel, record: Path) -> None:
    changes.apply(kernel.network(), kernel, record)
    _change(record, boot="another")
    restarted = FakeKernel()
    restarted.settings["net/ipv4/conf/r1/rp_filter"] = "2"  # from the restarted system's own settings: not ours
    before = restarted.everything()
    undone = changes.undo(restarted, record)
    assert undone.restarted and {outcome for _, outcome in undone.steps} == {Outcome.GONE}
    assert restarted.everything() == before and not record.exists()


def test_apply_after_a_restart_begins_a_new_record(kernel: FakeKernel, record: Path) -> None:
    changes.apply(kernel.network(), kernel, record)
    _change(record, boot="another")
    restarted = FakeKernel()
    restarted.settings["net/ipv4/conf/r1/rp_filter"] = "1"
    before = restarted.everything()
    assert len(changes.apply(restarted.network(), restarted, record).done) == STEPS
    changes.undo(restarted, record)
    assert restarted.everything() == before


def test_the_record_of_another_namespace_is_refused(kernel: FakeKernel, record: Path) -> None:
    changes.apply(kernel.network(), kernel, record)
    _change(record, namespace="net:[1]")
    for refusing in (lambda: changes.undo(kernel, record), lambda: changes.apply(kernel.network(), kernel, record)):
        with refused(BadNetwork, network_rails.RECORD_OF_ANOTHER, path=record):
            refusing()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"about": "", "boot": "", "namespace": "", "steps": [{"kind": "other"}]}'])
def test_a_damaged_record_is_refused(kernel: FakeKernel, record: Path, text: str) -> None:
    record.parent.mkdir()
    record.write_text(text)
    with refused(BadNetwork, network_rails.RECORD_UNUSABLE, path=record):
        changes.undo(kernel, record)
    assert record.read_text() == text


def test_a_record_that_cannot_be_written_stops_apply(kernel: FakeKernel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused(BadNetwork, network_rails.RECORD_UNUSABLE):
        changes.apply(kernel.network(), kernel, tmp_path / "file" / "before.json")
    assert kernel.changes == 0


def _change(record: Path, **fields: str) -> None:
    record.write_text(json.dumps({**json.loads(record.read_text()), **fields}))
