"""Settings of a scheduler's job replace flags that were not given, and no others."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.message_texts import refused
from tests.schedulers.made_up_allocation import MadeUp

from understudy.cli import allocation
from understudy.cli.allocation import completed, found, run_name, secret
from understudy.cli.flags import Flags
from understudy.cli.launch import Launch, Usage, launch
from understudy.common.names import TOKEN_VARIABLE
from understudy.messages import starting
from understudy.messages.base import Message
from understudy.schedulers.base import SchedulerAway, SchedulerFailed


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may themselves run in a job of Slurm's."""
    for name in [name for name in os.environ if name.startswith("SLURM_") or name == TOKEN_VARIABLE]:
        monkeypatch.delenv(name)


def flags(**given: Any) -> Flags:
    return Flags(**{"program": [__file__], "nproc_per_node": "2", **given})


def plan(filled: Flags) -> Launch:
    return launch(filled, "name", count=lambda kind: 2)


FIRST, THREE = "10.0.0.0:20000", "10.0.0.0:20000,10.0.0.1:20001,10.0.0.2:20002"


@pytest.mark.parametrize(
    ("count", "spare", "nnodes", "endpoint"),
    [(1, 0, "1", ""), (2, 0, "2", FIRST), (2, 1, "1", FIRST), (3, 0, "3", THREE), (5, 2, "3", THREE), (5, 4, "1", THREE)],
)
@pytest.mark.parametrize("last", [False, True])
def test_all_nodes_but_the_spare_ones_have_ranks(count: int, spare: int, nnodes: str, endpoint: str, last: bool) -> None:
    here = MadeUp(count, count - 1 if last else 0)
    filled = completed(flags(spare_nodes=spare), here)
    assert (filled.nnodes, filled.rdzv_endpoint, filled.node_rank) == (nnodes, endpoint, here.place.number)
    spec = plan(filled).spec
    assert (spec.nodes, spec.spare_nodes, spec.world_size) == (int(nnodes), spare, 2 * int(nnodes))
    assert plan(filled).master == ("127.0.0.1" if count == 1 else here.place.addresses[min(here.place.number, 2) if count >= 3 else 0])


@pytest.mark.parametrize("nnodes", ["2", "2:2", "1:1"])
def test_a_number_of_nodes_that_fits_may_be_given(nnodes: str) -> None:
    assert completed(flags(nnodes=nnodes, spare_nodes=1), MadeUp(3)).nnodes == "2"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nnodes": "3", "spare_nodes": 1}, starting.NODES_UNLIKE_ALLOCATION),
        ({"nnodes": "1:3"}, starting.NODES_UNLIKE_ALLOCATION),
        ({"nnodes": "1"}, starting.NODES_UNLIKE_ALLOCATION),
        ({"nnodes": "x"}, starting.NODES_UNLIKE_ALLOCATION),
        ({"spare_nodes": 3}, starting.NO_NODE_FOR_RANKS),
    ],
)
def test_one_that_does_not_is_refused(given: dict[str, Any], message: Message) -> None:
    with refused(Usage, message, job="made-up-7", nodes=3, **given):
        completed(flags(**given), MadeUp(3))


def test_an_allocation_of_no_nodes_is_refused() -> None:
    with refused(Usage, starting.NO_NODE_FOR_RANKS, nodes=0):
        completed(flags(), MadeUp(0))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"node_rank": 0}, {"node_rank": 0, "rdzv_endpoint": THREE}),
        ({"master_port": 700}, {"rdzv_endpoint": "10.0.0.0:700,10.0.0.1:701,10.0.0.2:702", "master_port": None}),
        ({"rdzv_endpoint": "host:1", "master_port": 700}, {"rdzv_endpoint": "host:1", "master_port": 700}),
        ({"master_addr": "host", "master_port": 700}, {"rdzv_endpoint": "", "master_addr": "host", "master_port": 700}),
        ({"label": ["switch=mine"]}, {"label": ["switch=s3", "switch=mine"]}),
        ({}, {"label": ["switch=s3"], "node_rank": 1, "master_port": None}),
    ],
)
def test_what_was_given_stays(given: dict[str, Any], kept: dict[str, Any]) -> None:
    filled = completed(flags(**given), MadeUp(5, 1, (("switch", "s3"),)))
    assert {name: getattr(filled, name) for name in kept} == kept


def test_a_label_that_was_given_counts_more_than_the_scheduler_s() -> None:
    filled = completed(flags(label=["switch=mine"]), MadeUp(1, 0, (("switch", "s3"),)))
    assert dict(plan(filled).labels) == {"switch": "mine"}


def test_an_address_with_colons_is_bracketed() -> None:
    here = MadeUp(2)
    object.__setattr__(here.place, "addresses", ("fe80::1", "fe80::2"))
    filled = completed(flags(), here)
    assert filled.rdzv_endpoint == "[fe80::1]:20000" and plan(filled).host == "::"


@pytest.mark.parametrize(
    ("count", "number", "spare", "expected"),
    [
        (1, 0, 0, [("1 node", "", "")]),
        (2, 0, 0, [("2 nodes", "", "; orchestrators on n0")]),
        (5, 0, 2, [("5 nodes", ", 2 of them for spares", "; orchestrators on n0, n1, n2")]),
        (5, 1, 2, []),
    ],
)
def test_the_first_node_reports_it_in_one_line(
    count: int, number: int, spare: int, expected: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(allocation, "say", lines.append)
    completed(flags(spare_nodes=spare), MadeUp(count, number))
    assert lines == [starting.ALLOCATION(job="made-up-7", nodes=nodes, spares=spares, orchestrators=led) for nodes, spares, led in expected]


def test_each_node_has_a_run_directory_of_its_own() -> None:
    assert [run_name(MadeUp(2, number)) for number in (0, 1)] == ["made-up-7-n0", "made-up-7-n1"]


# -- whether there is one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"scheduler": "none"}, {"orchestrator": "http://x"}, {"check": True}, {"standalone": True}])
def test_some_commands_go_by_none(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "allocation", lambda *_: MadeUp())
    assert found(flags(**given)) is None and found(flags()) is not None


@pytest.mark.parametrize("error", [ValueError("six tasks"), SchedulerFailed("six tasks"), SchedulerAway("six tasks")])
def test_the_reason_why_it_cannot_work_is_reported(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(allocation, "allocation", fail)
    with pytest.raises(Usage, match="six tasks"):
        found(flags())


def test_without_one_nothing_changes_and_a_named_scheduler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(allocation, "say", lines.append)
    assert found(flags()) is None and lines == []
    with refused(Usage, starting.SCHEDULER_ABSENT, scheduler="slurm"):
        found(flags(scheduler="slurm"))
    with pytest.raises(Usage, match="pbs"):
        found(flags(scheduler="pbs"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert found(flags()) is None and len(lines) == 1 and "srun" in lines[0]


# -- the secret ------------------------------------------------------------------------------------------------------------------


def shares(here: MadeUp, **given: Any) -> str | None:
    asked = flags(**given)
    return secret(asked, plan(completed(asked, here)), here)


def test_the_first_node_makes_a_secret_and_the_others_wait_for_it() -> None:
    first, second = MadeUp(2), MadeUp(2, 1)
    made = shares(first)
    assert made is not None and len(made) >= 32 and first.recorded == [("share", made)]
    assert shares(second) == "hush" and second.recorded == [("shared", allocation.PATIENCE)]


def test_a_secret_that_was_given_or_is_not_needed_is_not_shared(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares(MadeUp(1)) is None and shares(MadeUp(2), token_file=tmp_path) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "given")
    assert shares(MadeUp(2)) is None


@pytest.mark.parametrize(("number", "call"), [(0, "share"), (1, "shared")])
@pytest.mark.parametrize("error", [SchedulerFailed("it is full"), OSError(28, "it is full")])
def test_one_that_cannot_be_shared_is_reported(number: int, call: str, error: Exception) -> None:
    here = MadeUp(2, number)
    here.fails[call] = error
    with refused(Usage, starting.SECRET_NOT_SHARED, reason=str(error)):
        shares(here)
