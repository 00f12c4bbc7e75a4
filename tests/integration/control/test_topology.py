"""The groups of a real script, as rank 0 reports them: named by the dimensions of its device mesh, kept together, and shown."""

from __future__ import annotations

import json

from tests.integration.training import Training, training, understudy
from tests.message_texts import has

from understudy.messages import topology

__all__ = ["training"]


def test_dimensions_of_a_mesh_are_groups_and_the_effect_of_a_loss_is_shown(training: Training) -> None:
    flags = ["--nproc-per-node", "4", "--spares", "1", "--no-replenish", "--run-dir", "FOLDER/run"]
    flags += ["--label", "nvlink=rack7", "--label", "switch=s1", "--keep-together", "shard", "--keep-together", "tp"]
    outcome = training.start(["-m", "understudy.cli", "run", *flags], "groups.py", FAULTS="before the vote:5:2").ends()
    assert outcome.code == 0, outcome.output
    assert has(outcome.output, topology.UNKNOWN_GROUPS, names="tp", known="replicate, shard, world")
    table = json.loads(understudy("status", "--topology", "--json", "--run-dir", str(outcome.folder / "run")).stdout)
    groups = {(group["group"], tuple(group["ranks"])): group for group in table["groups"]}
    assert groups.keys() == {
        *(("replicate", ranks) for ranks in ((0, 2), (1, 3))),
        *(("shard", ranks) for ranks in ((0, 1), (2, 3))),
        ("world", (0, 1, 2, 3)),
    }, "groups without a name are not among them, and a newcomer has changed nothing"
    shard = groups["shard", (2, 3)]
    assert (shard["nvlink_domains"], shard["switches"], shard["kept_together"]) == ({"rack7": 2}, {"s1": 2}, True)
    assert table["keep_together"] == ["shard", "tp"] and table["losses"] == []
