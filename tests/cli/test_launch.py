"""What torchrun's flags mean here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from understudy.cli.flags import Flags
from understudy.cli.launch import Launch, Usage, ask_torch, launch

SCRIPT = str(Path(__file__))


def plan(**flags: object) -> Launch:
    return launch(Flags(**{"program": [SCRIPT, "--lr", "1"], **flags}), "name", count=lambda kind: 8)  # type: ignore[arg-type]


def test_one_node_is_the_default() -> None:
    job = plan()
    assert (job.spec.world_size, job.spec.nodes, job.spec.spares, job.node_rank) == (1, 1, 1, 0)
    assert (job.host, job.port) == ("127.0.0.1", 0)
    assert job.program == (SCRIPT, "--lr", "1")
    assert job.spec.job == "name"


@pytest.mark.parametrize(("text", "number"), [("4", 4), ("cpu", len(os.sched_getaffinity(0))), ("gpu", 8), ("auto", 8), ("xpu", 8)])
def test_workers_per_node(text: str, number: int) -> None:
    assert plan(nproc_per_node=text).spec.workers_per_node == number


def test_torch_is_asked_in_a_process_of_its_own() -> None:
    with pytest.raises(Usage, match="Unsupported nproc_per_node value: nonsense"):
        ask_torch("nonsense")


def test_several_nodes() -> None:
    job = plan(nnodes="2:2", node_rank=1, master_addr="host0", nproc_per_node="4", rdzv_id="run7")
    assert (job.spec.world_size, job.spec.nodes, job.spec.job) == (8, 2, "run7")
    assert (job.master, job.port, job.host) == ("host0", 29500, "0.0.0.0")
    job = plan(nnodes="2", node_rank=0, rdzv_endpoint="[fe80::1]:123", rdzv_backend="c10d")
    assert (job.master, job.port, job.host) == ("fe80::1", 123, "::")


def test_several_orchestrators() -> None:
    endpoints = (("host0", 29500), ("host1", 1), ("fe80::2", 2))
    for rank, (master, port) in enumerate([*endpoints, endpoints[2]]):
        job = plan(nnodes="4", node_rank=rank, rdzv_endpoint="host0,host1:1,[fe80::2]:2")
        assert (job.endpoints, job.master, job.port) == (endpoints, master, port)
    assert plan(nnodes="4", node_rank=1, rdzv_endpoint="host0:1").endpoints == ()


@pytest.mark.parametrize(
    ("flags", "spares"),
    [
        ({}, 1),
        ({"spares": 0}, 0),
        ({"floating_spares": 2}, 0),
        ({"floating_spares": 2, "spares": 3}, 3),
        ({"spare_nodes": 2}, 8),
        ({"spare_nodes": 2, "spares": 1}, 9),
        ({"spare_nodes": 1, "floating_spares": 1}, 4),
    ],
)
def test_whoever_has_nodes_for_spares_needs_none_beside_them(flags: dict[str, object], spares: int) -> None:
    spec = plan(nnodes="2", node_rank=0, master_addr="host0", nproc_per_node="4", **flags).spec
    assert (spec.nodes, spec.world_size, spec.spares) == (2, 8, spares)
    assert (spec.spare_nodes, spec.floating) == (flags.get("spare_nodes", 0), flags.get("floating_spares", 0))


def test_nodes_of_spares_come_behind_the_others() -> None:
    assert plan(nnodes="2", spare_nodes=1, node_rank=2, master_addr="host0").node_rank == 2
    several = plan(nnodes="1", spare_nodes=2, node_rank=2, rdzv_endpoint="host0,host1,host2")
    assert len(several.endpoints) == 3 and several.host == "0.0.0.0", "they may have an orchestrator"
    with pytest.raises(Usage, match="--spare-nodes is for a job that brings its nodes"):
        launch(Flags(program=[SCRIPT], spare_nodes=1), "name", count=lambda kind: 1, submitted=True)


def test_options_of_the_scheduler_s_for_nodes_that_are_claimed() -> None:
    job = plan(floating_spares=1, floating_option=["--qos=urgent", "--time=5"], rdzv_endpoint="n1:20000")
    assert job.claim_options == ("--qos=urgent", "--time=5")
    assert (job.host, job.master, job.port, job.alone) == ("0.0.0.0", "n1", 20000, False), "a node may come that has to reach this one"


def test_a_node_of_spares_has_to_reach_the_one_with_ranks() -> None:
    job = plan(spare_nodes=1, node_rank=1, master_addr="n1")
    assert (job.host, job.master, job.alone) == ("0.0.0.0", "n1", False)
    assert plan().alone


def test_standalone_ignores_the_rendezvous() -> None:
    job = plan(standalone=True, rdzv_endpoint="host:5", rdzv_id="x", rdzv_backend="c10d")
    assert (job.master, job.port, job.spec.job) == ("127.0.0.1", 0, "name")


def test_module() -> None:
    assert plan(module=True, program=("my.package", "-x")).program == ("-m", "my.package", "-x")


def test_streams_and_filters() -> None:
    job = plan(redirects="3", tee="0:1,2:2", local_ranks_filter="1,0")
    assert job.redirects == ((-1, 1), (-1, 2))
    assert job.tees == ((0, 1), (2, 2))
    assert job.shown_local_ranks == (0, 1)


def test_hang_limit_and_grace() -> None:
    job = plan(hang_limit=5.0, shutdown_timeout=3)
    assert (job.timeouts.hang_floor, job.timeouts.hang_factor, job.timeouts.stop) == (5.0, 1.0, 3)
    assert plan(hang_limit=5000.0).timeouts.hang_first == 5000.0
    short = plan(hang_limit=5.0, setup_limit=20.0).timeouts
    assert (short.hang_first, short.quiesce) == (20.0, 20.0) and plan(setup_limit=2000.0).timeouts.quiesce == 300.0


def test_heartbeats() -> None:
    job = plan(heartbeat=1.0, node_timeout=5.0, failure_domain="rack 3")
    assert (job.timeouts.heartbeat, job.timeouts.node_lost, job.domain) == (1.0, 5.0, "rack 3")


def test_signals() -> None:
    assert plan(signals_to_handle="SIGUSR1, SIGTERM").signals == (signal.SIGUSR1, signal.SIGTERM)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"nnodes": "1:4"}, "fixed number"),
        ({"nnodes": "0"}, "number of nodes"),
        ({"nnodes": "two"}, "number of nodes"),
        ({"nnodes": "2"}, "needs --node-rank"),
        ({"nnodes": "2", "node_rank": 2}, "not one of 0 to 1"),
        ({"nnodes": "2", "node_rank": 0}, "address of node 0"),
        ({"nnodes": "2", "node_rank": 0, "standalone": True}, "--standalone means one node"),
        ({"rdzv_backend": "etcd"}, "--rdzv-backend etcd is refused"),
        ({"rdzv_endpoint": "host:http"}, "HOST:PORT"),
        ({"nnodes": "2", "node_rank": 0, "rdzv_endpoint": "a:1,b:1"}, "a majority of 2 is 2"),
        ({"nnodes": "4", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,c:1,d:1"}, "a majority of 4 is 3"),
        ({"nnodes": "2", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,c:1"}, "there are 2 nodes"),
        ({"nnodes": "3", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,a:1"}, "the same address twice"),
        ({"nnodes": "3", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,"}, "HOST:PORT for each"),
        ({"nproc_per_node": "0"}, "at least one"),
        ({"spares": -1}, "--spares"),
        ({"spare_nodes": -1}, "--spare-nodes must not be negative"),
        ({"floating_spares": -1}, "--floating-spares must not be negative"),
        ({"spare_nodes": 1}, "--nnodes 1 --spare-nodes 1 needs --node-rank .0 to 1."),
        ({"nnodes": "2", "spare_nodes": 1, "node_rank": 3, "master_addr": "a"}, "not one of 0 to 2 .--nnodes 2 --spare-nodes 1."),
        ({"spare_nodes": 1, "standalone": True}, "--standalone means one node"),
        ({"spare_nodes": 1, "node_rank": 0, "master_addr": "a", "prepare": 2}, "--prepare 2: .* there are 1"),
        ({"heartbeat": 1.5}, "2 heartbeats .1.5. <= node_lost .2.0."),
        ({"node_timeout": 400.0}, "< quiesce .300.0."),
        ({"max_restarts": -1}, "--max-restarts"),
        ({"no_python": True}, "--no-python"),
        ({"virtual_local_rank": True}, "--virtual-local-rank"),
        ({"numa_binding": "node"}, "--numa-binding"),
        ({"logs_specs": "x"}, "--logs-specs"),
        ({"duplicate_stdout_filters": "x"}, "--duplicate-stdout-filters"),
        ({"redirects": "7"}, "--redirects"),
        ({"tee": "0:9"}, "--tee"),
        ({"local_ranks_filter": "a"}, "--local-ranks-filter"),
        ({"signals_to_handle": "SIGNOPE"}, "SIGNOPE"),
        ({"hang_limit": 0.0}, "--hang-limit"),
        ({"hang_limit": 5.0, "setup_limit": 4.0}, "--setup-limit"),
        ({"run_path": True, "program": ("relative.py",)}, "absolute"),
        ({"program": ("missing.py",)}, "no script missing.py"),
        ({"program": ()}, "give the script"),
    ],
)
def test_refusals_say_why(flags: dict[str, object], reason: str) -> None:
    with pytest.raises(Usage, match=reason):
        plan(**flags)


def test_notes() -> None:
    notes = plan(rdzv_conf="timeout=3", event_log_handler="console", rdzv_endpoint="h:1").notes
    assert len(notes) == 3


def test_drills_begin_at_a_step_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (plan(drill="20").spec.drill_at, plan(drill="1").spec.drill_at, plan(drill="off").spec.drill_at) == (20, 1, 0)
    for wrong in ("0", "-3", "on", "", "1.5"):
        with pytest.raises(Usage, match="from 1 on, or off"):
            plan(drill=wrong)
    assert plan(require_drill=True).spec.require_drill
    for without in ({"drill": "off"}, {"spares": 0}, {"no_replenish": True}):
        with pytest.raises(Usage, match="--require-drill: there are no drills"):
            plan(require_drill=True, **without)
