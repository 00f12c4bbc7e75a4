"""A group is joined again, generation after generation: in place where torch can (from 2.14 on), else by new communicators."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import LIMIT, marked
from tests.message_texts import has
from understudy.messages import worker_processes
from understudy.worker.transport.backends import rejoining
from understudy.worker.transport.rendezvous import StoreServer

ROOT = Path(__file__).parents[2]
MANY = 300  # more than torch has numbers for
in_place = pytest.mark.skipif(not rejoining.available(), reason="this torch has no _reconfigure (2.14 and newer)")


def joined(count: int, *, size: int, rejoin: bool, left_behind: int = 0) -> list[dict[str, Any]]:
    """What each member has found."""
    server = StoreServer("127.0.0.1")
    more = {rejoining.VARIABLE: str(int(rejoin)), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    with marked() as mark:
        members = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.contract.generations", *map(str, (rank, size, server.address, count, left_behind))],
                cwd=ROOT,
                env=mark.environment(**more),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        ends = [member.communicate(timeout=4 * LIMIT) for member in members]
    assert not any(member.returncode for member in members), "\n".join(errors[-3000:] for _, errors in ends)
    return [json.loads(output.splitlines()[-1]) for output, _ in ends]


@in_place
def test_the_same_communicator_joins_any_number_of_generations_and_leaves_nothing() -> None:
    for found in joined(MANY, size=3, rejoin=True):
        assert (found["right"], found["error"]) == (MANY, "")
        assert found["last"] == found["third"]


def test_new_communicators_end_with_a_message_when_torch_has_no_numbers_left() -> None:
    for found in joined(MANY, size=2, rejoin=False):
        assert 200 < found["right"] < MANY
        assert has(found["error"], worker_processes.NO_NUMBERS_LEFT)


@pytest.mark.parametrize("rejoin", [pytest.param(True, marks=in_place), False], ids=["in place", "new"])
def test_a_member_whose_call_was_left_behind_meets_the_others_in_the_next_generation(rejoin: bool) -> None:
    """It must not touch what that call may still be at work with: it makes another communicator, while the others join theirs again."""
    for found in joined(31, size=3, rejoin=rejoin, left_behind=4):
        assert (found["right"], found["error"]) == (31, "")
