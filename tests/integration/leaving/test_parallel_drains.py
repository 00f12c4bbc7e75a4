"""A node with two ranks is drained in every way to be parallel: after every step the state of every rank is that of the undisturbed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.parallel import Parallel
from tests.integration.processes import marked
from tests.integration.service import Service
from tests.matrix.cells import PARALLEL


@pytest.mark.parametrize("mode", PARALLEL)
def test_ranks_leave_a_node_at_one_boundary(mode: str, tmp_path: Path) -> None:
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("abc", 2)
        job = Parallel(service, mode, 2)
        job.trains()
        node = job.node_of(2)
        drained = service.command("drain", node, "--wait", "--deadline", "10m", "--json")
        assert drained.returncode == 0, drained
        assert json.loads(drained.stdout)["stage"] == "drained"
        job.goes_on()
        assert all(rank["node"] != node for rank in job.status()["ranks"])
        (incident,) = job.ends_as_undisturbed()
        assert incident["planned"] and [(one["cause"], one["rank"]) for one in incident["ranks"]] == [("migrated", 2), ("migrated", 3)]
