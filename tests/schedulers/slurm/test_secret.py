"""The secret on its way to the other nodes, and the end of a task of ours. A small script on PATH replaces `sbcast`; processes are real."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.message_texts import refused
from tests.schedulers.slurm.programs import Programs

from understudy.common.names import LEAVE
from understudy.messages import slurm
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.slurm import leave, secret

NAME = "slurm-7.0"
HANDLES = "import signal, sys; signal.signal({number}, lambda *_: sys.exit(0)); print('.', flush=True); signal.pause()"
IDLES = "import signal; print('.', flush=True); signal.pause()"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the secret on another node."""
    monkeypatch.setattr(secret, "place", lambda name: tmp_path / name)
    return tmp_path / NAME


def put(there: Path, text: str | bytes = "hush\n", mode: int = 0o600) -> None:
    there.write_bytes(text if isinstance(text, bytes) else text.encode())
    there.chmod(mode)


def test_others_can_know_its_name_and_not_another_user_s() -> None:
    assert secret.place(NAME) == Path(f"/tmp/understudy-{os.geteuid()}-{NAME}")


def test_the_first_node_sends_a_file_for_its_owner_only(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(tmp_path, monkeypatch)
    script = (
        "import json, os, sys\nfile, there = sys.argv[-2:]\n"
        f"json.dump([sys.argv[1:], open(file).read(), os.stat(file).st_mode & 0o777], open({str(tmp_path / 'calls')!r}, 'w'))\n"
        "open(there, 'w').close()\n"
    )
    (tmp_path / "bin" / "sbcast").write_text(f"#!{sys.executable} -IS\n{script}")
    secret.share("7", NAME, "hush")
    recorded = (tmp_path / "calls").read_text()
    assert '"hush\\n", 384' in recorded and "--jobid=7" in recorded and f'"{there}"' in recorded and "--force" not in recorded
    assert not there.exists(), "this node has it"
    assert "hush" not in str(programs.calls())


def test_one_that_was_made_there_before_is_not_removed(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(there, "planted\n")
    programs = Programs(tmp_path, monkeypatch)
    programs.answer("sbcast", error="sbcast: error: REQUEST_FILE_BCAST(n2): File exists\n", code=1)
    with pytest.raises(SchedulerFailed, match="File exists"):
        secret.share("7", NAME, "hush")
    assert there.read_text() == "planted\n"


def test_who_reads_it_removes_it(there: Path) -> None:
    put(there)
    assert secret.shared(NAME, 0.0) == "hush" and not there.exists()


@pytest.mark.parametrize("text", [None, "", "hush", "x" * 5000 + "\n"])
def test_one_that_does_not_come_whole_is_not_taken(text: str | None, there: Path) -> None:
    if text is not None:
        put(there, text)
    with refused(SchedulerFailed, slurm.NO_SECRET, seconds=0.1):
        secret.shared(NAME, 0.1)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o622, 0o601])
def test_one_that_others_may_touch_is_not_believed(mode: int, there: Path) -> None:
    put(there, mode=mode)
    with refused(SchedulerFailed, slurm.SECRET_OF_OTHERS):
        secret.shared(NAME, 5.0)


def test_one_of_another_user_is_not_believed(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(there)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with refused(SchedulerFailed, slurm.SECRET_OF_OTHERS):
        secret.shared(NAME, 5.0)


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_file_is_neither_read_nor_waited_for(kind: str, there: Path, tmp_path: Path) -> None:
    put(tmp_path / "mine", "not for this\n")
    if kind.endswith("link"):
        there.symlink_to(tmp_path / ("mine" if kind == "link" else "nowhere"))
    elif kind == "pipe":
        os.mkfifo(there, 0o600)
    else:
        there.mkdir(0o700)
    message = slurm.SECRET_UNREADABLE if kind.endswith("link") else slurm.SECRET_OF_OTHERS
    with refused(SchedulerFailed, message, path=there):
        secret.shared(NAME, 5.0)
    assert (tmp_path / "mine").exists()


def test_bytes_that_are_no_text_are_no_error(there: Path) -> None:
    put(there, b"\xff\xfe\n")
    assert secret.shared(NAME, 0.0) == "\ufffd\ufffd"


# -- the end of a task of ours ---------------------------------------------------------------------------------------------------


class Started:
    """Processes that belong to a step by their environment; the first of each is its task."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def process(self, code: str, job: str, step: str, task: str = "") -> subprocess.Popen[bytes]:
        """`code`: of Python, for one that is ours; "": one that is not. `task`: as its environment has it; else its own number."""
        become = shlex.join([sys.executable, "-IS", "-c", code, "understudy"]) if code else "sleep 600"
        words = ["sh", "-c", f"{'' if code else 'echo .; '}SLURM_TASK_PID={task or '$$'} exec {become}"]
        own = {**os.environ, "SLURM_JOB_ID": job, "SLURM_STEP_ID": step}
        found = subprocess.Popen(words, stdout=subprocess.PIPE, env=own)
        self.all.append(found)
        assert found.stdout is not None and found.stdout.readline() == b".\n"
        return found


@pytest.fixture
def started() -> Iterator[Started]:
    found = Started()
    yield found
    for process in found.all:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def leaves(monkeypatch: pytest.MonkeyPatch, job: str, step: str = "0") -> int:
    monkeypatch.setattr(sys, "argv", ["leave", job, step])
    return leave.main()


def job_number() -> str:
    """That no other process of this machine has."""
    return f"{os.getpid()}7"


def test_the_task_of_that_step_is_found_and_ends_in_order(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_number()
    ours = started.process(HANDLES.format(number=int(LEAVE)), job, "0")
    child = started.process(IDLES, job, "0", task=str(ours.pid))
    others = [started.process(IDLES, job, "1"), started.process(IDLES, f"{job}0", "0")]
    assert leave.tasks(job, "0") == {ours.pid}
    assert leaves(monkeypatch, job) == 0 and ours.wait(60) == 0
    assert [each.poll() for each in (child, *others)] == [None] * 3


def test_what_is_not_ours_gets_no_signal(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    other = started.process("", job_number(), "0")
    assert leaves(monkeypatch, job_number()) == 0 and other.poll() is None


def test_one_that_does_not_end_keeps_its_node(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave, "SECONDS", 0.2)
    deaf = HANDLES.format(number=int(LEAVE)).replace("sys.exit(0)", "None").replace("signal.pause()", "[signal.pause() for _ in range(9)]")
    started.process(deaf, job_number(), "0")
    assert leaves(monkeypatch, job_number()) == 1


@pytest.mark.parametrize("task", ["evil", "4194305"])
def test_a_task_that_is_none_or_has_ended_is_left_already(task: str, started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    started.process(IDLES, job_number(), "0", task=task)
    assert leaves(monkeypatch, job_number()) == 0 and leaves(monkeypatch, "") == 0
