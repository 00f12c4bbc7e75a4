"""`understudy journal` on a journal of an earlier version: read, copied, damaged and restored."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.journals import HERE
from tests.message_texts import has
from typer.testing import CliRunner

from understudy.cli import app
from understudy.messages import journals, orchestrators


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    with closing(sqlite3.connect(made / "journal.db")) as journal:
        journal.executescript((HERE / "version1.sql").read_text())
    return made


def asked(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["journal", *map(str, words)])
    return done.exit_code, done.output


def test_all_jobs_are_read_and_nothing_is_changed(folder: Path) -> None:
    before = (folder / "journal.db").read_bytes()
    code, text = asked("verify", folder, "--json")
    assert code == 0 and {one["job"]: one["problem"] for one in json.loads(text)} == {"finished": "", "running": "", "every": ""}
    assert (folder / "journal.db").read_bytes() == before


def test_a_copy_is_verified_and_takes_no_other_files_place(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    code, text = asked("backup", folder, copy)
    assert code == 0 and has(text, journals.COPIED, jobs=3, damaged=0)
    content = copy.read_bytes()
    code, text = asked("backup", folder, copy)
    assert code == 2 and has(text, journals.COPY_EXISTS) and copy.read_bytes() == content
    code, text = asked("backup", folder, tmp_path / "no" / "folder.db")
    assert code == 2 and has(text, journals.NOT_COPIED) and sorted(tmp_path.iterdir()) == [copy, folder]


def test_damage_is_found_and_a_copy_brings_the_journal_back(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert asked("backup", folder, copy)[0] == 0
    (folder / "journal.db").write_bytes(b"garbage" * 1000)
    code, text = asked("verify", folder)
    assert code == 1 and has(text, orchestrators.JOURNAL_DAMAGED)
    code, text = asked("restore", folder, copy)
    assert code == 0 and has(text, journals.RESTORED)
    assert asked("verify", folder)[0] == 0
    assert (folder / "before-restore-1" / "journal.db").read_bytes() == b"garbage" * 1000


@pytest.mark.parametrize("what", ["verify", "backup", "restore"])
def test_where_there_is_none(tmp_path: Path, what: str) -> None:
    code, text = asked(what, tmp_path, *([tmp_path / "copy.db"] if what != "verify" else []))
    assert code == 2 and has(text, journals.NO_JOURNAL) and not list(tmp_path.iterdir())
