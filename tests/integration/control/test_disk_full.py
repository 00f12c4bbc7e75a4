"""A full disk under a running job, on a real small file system: nothing of it is a reason to end training."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.processes import Mark, marked, pid_of, send, wait_until
from tests.integration.training import JOBS, LONG, Outcome
from tests.message_texts import has

from understudy.cli.client import NoAnswer, Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.common.names import JOURNAL
from understudy.common.page_view import Activity, PageView
from understudy.core.events import Notice
from understudy.core.model import JobSpec, Timeouts
from understudy.links.lifeline import Lifeline
from understudy.links.messages import ONLY
from understudy.links.page import SIZE, PageReader, PageWriter
from understudy.messages import orchestrators, worker_processes
from understudy.orchestrator import journal
from understudy.orchestrator.room import SIZE as RESERVE
from understudy.orchestrator.settings import Settings

SCRIPT = """
import fcntl, sys
with open(sys.argv[1]) as over:
    fcntl.flock(over, fcntl.LOCK_SH)  # once the test has let go of it
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Without room for the journal's reserve."""
    with mounted(tmp_path / "small", 4) as folder:
        yield folder


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """With room for it."""
    with mounted(tmp_path / "roomy", 32) as folder:
        yield folder


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of so many MiB. The final journal is kept for the checks after the test."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
        for file in (folder / "run").glob("journal.db*"):
            folder.with_name("kept").mkdir(exist_ok=True)
            shutil.copy(file, folder.with_name("kept"))
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filling").open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        while True:
            try:
                file.write(bytes(SIZE))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return


def test_a_page_for_which_there_is_no_room_is_memory(small: Path) -> None:
    fill(small)
    path = small / "w0.page"
    page = PageWriter(path)
    page.enter(Activity.RUNNING, 3)
    page.beat(1)
    assert "No space left" in page.trouble and not path.exists()
    with pytest.raises(FileNotFoundError):
        PageReader(path)
    Lifeline(None).hold()
    (small / "filling").unlink()
    again = PageWriter(path)
    assert not again.trouble and path.stat().st_blocks * 512 >= SIZE


def test_orchestrator_and_agent_are_started_again_on_a_full_disk(small: Path, tmp_path: Path) -> None:
    run, over, script = small / "run", tmp_path / "over", tmp_path / "script.py"
    script.write_text(SCRIPT)
    reported, held = tmp_path / "output.txt", over.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    command = [sys.executable, "-m", "understudy.cli", "run", "--nproc-per-node", "2", "--spares", "1", "--run-dir", str(run)]
    with reported.open("wb") as file:
        job = subprocess.Popen([*command, str(script), str(over)], stdout=file, stderr=file)
    try:
        wait_until(lambda: _answers(run, "training"), "the job trains")
        fill(small)
        first = _pid(job.pid, "understudy.orchestrator")
        for module in ("understudy.orchestrator", "understudy.agent"):
            before = pid_of(partial(_pid, job.pid, module))
            send(before, signal.SIGKILL)
            wait_until(partial(_another, job.pid, module, before), f"{module} is started again")
        wait_until(lambda: _answers(run, "training"), "the job is led again")
        send(pid_of(lambda: _status(run)["spares"][0]), signal.SIGKILL)  # it may be starting still
        wait_until(lambda: worker_processes.NO_PAGE.code in reported.read_text(), "the next spare says what it lacks")
        wait_until(lambda: [one["state"] for one in _status(run).get("spares", ())] == ["warm"], "and can take a rank all the same")
        again = _pid(job.pid, "understudy.orchestrator")
        assert first != again
        (small / "filling").unlink()
        held.close()
        assert job.wait(120) == 0, reported.read_text()
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait(60)
        held.close()
    assert "SIGBUS" not in reported.read_text()


class Job:
    """`spread.py` whose rank 1 is paused in its step 6, and its journal on the small file system."""

    def __init__(self, folder: Path, small: Path, mark: Mark) -> None:
        self.folder, self.run = folder / "job", small / "run"
        self.folder.mkdir()
        self._told = folder / "output.txt"
        flags = ["--nproc-per-node", "2", "--spares", "1", "--no-replenish", "--drill", "off", "--hang-limit", "600"]
        words = ["run", *flags, "--run-dir", str(self.run), str(JOBS / "spread.py"), str(self.folder)]
        with self._told.open("wb") as file:
            variables = mark.environment(HELD="1:6", WAIT="1", OMP_NUM_THREADS="1", COLUMNS="200")
            self.process = subprocess.Popen([sys.executable, "-m", "understudy.cli", *words], stdout=file, stderr=file, env=variables)
        self.wait_until((self.folder / "marker held 6").exists, "rank 1 is held")
        self.wait_until(lambda: [one["state"] for one in self.status().get("spares", ())] == ["warm"], "its spare is warm")

    @property
    def reported(self) -> str:
        return self._told.read_text()

    def wait_until(self, what: Callable[[], bool], words: str) -> None:
        def there() -> bool:
            assert self.process.poll() is None, self.reported
            return what()

        wait_until(there, words, LONG)

    def status(self) -> dict[str, Any]:
        """Return the status; empty while no orchestrator answers."""
        with contextlib.suppress(NoAnswer):
            return cast("dict[str, Any]", Server.of(RunDirectory(self.run)).call("GET", of_job(ONLY, "status"), limit=LONG))
        return {}

    def pauses(self) -> bool:
        return has(self.status().get("message", ""), orchestrators.JOB_PAUSED)

    def lose_rank(self) -> None:
        send(pid_of(lambda: self.status()["ranks"][1]), signal.SIGKILL)

    def kill_orchestrator(self) -> None:
        before = pid_of(partial(_pid, self.process.pid, "understudy.orchestrator"))
        send(before, signal.SIGKILL)
        self.wait_until(partial(_another, self.process.pid, "understudy.orchestrator", before), "the orchestrator is started again")
        self.wait_until(lambda: bool(self.status().get("ranks")), "the orchestrator leads")

    def ends(self) -> Outcome:
        for name in ("let go", "end"):
            (self.folder / name).touch()
        code = self.process.wait(LONG)
        assert code == 0, self.reported
        return Outcome(code, self.reported, self.folder)

    def recoveries(self) -> list[bool]:
        """Whether each is over, as the journal has it."""
        found = journal.read(self.run / JOURNAL)
        assert found is not None
        return [incident.seconds >= 0 for incident in journal.replay(found.settings, found.events).incidents()]


def test_a_recovery_on_a_full_disk_is_in_the_journal_and_is_not_decided_again(
    roomy: Path, tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]
) -> None:
    """The reserve takes it, and the next orchestrator that leads knows it."""
    with marked() as mark:
        job = Job(tmp_path, roomy, mark)
        fill(roomy)
        job.lose_rank()
        job.wait_until((job.folder / "marker step 13 on 1 in generation 1").exists, "the newcomer trains")
        job.wait_until(lambda: job.status().get("state") == "training", "the recovery is over")
        for _ in range(2):
            job.kill_orchestrator()
            assert job.status()["state"] == "training"
        (roomy / "filling").unlink()
        job.kill_orchestrator()
        assert job.status()["state"] == "training"
        outcome = job.ends()
    assert not has(outcome.output, orchestrators.JOURNAL_UNWRITTEN) and not has(outcome.output, orchestrators.JOB_PAUSED)
    assert outcome.record == undisturbed_spread(2).record
    assert job.recoveries() == [True]


def test_a_job_without_a_reserve_pauses_and_goes_on_by_itself(
    small: Path, tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]
) -> None:
    """No decision goes out that the journal has not, also not from orchestrators that are started again meanwhile."""
    with marked() as mark:
        job = Job(tmp_path, small, mark)
        assert has(job.reported, orchestrators.NO_RESERVE)
        fill(small)
        job.lose_rank()
        for _ in range(2):
            job.wait_until(job.pauses, "the job pauses, and its status says why")
            assert has(job.status()["message"], orchestrators.DISK_REFUSES, path=job.run / JOURNAL)
            assert job.status()["state"] == "recovering"
            job.kill_orchestrator()
        job.wait_until(job.pauses, "the job pauses still")
        assert not (job.folder / "marker step 7 on 0 in generation 1").exists(), "no rank has gone on"
        (small / "filling").unlink()
        job.wait_until(lambda: job.status().get("state") == "training", "it goes on by itself")
        job.kill_orchestrator()
        outcome = job.ends()
    assert has(outcome.output, orchestrators.JOB_PAUSED) and has(outcome.output, orchestrators.JOB_GOES_ON)
    assert outcome.record == undisturbed_spread(2).record
    assert job.recoveries() == [True]


def test_only_what_must_not_be_forgotten_uses_the_reserve_and_it_is_whole_again_when_there_is_room(roomy: Path) -> None:
    reported: list[str] = []
    file = journal.Journal(roomy / JOURNAL, reported.append)
    file.start()
    writer = file.begin(Settings(JobSpec("job", 2, 2, spares=1), Timeouts()))
    sent = 0

    def written() -> bool:
        """Whether another event is, before the writer is in trouble."""
        nonlocal sent
        sent += 1
        done = threading.Event()
        writer.append(float(sent), Notice("w0", 0, f"notice {sent}"))
        writer.mark(done.set)
        while not done.wait(0.01) and not file.trouble:
            pass
        return done.is_set()

    def progress(times: int) -> None:
        for step in range(times):
            done = threading.Event()
            writer.progress({f"w{worker}": PageView(step, 1.0, Activity.RUNNING, step, step, 2.0, 40, 0.5) for worker in range(200)})
            writer.mark(done.set)
            assert done.wait(LONG)

    assert written()
    wait_until(lambda: (roomy / f"{JOURNAL}-wal").stat().st_size == RESERVE, "the reserve is there", LONG)
    for _ in range(2):
        fill(roomy)
        progress(500)  # more than it would take
        assert has(reported.pop(), orchestrators.RESERVE_USED, folder=roomy)
        before = sent
        while written():
            pass
        assert sent - before > 100
        wait_until(lambda: len(reported) == 1, "that it is used up", LONG)
        assert has(reported.pop(), orchestrators.JOURNAL_UNWRITTEN)
        (roomy / "filling").unlink()
        wait_until(lambda: len(reported) == 1, "that all is written", LONG)
        assert has(reported.pop(), orchestrators.JOURNAL_WRITTEN_AGAIN)
        progress(1)
        assert has(reported.pop(), orchestrators.RESERVE_WHOLE)
    file.close(LONG)
    found = journal.read(roomy / JOURNAL)
    assert found is not None and [now for now, _ in found.events] == [float(number) for number in range(1, sent + 1)]


def _another(parent: int, module: str, before: int) -> bool:
    return _pid(parent, module) not in (None, before)


def _pid(parent: int, module: str) -> int | None:
    """Of the command line's child that runs this module; None if there is none."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        with contextlib.suppress(OSError):
            if module in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return int(child)
    return None


def _status(run: Path) -> dict[str, Any]:
    asked = [sys.executable, "-m", "understudy.cli", "status", "--run-dir", str(run), "--json"]
    found = subprocess.run(asked, capture_output=True, text=True)
    with contextlib.suppress(ValueError):
        return cast("dict[str, Any]", json.loads(found.stdout))
    return {}


def _answers(run: Path, state: str) -> bool:
    status = _status(run)
    return status.get("state") == state and len(status["ranks"]) == 2
