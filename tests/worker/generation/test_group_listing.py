"""Which groups of a script have a name, and which of them rank 0 reports."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from understudy.core.events import RankGroup
from understudy.worker.encoding.messages import GroupMembers
from understudy.worker.generation import group_listing
from understudy.worker.generation.group_listing import groups_of
from understudy.worker.transport.groups import Groups


def test_each_group_is_there_once_and_small_ones_come_first() -> None:
    heard = [
        [GroupMembers("world", [0, 1, 2, 3]), GroupMembers("tp", [1, 0])],
        [],
        [GroupMembers("tp", [2, 3]), GroupMembers("tp", [2, 3])],
        [],
    ]
    assert groups_of(heard) == (RankGroup("tp", (0, 1)), RankGroup("tp", (2, 3)), RankGroup("world", (0, 1, 2, 3)))


def test_the_largest_are_left_out_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_listing, "MOST", 5)
    heard = [[GroupMembers("world", [0, 1, 2, 3]), GroupMembers("tp", [0, 1]), GroupMembers("pp", [2, 3])]]
    assert [group.name for group in groups_of(heard)] == ["pp", "tp"]


@pytest.mark.parametrize(("rank", "names"), [(0, ["world", "tp", "mine"]), (1, ["cp"]), (2, [])])
def test_a_rank_names_the_groups_of_which_it_is_the_first(monkeypatch: pytest.MonkeyPatch, rank: int, names: list[str]) -> None:
    made = [
        ("default_pg", [0, 1, 2]),
        ("mesh_tp", [0, 1]),
        ("mesh_cp", [2, 1]),
        ("mine", [0, 2]),
        ("undefined", [0, 1]),
        ("mesh_default", [0, 1, 2]),
        ("", [0, 1]),
        ("mesh_alone", [rank]),
    ]
    members = [(SimpleNamespace(group_desc=name), str(number), ranks) for number, (name, ranks) in enumerate(made)]
    groups = Groups.__new__(Groups)
    monkeypatch.setattr(groups, "members", lambda: members)
    assert [group.name for group in groups.named(rank)] == names
