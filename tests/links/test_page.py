"""A reader of a page never sees a field that its writer is in the middle of."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from understudy.common.page_view import ALONE, LEARNED, UNKNOWN, WHERE, Activity, Process
from understudy.links.page import PageReader, PageWriter

_WRITER = """
import sys
from pathlib import Path
from understudy.common.page_view import ALONE, LEARNED, UNKNOWN, WHERE, Activity, Process
from understudy.links.page import PageWriter
page = PageWriter(Path(sys.argv[1]))
print("ready", flush=True)
for number in range(10**9):
    page.beat(number)
    page.enter(Activity.RUNNING, number)
"""


def test_a_reading_is_what_was_written(tmp_path: Path) -> None:
    writer = PageWriter(tmp_path / "page")
    writer.beat(12)
    writer.enter(Activity.VOTED, 7)
    writer.committed(6, 1.5)
    view = PageReader(tmp_path / "page").read()
    assert (view.beats, view.activity, view.transaction, view.step) == (1, Activity.VOTED, 7, 6)
    assert (view.collectives, view.longest) == (12, 1.5)
    assert view.since == writer.since


def test_a_number_of_waits_is_unknown_until_it_is_reported(tmp_path: Path) -> None:
    writer = PageWriter(tmp_path / "page")
    reader = PageReader(tmp_path / "page")
    found = [reader.read().waits]  # as on the page of a version without them
    for waits in (0, 3, UNKNOWN):
        writer.beat(12, waits)
        found.append(reader.read().waits)
    assert found == [UNKNOWN, 0, 3, UNKNOWN]


def test_a_workers_own_time_is_unknown_until_it_is_reported(tmp_path: Path) -> None:
    writer = PageWriter(tmp_path / "page")
    reader = PageReader(tmp_path / "page")
    assert reader.read()[9:13] == (0, 0, 0, 0)
    for running in (100, 250):
        writer.looked(running, 30, 20)
    assert reader.read()[9:13] == (2, 250, 30, 20)
    writer.looked_in_vain()
    assert reader.read().looks == 0
    writer.enter(Activity.COMMITTING, 3)
    assert writer.activity is Activity.COMMITTING


def test_no_field_is_seen_half_written(tmp_path: Path) -> None:
    path = tmp_path / "page"
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, env=os.environ)
    try:
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        begun = time.monotonic()
        reader = PageReader(path)
        last = reader.read()
        for _ in range(200_000):
            view = reader.read()
            now = time.monotonic()
            assert begun - 60 < view.beat_at <= now and begun - 60 < view.since <= now
            assert view.beats >= last.beats and view.transaction >= last.transaction
            last = view
        reader.close()
    finally:
        writer.kill()
        writer.wait()


def test_a_workers_position_is_shown_until_it_goes_on(tmp_path: Path) -> None:
    writer = PageWriter(tmp_path / "page")
    reader = PageReader(tmp_path / "page")
    writer.enter(Activity.IDLE, 3)
    writer.stands("/home/é/train.py:20 in save" + "x" * 1000, Process.DEBUGGED)
    view = reader.read()
    assert (view.where[:28], len(view.where), view.process) == ("/home/é/train.py:20 in savex"[:28], WHERE, Process.DEBUGGED)
    writer.enter(Activity.RUNNING, 3)
    assert (reader.read().where, reader.read().process) == ("", 0)


def test_a_named_stretch_has_its_limit_until_it_ends_whatever_the_worker_does_in_it(tmp_path: Path) -> None:
    writer = PageWriter(tmp_path / "page")
    reader = PageReader(tmp_path / "page")
    writer.enter(Activity.RUNNING, 3, alone=True)
    assert reader.read().granted == ALONE
    before = writer.grant(90.0, "upload")
    writer.enter(Activity.RUNNING, 4)
    writer.stands("train.py:20", Process(0))
    assert (reader.read().granted, reader.read().where) == (90.0, "upload: train.py:20")
    writer.grant(*before)
    assert reader.read().granted == LEARNED
