"""Files that a newcomer's script reads in its set-up, and is about to write from scratch on its way, are noticed, and no others."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from tests.message_texts import has

from understudy.messages import set_up
from understudy.worker.guards.file_access import FileAccessGuard

STOCK = builtins.open, io.open, os.open, os.mkdir, os.rename, os.replace


class Refused(Exception):
    pass


def refuse(what: str) -> None:
    raise Refused(what)


@pytest.fixture
def opened() -> Iterator[FileAccessGuard]:
    made = FileAccessGuard()
    made.install()
    yield made
    made.remove()
    assert (builtins.open, io.open, os.open, os.mkdir, os.rename, os.replace) == STOCK


def by_os(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def by_rename(path: Path) -> None:
    path.with_suffix(".partial").touch()
    path.with_suffix(".partial").rename(path)


def by_replace(path: Path) -> None:
    path.with_suffix(".partial").touch()
    os.replace(path.with_suffix(".partial"), str(path))  # noqa: PTH105


WRITES: list[Callable[[Path], object]] = [
    lambda path: open(path, "w"),  # noqa: SIM115
    lambda path: open(str(path).encode(), mode="wb"),  # noqa: SIM115
    lambda path: open(path.with_name("new"), "x"),  # noqa: SIM115
    lambda path: io.open(path, "w+"),  # noqa: UP020, SIM115
    lambda path: path.open("w"),
    lambda path: path.write_text("new"),
    lambda path: path.write_bytes(b"new"),
    lambda path: numpy.save(path, numpy.ones(2)),
    by_os,
    by_rename,
    by_replace,
]


@pytest.mark.parametrize("write", WRITES)
def test_a_file_that_is_written_from_scratch_is_noticed_before_that(
    opened: FileAccessGuard, tmp_path: Path, write: Callable[[Path], object]
) -> None:
    path = tmp_path / "best.npy"
    path.write_text("old")  # not yet: this is the set-up
    opened.judge(refuse)
    with pytest.raises(Refused) as error:
        write(path)
    assert path.read_text() == "old"
    assert f"{tmp_path}/" in str(error.value) and f" at {__file__}:" in str(error.value)
    opened.remove()
    write(path)


def test_what_harms_nothing_is_not_noticed(opened: FileAccessGuard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.txt"
    path.write_text("old\n")
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setenv("UNDERSTUDY_RUN_DIR", str(run))
    opened.judge(refuse)
    with path.open("a") as file:
        file.write("new\n")
    with path.open("r+") as file:
        file.read()
    assert path.read_text() == "old\nnew\n"
    Path(os.devnull).write_text("nowhere")
    Path("/proc/self/comm").write_text("python")
    (run / "page").write_text("ours")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reads = threading.Thread(target=pipe.read_text)
    reads.start()
    pipe.write_text("through")
    reads.join()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "anything").write_text("temporary")
    with tempfile.NamedTemporaryFile() as temporary:
        Path(temporary.name).write_text("temporary")
    with tempfile.TemporaryFile("w") as temporary_file, open(os.dup(temporary_file.fileno()), "w") as other:
        other.write("by its descriptor")
    numpy.save(io.BytesIO(), numpy.ones(2))
    subprocess.run([sys.executable, "-c", f"open({str(path)!r}, 'w')"], check=True)


def test_a_module_that_is_imported_late_may_be_compiled(opened: FileAccessGuard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("answer = 42")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    opened.judge(refuse)
    import imported_late  # type: ignore[import-not-found]

    assert imported_late.answer == 42 and list(tmp_path.glob("__pycache__/*.pyc"))


def test_what_a_library_opens_for_itself_is_not_noticed(opened: FileAccessGuard, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "cached", "path": tmp_path / "cache"}
    opened.judge(refuse)
    exec(compile("path.write_text('cached')", f"{Path(torch.__file__).parent}/cached.py", "exec"), names)
    assert (tmp_path / "cache").read_text() == "cached"


def test_other_threads_and_processes_are_not_noticed(opened: FileAccessGuard, tmp_path: Path) -> None:
    opened.judge(refuse)
    thread = threading.Thread(target=(tmp_path / "thread").write_text, args=("done",))
    thread.start()
    thread.join()
    assert (tmp_path / "thread").read_text() == "done"
    pid = os.fork()
    if pid == 0:
        (tmp_path / "child").write_text("done")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "child").read_text() == "done"


def test_files_that_the_job_has_written_since_its_set_up_are_named(opened: FileAccessGuard, tmp_path: Path) -> None:
    older, newer, mine, moved, log = (tmp_path / name for name in ("older", "newer", "mine", "moved", "log"))
    now = time.time_ns()
    opened.remove()
    for path in (older, newer, log):
        path.touch()
        os.utime(path, ns=(now, now + (0 if path is older else 1)))
    opened.install()
    mine.write_text("by this process")
    mine.with_suffix(".partial").touch()
    mine.with_suffix(".partial").rename(moved)
    for path in (older, newer, mine, moved):
        path.read_bytes()
    with log.open("a") as file:
        file.write("a line")
    assert opened.otherwise() == ""  # as long as the end of the set-up is unknown
    opened.over = now
    assert has(opened.otherwise(), set_up.FILES_WRITTEN_SINCE, files=str(newer), more="")
    assert opened.explained("refused") == f"refused. {opened.otherwise()}"
    opened.over = now + 10**12
    assert opened.explained("refused") == "refused"


def test_files_of_the_run_directory_are_ours(opened: FileAccessGuard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_RUN_DIR", str(tmp_path))
    path = tmp_path / "drilled-1.json"
    path.touch()
    opened.over = 1
    path.read_bytes()
    assert opened.otherwise() == ""


def test_files_that_are_read_on_the_way_are_not_of_the_set_up(opened: FileAccessGuard, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    path.touch()
    opened.over = 1
    opened.judge(refuse)
    path.read_bytes()
    assert opened.otherwise() == ""
