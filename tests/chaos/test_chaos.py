"""The registry of faults, plans and their schedules, and faults that wait in files."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.message_texts import refused

from understudy import extensions
from understudy.chaos.armed import ANY, Armed, Folder
from understudy.chaos.base import Fault, Hits, Outcome, Parameter, Victim
from understudy.chaos.job import Away, NotHere, View, WatchedJob
from understudy.chaos.plan import BadPlan, make, read
from understudy.chaos.points import POINTS
from understudy.chaos.registry import registry
from understudy.chaos.schedule import Injection, schedule
from understudy.common.names import RUN_DIR_VARIABLE, WORKER_VARIABLE, WORKERS
from understudy.messages import extensions as extension_messages
from understudy.messages import faults
from understudy.messages.base import Message
from understudy.worker.fault_injection import chaos

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
RANDOM = {
    "fault": {"sigkill": 3, "segfault": 1},
    "rank": "random",
    "after": 1,
    "every": 2,
    "count": 8,
    "jitter": 1,
    "point": ["vote", "apply"],
}


def planned(*entries: dict[str, Any], seed: int = 0, ranks: int = 4, nodes: tuple[str, ...] = ("node0",)) -> list[Injection]:
    return schedule(make({"fault": list(entries)}, registry()), registry(), ranks, nodes, seed)


# -- the registry ------------------------------------------------------------------------------------------------------------


def test_every_fault_can_be_planned_and_describes_its_effect() -> None:
    for fault in registry().all():
        assert fault.text.endswith("."), fault.name
        (injection,) = planned({"fault": fault.name})
        assert injection.expected is (fault.alone or fault.expected)
        assert injection.values == fault.values({})


def test_the_faults_of_the_issue_are_there() -> None:
    wanted = {"sigkill", "sigstop", "sigterm", "segfault", "abort", "exception_in_thread", "gil_held", "out_of_memory", "exit", "disk_full"}
    wanted |= {"clock_jump", "socket_reset", "packet_drop", "slow_link", "agent_kill", "orchestrator_kill", "gpu_illegal_access"}
    assert wanted <= {fault.name for fault in registry().all()}


def test_a_fault_of_another_package_comes_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "entries", lambda group: (EntryPoint("ours", "tests.chaos.test_chaos:OURS", group),))
    registry.cache_clear()
    try:
        assert registry().find("coffee").text == "Coffee is spilt."
        monkeypatch.setattr(extensions, "entries", lambda group: (EntryPoint("ours", "tests.chaos.test_chaos:RANDOM", group),))
        registry.cache_clear()
        with refused(ValueError, extension_messages.WRONG_KIND, wanted="no Fault", found="dict"):
            registry()
    finally:
        registry.cache_clear()


OURS = Fault("coffee", "Coffee is spilt.", Hits.WORKER, Outcome.REPLACED, inside=lambda values: None)


@pytest.mark.parametrize(
    ("given", "message", "arguments"),
    [
        ({"second": 1}, faults.NO_SUCH_PARAMETER, {"fault": "pause", "parameter": "second", "known": "seconds"}),
        ({"seconds": "long"}, faults.WRONG_TYPE, {"fault": "pause", "parameter": "seconds", "value": "long"}),
        ({"seconds": -1}, faults.NEGATIVE, {"fault": "pause", "parameter": "seconds"}),
    ],
)
def test_parameters_are_checked(given: dict[str, Any], message: Message, arguments: dict[str, object]) -> None:
    with refused(ValueError, message, **arguments):
        registry().find("pause").values(given)


def test_a_fault_needs_something_to_do() -> None:
    with refused(ValueError, faults.NOTHING_TO_DO, fault="nothing"):
        Fault("nothing", "", Hits.WORKER, Outcome.REPLACED)
    with refused(ValueError, faults.INSIDE_A_WORKER, fault="lost"):
        Fault("lost", "", Hits.NODE, Outcome.REPLACED, inside=lambda values: None, parameters=(Parameter("a", 1, ""),))


# -- plans -------------------------------------------------------------------------------------------------------------------


def test_the_same_plan_and_seed_are_the_same_schedule() -> None:
    assert planned(RANDOM, seed=7) == planned(RANDOM, seed=7)
    assert planned(RANDOM, seed=7) != planned(RANDOM, seed=8)
    assert {one.rank for one in planned(RANDOM, seed=7)} <= set(range(4))
    assert {one.fault for seed in range(5) for one in planned(RANDOM, seed=seed)} == {"sigkill", "segfault"}


def test_an_entry_does_not_change_what_another_draws() -> None:
    def of_random(schedule: list[Injection]) -> list[tuple[object, ...]]:
        return [(one.fault, one.rank, one.after, one.point) for one in schedule if one.entry == 1]

    alone = planned(RANDOM)
    assert of_random(planned(RANDOM, {"fault": "abort", "rank": "random"})) == of_random(alone)
    fixed = [(fault, 2, after, point) for fault, _, after, point in of_random(alone)]
    assert of_random(planned({**RANDOM, "rank": 2})) == fixed


def test_when() -> None:
    steps = planned({"fault": "sigkill", "rank": 1, "at_step": 20, "every": 10, "count": 3}, {"fault": "abort", "at_step": 25})
    assert [(one.at_step, one.fault) for one in steps] == [(20, "sigkill"), (25, "abort"), (30, "sigkill"), (40, "sigkill")]
    assert [one.number for one in steps] == [1, 2, 3, 4]
    late = planned({"fault": "sigkill", "after": 1.5, "every": 2, "count": 3, "jitter": 0.5})
    assert all(start <= (one.after or 0) <= start + 0.5 for start, one in zip((1.5, 3.5, 5.5), late, strict=True))


def test_what_is_done_from_outside_at_a_point_has_a_rank_that_waits_there() -> None:
    of_node, of_worker, inside = planned(
        {"fault": "orchestrator_kill", "point": "vote", "at_rank": 2, "after": 1},
        {"fault": "pause", "point": "vote", "rank": 1, "after": 2},
        {"fault": "sigkill", "point": "vote", "rank": 1, "after": 3},
    )
    assert (of_node.at_rank, of_worker.at_rank, inside.at_rank) == (2, 1, None)


def test_a_fault_of_a_node_is_expected_to_end_a_job_that_has_only_one() -> None:
    (alone,) = planned({"fault": "node_cut"})
    (among,) = planned({"fault": "node_cut", "node": "b"}, nodes=("a", "b"))
    assert (alone.expected, alone.node) == (Outcome.ENDS, "node0") and (among.expected, among.node) == (Outcome.REPLACED, "b")
    (spare,) = planned({"fault": "sigkill", "spare": True})
    assert spare.expected is Outcome.UNDISTURBED and spare.target == "a spare"


@pytest.mark.parametrize(
    ("text", "place", "message", "arguments"),
    [
        ("seed = ", "", faults.NOT_TOML, {}),
        ("seed = 1", "", faults.MISSING_SETTING, {"place": "", "name": "fault"}),
        ("[[fault]]\nfault = 'sigkil'", "fault 1: ", faults.NO_SUCH_FAULT, {"fault": "sigkil"}),
        ("[[fault]]\nfault = 'sigkill'\nranks = 2", "fault 1: ", faults.UNKNOWN_SETTING, {"name": "ranks"}),
        (
            "[[fault]]\nfault = 'sigkill'\n[[fault]]\nfault = 'sigkill'\nat_step = -1",
            "",
            faults.BAD_SETTING,
            {"place": "fault 2: at_step: "},
        ),
        ("[[fault]]\nfault = 'sigkill'\nrank = 1\nspare = true", "fault 1: ", faults.SEVERAL_TARGETS, {"targets": "rank and spare"}),
        ("[[fault]]\nfault = 'sigkill'\nnode = 'a'", "fault 1: ", faults.HITS_A_WORKER, {"fault": "sigkill"}),
        (
            "[[fault]]\nfault = 'orchestrator_kill'\nrank = 1",
            "fault 1: ",
            faults.HITS_NO_WORKER,
            {"fault": "orchestrator_kill", "node": ""},
        ),
        (
            "[[fault]]\nfault = 'agent_kill'\nrank = 1",
            "fault 1: ",
            faults.HITS_NO_WORKER,
            {"fault": "agent_kill", "node": ", and give node"},
        ),
        ("[[fault]]\nfault = 'sigkill'\nat_step = 1\nafter = 1", "fault 1: ", faults.STEP_OR_TIME, {}),
        ("[[fault]]\nfault = 'sigkill'\ncount = 2", "fault 1: ", faults.COUNT_NEEDS_EVERY, {"count": 2}),
        ("[[fault]]\nfault = 'sigkill'\nat_step = 1\nevery = 1.5\ncount = 2", "fault 1: ", faults.WHOLE_STEPS, {}),
        ("[[fault]]\nfault = 'sigkill'\npoint = 'votes'", "fault 1: ", faults.NO_SUCH_POINT, {"point": "votes"}),
        ("[[fault]]\nfault = 'packet_drop'\npoint = 'vote'", "fault 1: ", faults.NEEDS_AT_RANK, {"fault": "packet_drop"}),
        ("[[fault]]\nfault = 'segfault'\npoint = 'vote'\nat_rank = 1", "fault 1: ", faults.AT_RANK_INSIDE, {"fault": "segfault"}),
        ("[[fault]]\nfault = 'packet_drop'\nat_rank = 1", "fault 1: ", faults.AT_RANK_WITHOUT_POINT, {}),
        ("[[fault]]\nfault = 'segfault'\nspare = true", "fault 1: ", faults.NOT_IN_A_SPARE, {"fault": "segfault"}),
        (
            "[[fault]]\nfault = 'packet_drop'\nparameters = {direction = 'up'}",
            "fault 1: ",
            faults.NOT_A_CHOICE,
            {"fault": "packet_drop", "parameter": "direction", "choices": "both, in, out", "value": "up"},
        ),
        ("[[fault]]\nfault = 'sigkill'\nexpect = 'peace'", "", faults.BAD_SETTING, {"place": "fault 1: expect: "}),
    ],
)
def test_a_bad_plan_is_refused_with_the_entry_and_what_is_allowed(
    text: str, place: str, message: Message, arguments: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with refused(BadPlan, message, **arguments) as error:
        read(path, registry())
    assert place in str(error.value) and "plan.toml" in str(error.value)


def test_a_target_that_the_job_does_not_have() -> None:
    with refused(BadPlan, faults.NO_SUCH_RANK, number=1, rank=4, last=3):
        planned({"fault": "sigkill", "rank": 4})
    with refused(BadPlan, faults.NO_SUCH_AT_RANK, rank=4):
        planned({"fault": "orchestrator_kill", "point": "vote", "at_rank": 4})
    with refused(BadPlan, faults.NO_SUCH_NODE, node="x", known="a, b"):
        planned({"fault": "agent_kill", "node": "x"}, nodes=("a", "b"))


def test_the_command_refuses_a_bad_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("[[fault]]\nfault = 'sigkil'")
    for words, expected in ((["plan.toml"], "US7003: "), (["other.toml"], "other.toml"), ([], "--list")):
        done = subprocess.run([sys.executable, "-m", "understudy.cli", "chaos", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2 and expected in done.stderr, done.stderr


def test_the_list_names_every_fault_and_point() -> None:
    done = subprocess.run([sys.executable, "-m", "understudy.cli", "chaos", "--list"], capture_output=True, text=True)
    assert done.returncode == 0
    for name in [*POINTS, *(fault.name for fault in registry().all())]:
        assert f"\n{name} " in f"\n{done.stdout}"


def test_the_soak_draws_the_same_plan_from_the_same_seed() -> None:
    soak = runpy.run_path(str(SOAK))
    draw = soak["make_plan"]
    assert draw(3, 200, 4) == draw(3, 200, 4) != draw(4, 200, 4)
    drawn = schedule(make(draw(3, 2000, 4), registry()), registry(), 4, ["node0"])
    assert {one.fault for one in drawn} == {name for name in soak["WEIGHTS"] if not registry().find(name).why_not()}
    assert {*soak["IN_STEP"], *soak["OF_NEWCOMER"], *soak["OF_SURVIVOR"]} <= POINTS.keys()


# -- faults that wait --------------------------------------------------------------------------------------------------------


def test_a_fault_that_waits_happens_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.names() == []
    armed = Armed("a", "exit", 2, "vote", 20, {"code": 5}, behind="b")
    folder.arm(armed)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.names() == ["a"] and folder.read("a") == armed and folder.fired("a") is None
    assert folder.claim("a", {"pid": 1}) and not folder.claim("a", {"pid": 2})
    assert folder.has_fired("a") and folder.fired("a") == {"pid": 1}
    folder.disarm("a")
    assert folder.names() == [] and folder.read("a") is None


class Nobody:
    """An orchestrator that does not answer."""

    def status(self) -> dict[str, Any]:
        raise Away("no one answers")

    report = status

    def events(self, after: int) -> Iterator[dict[str, Any]]:
        raise Away("no one answers")

    def last(self) -> None:
        return None


def test_nothing_is_done_to_a_process_that_is_not_the_worker() -> None:
    """The process id of a worker on another machine is some other process here."""
    job = WatchedJob(Nobody(), "http://10.9.9.9:1", None)
    try:
        with refused(NotHere, faults.PROCESS_NOT_HERE, worker="w3", node="node1", pid=os.getpid()):
            job.local({"worker": "w3", "node": "node1", "pid": os.getpid()})
        with refused(NotHere, faults.ORCHESTRATOR_NOT_HERE):
            job.orchestrator()
        with pytest.raises(Away):
            job.look()
    finally:
        job.close()


@pytest.mark.parametrize("unknown", [None, 0])
def test_nothing_is_done_to_a_worker_whose_process_id_is_not_known(unknown: int | None) -> None:
    """An orchestrator of an earlier version reports 0."""
    holder = {"rank": 0, "worker": "w3", "node": "node1", "pid": unknown, "state": "starting"}
    job = WatchedJob(Nobody(), "http://10.9.9.9:1", None)
    try:
        with refused(NotHere, faults.PID_UNKNOWN, worker="w3", node="node1"):
            job.local(holder)
        with refused(NotHere, faults.PID_UNKNOWN, worker="w3"):
            job.node("node1", View({"ranks": [holder], "spares": []}, [], True))
    finally:
        job.close()


LISTENS = """
import pathlib, sys
from understudy.links import reattach
sock = reattach.listen(pathlib.Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


def test_the_agent_of_a_node_is_the_listener_of_its_workers_and_not_their_parent(tmp_path: Path) -> None:
    """Workers that outlived their agent are children of `understudy run`, which must not be killed in its place."""
    (tmp_path / WORKERS).mkdir()
    environment = {**os.environ, RUN_DIR_VARIABLE: str(tmp_path), WORKER_VARIABLE: "w0"}
    worker = subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE)
    agent = subprocess.Popen([sys.executable, "-c", LISTENS, str(tmp_path / WORKERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job = WatchedJob(Nobody(), "http://10.9.9.9:1", tmp_path)
    holder = {"rank": 0, "worker": "w0", "node": "node0", "pid": worker.pid, "state": "training"}
    view = View({"ranks": [holder], "spares": []}, [], True)
    try:
        assert agent.stdout is not None and agent.stdout.readline()
        assert job.node("node0", view) == Victim(agent.pid, (worker.pid,))
        agent.communicate()
        with refused(NotHere, faults.AGENT_NOT_HERE, node="node0"):
            job.node("node0", view)
    finally:
        job.close()
        for process in (worker, agent):
            process.communicate()


@pytest.mark.parametrize("pids", [(0,), (-1,), (4711, 0)])
def test_what_would_hit_a_process_group_is_no_victim(pids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="is not a process id"):
        Victim(pids[0], pids[1:])


def test_what_is_armed_for_a_rank_is_not_for_the_spare_that_is_compared_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the rank's number, and goes through the points of the same step."""
    step, anywhere, own = (Armed("x", "sigkill", 1, point) for point in ("forward", ANY, "rehearsal redo"))
    assert chaos._fits(step, "forward") and chaos._fits(anywhere, "forward")
    monkeypatch.setattr(chaos, "_rehearses", lambda: True)
    assert not chaos._fits(step, "forward") and not chaos._fits(anywhere, "forward")
    assert chaos._fits(own, "rehearsal redo") and not chaos._fits(anywhere, "rehearsal redo")
