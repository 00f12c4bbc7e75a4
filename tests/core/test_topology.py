"""Labels with a meaning, groups that are kept together, and the messages when they cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.core_job import Job, assigned, of
from tests.message_texts import codes, has

from understudy.core import commands, events, preparation, topology
from understudy.core.model import JobSpec, LossCause, Position, VotePhase
from understudy.core.topology import failure_domain, meanings, numbers
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import recoveries
from understudy.messages import topology as texts

IDLE = (WorkerState.WARM, WorkerState.STARTING)
TP = (events.RankGroup("tp", (0, 1)), events.RankGroup("tp", (2, 3)))


def placed(*racks: str, kept: tuple[str, ...] = ("tp",), spares: dict[int, int] | None = None, **more: Any) -> Job:
    """Four ranks, one on each of the first four nodes, each node in a rack; spares as in `spares`, by node."""
    wanted = spares or {}
    job = Job(JobSpec("job", 4, 1, nodes=4, spares=0, keep_together=kept, **more), forming=True, spares=dict.fromkeys(range(4), 0))
    state = job.machine.state
    for number, rack in enumerate(racks):
        labels = (("nvlink-domain", rack),) if rack else ()
        if number < 4:
            node = state.nodes[f"n{number}"]
            node.given, node.spares, node.room = dict(labels), wanted.get(number, 0), 8
        else:
            job.submit(events.NodeJoined(f"n{number}", "h", number, "", wanted.get(number, 0), None, labels))
    job.submit(events.NodeTainted("n0", "for a moment"))
    job.submit(events.NodeTainted("n0", ""))  # what is missing is started
    job.warm()
    job.commit(0)
    job.submit(events.GroupsListed("w0", 1, TP))
    return job


def reported(commands_: list[commands.Command]) -> list[str]:
    return [code for command in commands_ if isinstance(command, commands.Tell) for code in codes(command.text)]


# -- labels ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"nvlink-domain": "a"}, {"nvlink-domain": "a"}),
        ({"nvlink": "a"}, {"nvlink-domain": "a"}),
        ({"block": "a"}, {"nvlink-domain": "a"}),
        ({"block": "b", "nvlink": "a"}, {"nvlink-domain": "a", "block": "b"}),
        ({"block": "b", "nvlink-domain": "a"}, {"nvlink-domain": "a", "block": "b"}),
        ({"nvlink-domain": "", "block": "b", "switch": ""}, {"nvlink-domain": "b"}),
        ({"switch": "s", "colour": "red"}, {"switch": "s", "colour": "red"}),
    ],
)
def test_older_names_of_labels_mean_the_same(given: dict[str, str], found: dict[str, str]) -> None:
    assert meanings(given.items()) == found


def test_no_more_labels_are_kept_than_a_node_may_have() -> None:
    assert len(meanings([(f"l{number}", "x") for number in range(1000)])) == topology.MOST_LABELS


@pytest.mark.parametrize(("option", "label", "found"), [("rack 3", "rack 4", "rack 3"), ("", "rack 4", "rack 4"), ("", "", "n7")])
def test_a_failure_domain_is_an_option_a_label_or_the_node(option: str, label: str, found: str) -> None:
    assert failure_domain("n7", option, {"failure-domain": label}) == found
    job = Job(JobSpec("job", 1, 1, spares=0), forming=True)
    job.submit(events.NodeJoined("n7", "h", 4, option, 0, None, (("failure-domain", label),)))
    assert job.machine.state.nodes["n7"].domain == found


def test_the_scheduler_s_label_counts_if_the_agent_gives_none() -> None:
    job = placed("a", "", "b", "b")
    for event in (("n0", "z"), ("n1", "z"), ("n9", "z")):
        job.submit(events.NodeLabelled(event[0], (("nvlink", event[1]), ("switch", "s"))))
    nodes = job.machine.state.nodes
    assert [nodes[name].labels for name in ("n0", "n1")] == [{"nvlink-domain": x, "switch": "s"} for x in ("a", "z")]
    assert job.machine.state.refused["NodeLabelled", RefusalReason.UNKNOWN] == 1
    job.submit(events.NodeLabelled("n1", ()))
    assert nodes["n1"].labels == {}, "a pod of this name runs on another host now"


@pytest.mark.parametrize(("ranks", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([8, 0, 1, 3], "0-1,3,8"), ([4, 5], "4-5")])
def test_ranks_as_people_write_them(ranks: list[int], text: str) -> None:
    assert numbers(ranks) == text


# -- groups ----------------------------------------------------------------------------------------------------------------------


def test_groups_of_several_names_are_joined_and_others_are_not() -> None:
    job = placed("a", "a", "a", "a", kept=("tp", "cp"))
    state = job.machine.state
    assert state.together == {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    job.submit(events.GroupsListed("w0", 1, (*TP, events.RankGroup("cp", (1, 2)), events.RankGroup("dp", (0, 3)))))
    assert state.together == dict.fromkeys(range(4), (0, 1, 2, 3))
    job.submit(events.GroupsListed("w0", 1, (events.RankGroup("cp", (3, 1)), events.RankGroup("tp", (0,)))))
    assert state.together == {1: (1, 3), 3: (1, 3)}, "a rank alone is no group"


def test_groups_that_cannot_be_change_nothing() -> None:
    job = placed("a", "a", "b", "b")
    before = job.machine.state.groups
    for ranks in ((), (0, 4), (-1,)):
        job.submit(events.GroupsListed("w0", 1, (events.RankGroup("tp", ranks),)))
    job.submit(events.GroupsListed("w0", 1, TP))
    job.submit(events.GroupsListed("w9", 1, ()))
    assert job.machine.state.groups == before
    assert {why: count for (kind, why), count in job.machine.state.refused.items() if kind == "GroupsListed"} == {
        RefusalReason.UNKNOWN: 4,
        RefusalReason.AGAIN: 1,
    }


def test_a_group_that_cannot_be_kept_together_is_reported_once() -> None:
    job = placed("a", "b", "", "a", kept=("tp", "cp"))
    (first, second, third) = of(commands.Tell, job.submit(events.GroupsListed("w0", 2, (*TP, events.RankGroup("dp", (0, 3))))))
    assert has(first.text, texts.UNKNOWN_GROUPS, names="cp", known="dp, tp")
    assert has(second.text, texts.GROUP_SPANS, group="tp (ranks 0-1)", domains="a, b", more="")
    assert has(third.text, texts.NO_DOMAINS, nodes="n2")
    assert reported(job.submit(events.GroupsListed("w0", 3, (*TP, events.RankGroup("dp", (0, 3)))))) == []
    assert reported(placed("", "", "", "", kept=()).submit(events.GroupsListed("w0", 2, TP[:1]))) == []


# -- spares ----------------------------------------------------------------------------------------------------------------------


def test_a_group_stays_in_its_rack_though_the_rack_fails() -> None:
    """The failure domain requires the opposite: with the group kept together it counts among spares inside only."""
    for kept, taken in ((("tp",), "n4"), ((), "n5")):
        job = placed("a", "a", "b", "b", "a", "c", kept=kept, spares={4: 1, 5: 1})
        for name in ("n0", "n1", "n4"):
            job.machine.state.nodes[name].domain = "rack a"
        found = assigned(job.submit(events.NodesLost((events.LostNode("n0", "silent"),))))
        assert job.node_of(found.worker) == taken


def test_a_rank_whose_rack_has_no_spare_goes_elsewhere_with_a_warning() -> None:
    job = placed("a", "a", "b", "b", "c", spares={4: 1})
    answer = job.lose("w1")
    (warning,) = [one.text for one in of(commands.Tell, answer) if texts.GROUP_SPLIT.code in codes(one.text)]
    assert has(warning, texts.GROUP_SPLIT, rank=1, node="n4", domain="a", groups="tp (ranks 0-1)")
    assert job.node_of(assigned(answer).worker) == "n4"
    incident = job.machine.state.incident
    assert incident is not None and any(has(note, texts.GROUP_SPLIT, rank=1) for note in incident.freeze().notes)


def test_after_the_limit_a_spare_outside_is_taken() -> None:
    job = placed("a", "a", "b", "b", "a", "c", spares={4: 1, 5: 1})
    lost = job.machine.state.nodes["n4"].idle(*IDLE)
    job.lose(lost[0].name)  # the spare in rack a: another one starts
    assert of(commands.Assign, job.lose("w1")) == []
    job.rest()
    answer = job.submit(events.Expired("hold"))
    assert job.node_of(assigned(answer).worker) == "n5" and texts.GROUP_SPLIT.code in reported(answer)
    assert of(commands.Recover, answer) and job.machine.state.ended is None


def test_after_the_limit_a_job_without_any_spare_ends() -> None:
    job = placed("a", "a", "b", "b", "a", spares={4: 1})
    job.lose(job.machine.state.nodes["n4"].idle(*IDLE)[0].name)
    job.lose("w1")
    job.rest()
    (end,) = of(commands.EndJob, job.submit(events.Expired("hold")))
    assert has(end.message, recoveries.WAITED_FOR_SPARE, missing=1)


def test_a_prepared_spare_in_the_rack_is_started_over_and_not_the_one_outside() -> None:
    job = placed("a", "a", "b", "b", "c", "a", spares={4: 1, 5: 1}, spare_nodes=0)
    state = job.machine.state
    for rank, node in ((2, "n4"), (0, "n5")):
        (spare,) = state.nodes[node].idle(*IDLE)
        spare.prepare, spare.ready = commands.Prepare(spare.name, 0, rank, "h:1", {}), True
    answer = job.lose("w1")
    assert of(commands.Assign, answer) == []
    assert [one.node for one in of(commands.StartWorker, answer)] == ["n5"]
    assert job.node_of(assigned(job.warm()).worker) == "n5"


def test_spares_are_prepared_for_ranks_of_their_own_rack() -> None:
    job = Job(JobSpec("job", 4, 1, nodes=4, spares=0, keep_together=("tp",)), spares={**dict.fromkeys(range(4), 0), 4: 1, 5: 1})
    state = job.machine.state
    for name, rack in zip(state.nodes, "aabbba", strict=True):
        state.nodes[name].given = {"nvlink-domain": rack}
    job.submit(events.GroupsListed("w0", 1, TP))
    state.spec = replace(state.spec, prepared=2)
    preparation.prepare(state)
    asked = of(commands.Prepare, state.out)
    assert {job.node_of(one.worker): one.rank // 2 for one in asked} == {"n4": 1, "n5": 0}


def test_a_rank_on_a_claimed_node_of_its_rack_does_not_leave_the_rack_for_a_spare_of_the_job() -> None:
    job = placed("a", "a", "b", "b", floating=1)
    job.lose("w1")
    job.rest()
    job.submit(events.NodeJoined("n7", "h", 7, "", 1, None, (("nvlink-domain", "a"),), claim=0))
    job.warm()
    job.verify()
    job.commit(1)
    assert job.node_of(job.machine.state.ranks[1]) == "n7"
    job.submit(events.NodeJoined("n5", "h", 5, "", 1, None, (("nvlink-domain", "c"),)))
    job.warm()
    assert job.machine.state.migration is None
    job.submit(events.NodeJoined("n6", "h", 6, "", 1, None, (("nvlink-domain", "a"),)))
    assert job.node_of(assigned(job.warm()).worker) == "n6"


def test_of_a_rank_that_leaves_its_node_a_spare_in_the_rack_is_started_over_though_one_starts_outside() -> None:
    job = placed("a", "a", "b", "b", "a", "c", spares={4: 1, 5: 1})
    state = job.machine.state
    (inside,) = state.nodes["n4"].idle(*IDLE)
    inside.prepare, inside.ready = commands.Prepare(inside.name, 0, 0, "h:1", {}), True
    job.lose(state.nodes["n5"].idle(*IDLE)[0].name)
    answer = job.submit(events.NodeTainted("n1", "loud", "nvml", leave=True))
    assert [one.worker for one in of(commands.KillWorker, answer)] == [inside.name]
    answer = job.warm()
    assert job.node_of(assigned(answer).worker) == "n4"


def test_restarted_ranks_leave_no_domain() -> None:
    job = Job(JobSpec("job", 4, 1, nodes=4, spares=0, keep_together=("tp",)), forming=True)
    for node, rack in zip(job.machine.state.nodes.values(), "abcd", strict=True):
        node.given = {"nvlink-domain": rack}
    job.warm()
    job.submit(events.GroupsListed("w0", 0, TP))
    said_ = [*job.lose("w1"), *job.rest(-1), *job.warm()]
    assert job.machine.state.restarts == 1 and len(of(commands.Assign, said_)) == 4
    assert texts.GROUP_SPLIT.code not in reported(said_)


def test_a_part_of_a_group_goes_home_to_the_others() -> None:
    job = placed("a", "a", "a", "a", "c", spares={4: 2}, home_after=5.0)
    state = job.machine.state
    job.submit(events.GroupsListed("w0", 1, (events.RankGroup("tp", (0, 1, 2, 3)),)))
    for name in ("n0", "n1"):
        job.submit(events.NodeTainted(name, "loud", "nvml", leave=True))
        finish(job)
    assert [job.node_of(state.ranks[rank]) for rank in range(4)] == ["n4", "n4", "n2", "n3"]
    for name in ("n0", "n1"):
        job.submit(events.NodeTainted(name, "", "nvml"))
    job.now += 10
    job.submit(events.Expired("home"))
    job.submit(events.Expired("home"))
    for _ in range(3):
        finish(job)
    assert [job.node_of(state.ranks[rank]) for rank in range(4)] == ["n0", "n1", "n2", "n3"]


def test_a_group_goes_home_as_a_whole() -> None:
    job = placed("a", "a", "b", "b", "c", spares={4: 2}, home_after=5.0)
    state = job.machine.state
    for name in ("n0", "n1"):
        job.submit(events.NodeTainted(name, "loud", "nvml", leave=True))
        finish(job)
    finish(job)
    assert [job.node_of(state.ranks[rank]) for rank in (0, 1)] == ["n4", "n4"]
    job.submit(events.NodeTainted("n0", "", "nvml"))
    job.now += 10
    job.submit(events.Expired("home"))
    job.warm()
    assert not moves(job), "node n1 is still not trusted: the group would be split"
    job.submit(events.NodeTainted("n1", "", "nvml"))
    job.now += 10
    job.submit(events.Expired("home"))
    job.warm()
    assert moves(job)
    finish(job)
    assert [job.node_of(state.ranks[rank]) for rank in (0, 1)] == ["n0", "n1"]


def spares_at_home(job: Job) -> list[str]:
    """Ranks 0 and 1 leave their nodes, which are trusted again. Return the spares that start there for them."""
    nodes = job.machine.state.nodes
    for name in ("n0", "n1"):
        job.submit(events.NodeTainted(name, "loud", "nvml", leave=True))
        finish(job)
    for name in ("n0", "n1"):
        job.submit(events.NodeTainted(name, "", "nvml"))
    job.now += 10
    job.submit(events.Expired("home"))
    job.submit(events.Expired("home"))
    return [worker.name for name in ("n0", "n1") for worker in nodes[name].idle(WorkerState.STARTING)]


def test_ranks_of_several_nodes_go_home_at_one_boundary() -> None:
    job = placed("a", "a", "b", "b", "c", spares={4: 2}, home_after=5.0)
    state = job.machine.state
    first, second = spares_at_home(job)
    job.warm(first)
    assert not moves(job), "the other one's spare is still starting"
    job.warm(second)
    assert state.migration is not None and [move.rank for move in state.migration.moves] == [0, 1]


@pytest.mark.parametrize("hinders", ["its spare is refused", "it was tried twice"])
def test_a_rank_that_cannot_go_home_does_not_hold_the_others_back(hinders: str) -> None:
    job = placed("a", "a", "a", "a", "c", spares={4: 2}, home_after=5.0)
    state = job.machine.state
    job.submit(events.GroupsListed("w0", 1, ()))
    state.together.clear()
    first, second = spares_at_home(job)
    if hinders == "its spare is refused":
        job.warm(first)
        assert not moves(job)
        job.submit(events.StartRefused(second, "n1", "no room"))
    else:
        state.failed_moves[1] = 2
        job.warm(first)
    assert state.migration is not None and [move.rank for move in state.migration.moves] == [0]


def moves(job: Job) -> bool:
    return job.machine.state.migration is not None


def finish(job: Job) -> None:
    """Complete the move under way, if there is one."""
    state = job.machine.state
    job.warm()
    if state.migration is None:
        return
    migration = state.migration
    for move in list(migration.moves):
        job.submit(events.NewcomerReady(move.newcomer, migration.generation))
    for name in sorted(state.recovery.waiting if state.recovery else ()):
        job.submit(events.Quiesced(name, migration.generation, Position(1, VotePhase.IDLE), (), 1))
    job.verify()
    job.commit(1)
    for worker in list(state.workers.values()):
        if worker.state == "released":
            job.submit(events.WorkerLost(worker.name, LossCause.EXITED, "", job.now))
    job.warm()


def test_before_ranks_are_given_out_no_domain_holds_a_rank() -> None:
    """When all ranks are started again, the groups are known already."""
    state = placed("a", "a", "b", "b").machine.state
    assert topology.domain_of(state, 0) == "a"
    state.ranks.clear()
    assert topology.domain_of(state, 0) == ""
