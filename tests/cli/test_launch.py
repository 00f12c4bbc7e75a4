"""What torchrun's flags mean here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.message_texts import arguments_of, refused

from understudy.cli.flags import Flags
from understudy.cli.launch import Launch, Usage, ask_torch, launch
from understudy.links.submission import shared
from understudy.messages import run_options
from understudy.messages.base import Message

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
    with refused(Usage, run_options.WORKERS_UNKNOWN, value="nonsense") as caught:
        ask_torch("nonsense")
    assert "nonsense" in str(arguments_of(caught.value.args[0])["reason"])


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
def test_a_job_with_nodes_for_spares_needs_no_others(flags: dict[str, object], spares: int) -> None:
    spec = plan(nnodes="2", node_rank=0, master_addr="host0", nproc_per_node="4", **flags).spec
    assert (spec.nodes, spec.world_size, spec.spares) == (2, 8, spares)
    assert (spec.spare_nodes, spec.floating) == (flags.get("spare_nodes", 0), flags.get("floating_spares", 0))


def test_nodes_of_spares_come_after_the_others() -> None:
    assert plan(nnodes="2", spare_nodes=1, node_rank=2, master_addr="host0").node_rank == 2
    several = plan(nnodes="1", spare_nodes=2, node_rank=2, rdzv_endpoint="host0,host1,host2")
    assert len(several.endpoints) == 3 and several.host == "0.0.0.0", "they may have an orchestrator"
    with refused(Usage, run_options.SPARE_NODES_SUBMITTED):
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


def test_groups_that_are_kept_together() -> None:
    assert plan(keep_together=["tp", "cp", "tp"]).spec.keep_together == ("tp", "cp") and plan().spec.keep_together == ()
    assert shared(plan(keep_together=["tp"]).spec)["keep_together"] == ("tp",), "a job that is submitted has them, too"


def test_signals() -> None:
    assert plan(signals_to_handle="SIGUSR1, SIGTERM").signals == (signal.SIGUSR1, signal.SIGTERM)


@pytest.mark.parametrize(
    ("flags", "message", "arguments"),
    [
        ({"as_json": True}, run_options.JSON_WITHOUT_CHECK, {}),
        ({"nnodes": "1:4"}, run_options.NODES_RANGE, {"nnodes": "1:4", "most": 4}),
        ({"nnodes": "0"}, run_options.NODES_FORM, {"nnodes": "0"}),
        ({"nnodes": "two"}, run_options.NODES_FORM, {"nnodes": "two"}),
        ({"nnodes": "2"}, run_options.NODE_RANK_NEEDED, {"nodes": "--nnodes 2", "last": 1}),
        ({"nnodes": "2", "node_rank": 2}, run_options.NODE_RANK_RANGE, {"node_rank": 2, "last": 1}),
        ({"nnodes": "2", "node_rank": 0}, run_options.MASTER_NEEDED, {"nodes": "--nnodes 2"}),
        ({"nnodes": "2", "node_rank": 0, "standalone": True}, run_options.STANDALONE_NODES, {"nodes": 2}),
        ({"rdzv_backend": "etcd"}, run_options.RENDEZVOUS_REFUSED, {"backend": "etcd"}),
        ({"rdzv_endpoint": "host:http"}, run_options.ENDPOINT_FORM, {"endpoint": "host:http"}),
        ({"nnodes": "2", "node_rank": 0, "rdzv_endpoint": "a:1,b:1"}, run_options.ENDPOINTS_EVEN, {"count": 2, "majority": 2}),
        ({"nnodes": "4", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,c:1,d:1"}, run_options.ENDPOINTS_EVEN, {"count": 4, "majority": 3}),
        ({"nnodes": "2", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,c:1"}, run_options.ENDPOINTS_TOO_MANY, {"count": 3, "nodes": 2}),
        ({"nnodes": "3", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,a:1"}, run_options.ENDPOINT_TWICE, {"endpoints": "a:1,b:1,a:1"}),
        ({"nnodes": "3", "node_rank": 0, "rdzv_endpoint": "a:1,b:1,"}, run_options.ENDPOINTS_FORM, {"endpoints": "a:1,b:1,"}),
        ({"nproc_per_node": "0"}, run_options.NO_WORKERS, {"value": "0", "count": 0}),
        ({"spares": -1}, run_options.NEGATIVE, {"option": "--spares"}),
        ({"spare_nodes": -1}, run_options.NEGATIVE, {"option": "--spare-nodes"}),
        ({"floating_spares": -1}, run_options.NEGATIVE, {"option": "--floating-spares"}),
        ({"max_restarts": -1}, run_options.NEGATIVE, {"option": "--max-restarts"}),
        ({"spare_nodes": 1}, run_options.NODE_RANK_NEEDED, {"nodes": "--nnodes 1 --spare-nodes 1", "last": 1}),
        (
            {"nnodes": "2", "spare_nodes": 1, "node_rank": 3, "master_addr": "a"},
            run_options.NODE_RANK_RANGE,
            {"node_rank": 3, "last": 2, "nodes": "--nnodes 2 --spare-nodes 1"},
        ),
        ({"spare_nodes": 1, "standalone": True}, run_options.STANDALONE_NODES, {"nodes": 2}),
        ({"spare_nodes": 1, "node_rank": 0, "master_addr": "a", "prepare": 2}, run_options.PREPARE_RANGE, {"prepare": 2, "spares": 1}),
        ({"rdzv_id": "a/b"}, run_options.JOB_NAME_SLASH, {"job": "a/b"}),
        ({"heartbeat": 1.5}, run_options.TIMEOUTS_REFUSED, {}),
        ({"node_timeout": 400.0}, run_options.TIMEOUTS_REFUSED, {}),
        ({"hang_limit": 0.0}, run_options.TIMEOUTS_REFUSED, {}),
        ({"hang_limit": 5.0, "setup_limit": 4.0}, run_options.TIMEOUTS_REFUSED, {}),
        ({"no_python": True}, run_options.NO_PYTHON_REFUSED, {}),
        ({"virtual_local_rank": True}, run_options.VIRTUAL_LOCAL_RANK_REFUSED, {}),
        ({"numa_binding": "node"}, run_options.NUMA_BINDING_REFUSED, {}),
        ({"logs_specs": "x"}, run_options.LOGS_SPECS_REFUSED, {}),
        ({"duplicate_stdout_filters": "x"}, run_options.DUPLICATE_FILTERS_REFUSED, {}),
        ({"label": ["rack"]}, run_options.LABEL_FORM, {"label": "rack"}),
        ({"redirects": "7"}, run_options.STREAMS_FORM, {"option": "--redirects", "value": "7"}),
        ({"tee": "0:9"}, run_options.STREAMS_FORM, {"option": "--tee", "value": "0:9"}),
        ({"local_ranks_filter": "a"}, run_options.LOCAL_RANKS_FORM, {"value": "a"}),
        ({"signals_to_handle": "SIGNOPE"}, run_options.SIGNAL_UNKNOWN, {"name": "SIGNOPE"}),
        ({"program": ("missing.py",)}, run_options.SCRIPT_MISSING, {"script": "missing.py"}),
        ({"program": ()}, run_options.SCRIPT_NEEDED, {}),
    ],
)
def test_refusals_give_the_reason(flags: dict[str, object], message: Message, arguments: dict[str, object]) -> None:
    with refused(Usage, message, **arguments):
        plan(**flags)


def test_notes() -> None:
    notes = plan(rdzv_conf="timeout=3", event_log_handler="console", rdzv_endpoint="h:1").notes
    assert notes == (run_options.RENDEZVOUS_CONF_IGNORED(), run_options.EVENT_LOG_IGNORED(), run_options.ENDPOINT_HOST_IGNORED())


def test_drills_begin_at_a_step_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (plan(drill="20").spec.drill_at, plan(drill="1").spec.drill_at, plan(drill="off").spec.drill_at) == (20, 1, 0)
    for wrong in ("0", "-3", "on", "", "1.5"):
        with refused(Usage, run_options.DRILL_FORM, value=wrong):
            plan(drill=wrong)
    assert plan(require_drill=True).spec.require_drill
    for without in ({"drill": "off"}, {"spares": 0}, {"no_replenish": True}):
        with refused(Usage, run_options.REQUIRE_DRILL):
            plan(require_drill=True, **without)
