"""What a member keeps: it is there when it is opened again, and what was changed is found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.message_texts import has

from understudy.messages import quorums
from understudy.messages.base import Message
from understudy.orchestrator.quorum.raft import Entry, Step
from understudy.orchestrator.quorum.storage import FILE, Damaged, Storage, opened

LOG = [Entry(1, "begun"), Entry(1, "event 1.5 {}"), Entry(2, "event 2.5 {}")]


def step(*entries: Entry, keep: int, hard_state: tuple[int, int] | None = None) -> Step:
    return Step(hard_state, keep, entries, ())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A member's file, whose log was written in three steps, one of which took entries back."""
    storage = Storage(tmp_path / FILE)
    storage.enrol((storage.identity, "other"))
    storage.write(step(Entry(1, "begun"), LOG[1], Entry(1, "taken back"), keep=0, hard_state=(1, 0)), {})
    storage.write(step(Entry(2, "taken back as well"), keep=2, hard_state=(2, 1)), {})
    storage.write(step(LOG[2], keep=2), {})
    storage.close()
    return tmp_path / FILE


def changed(place: Path, statement: str) -> None:
    with closing(sqlite3.connect(place)) as file, file:
        file.execute(statement)


def test_everything_is_there_again(place: Path) -> None:
    storage = Storage(place)
    assert (storage.log, storage.hard_state, storage.roster) == (LOG, (2, 1), (storage.identity, "other"))
    storage.write(step(Entry(2, "more"), keep=3), {})
    storage.close()
    assert Storage(place).log == [*LOG, Entry(2, "more")]


@pytest.mark.parametrize(
    "statement, message",
    [
        ("update log set text = 'event 1.6 {}' where number = 2", quorums.ENTRY_DAMAGED),
        ("update log set term = 2 where number = 2", quorums.ENTRY_DAMAGED),
        ("update log set checksum = 'f' where number = 3", quorums.ENTRY_DAMAGED),
        ("delete from log where number = 1", quorums.ENTRY_DAMAGED),
        ("update member set vote = 0", quorums.MEMBER_ROW_DAMAGED),
        ("update member set term = 3", quorums.MEMBER_ROW_DAMAGED),
    ],
)
def test_a_member_whose_file_was_changed_is_a_new_one(place: Path, statement: str, message: Message) -> None:
    before = Storage(place)
    before.close()
    changed(place, statement)
    with pytest.raises(Damaged) as caught:
        Storage(place)
    assert has(caught.value, message)
    reported: list[str] = []
    after = opened(place, reported.append)
    assert after.identity != before.identity and (after.log, after.roster, after.hard_state) == ([], (), (0, -1))
    assert has(reported[0], quorums.STORAGE_DAMAGED, path=place, kept=place.with_name(f"{FILE}.damaged-1"))
    assert place.with_name(f"{FILE}.damaged-1").exists()


def test_garbage_is_a_damage(place: Path) -> None:
    place.write_bytes(b"garbage" * 1000)
    reported: list[str] = []
    assert opened(place, reported.append).log == [] and has(reported[0], quorums.STORAGE_DAMAGED)


def test_the_file_of_an_earlier_version_is_checked_from_then_on(place: Path) -> None:
    for table in ("log", "member"):
        changed(place, f"alter table {table} drop column checksum")
    storage = Storage(place)
    assert storage.log == LOG
    storage.write(step(Entry(3, "more"), keep=3, hard_state=(3, 0)), {})
    storage.close()
    changed(place, "update log set text = 'begone' where number = 1")
    with pytest.raises(Damaged) as caught:
        Storage(place)
    assert has(caught.value, quorums.ENTRY_DAMAGED, number=4)
