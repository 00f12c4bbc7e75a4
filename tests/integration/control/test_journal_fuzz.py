"""Random damage to the journal of a job that trains: no rank is ever ended, and the orchestrator always reports what it has found.

One service and one training for all of them: the orchestrator is killed, its journal damaged, and it is restarted; then the journal is
restored. Damage may be harmless (a page that is not used, the progress of a worker): then the job goes on.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.integration.processes import is_alive, marked, pid_of, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG
from tests.journals.damage import DAMAGES, checkpointed
from tests.message_texts import codes

from understudy.messages import orchestrators

SEED = 40
RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "0", "--hang-limit", "3600"]


class Training:
    """A job of two ranks on two nodes, one of which is paused, and its orchestrator's journal."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.file = service.state / "journal.db"
        self.older, self.sound = service.folder / "older.db", service.folder / "sound.db"
        service.start_nodes("ab", 2)
        self.job = service.run("job", RANKS, "spread.py", HELD="1:6")
        self.job.wait_for("held 6")
        self.pids = [pid_of(lambda: self.job.status()["ranks"][0]), pid_of(lambda: self.job.status()["ranks"][1])]
        self.is_known()
        service.kill_orchestrator()
        checkpointed(self.file)
        shutil.copy(self.file, self.older)
        service.start_orchestrator()
        self.is_led()
        self.is_sound()

    def is_sound(self) -> None:
        """The orchestrator is killed, and its journal kept, which has all that agents know."""
        self.is_known()
        self.service.kill_orchestrator()
        checkpointed(self.file)
        shutil.copy(self.file, self.sound)

    def is_known(self) -> None:
        """Both agents know how far the journal is."""

        def known() -> bool:
            with closing(sqlite3.connect(self.file)) as journal:
                ((last,),) = journal.execute("select number || '-' || checksum from events where job = 'job' order by number desc limit 1")
            found = [file.read_text() for file in self.service.folder.glob("agent-?/parts/job/journal-position")]
            return [position.rpartition("-")[0] for position in found] == [last] * 2  # after it comes the job's identity

        wait_until(known, "the agents know how far the journal is", LONG)

    def lines(self) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        found: list[dict[str, Any]] = httpx.get(f"{self.service.url}/v1/jobs", headers=headers, trust_env=False, timeout=LONG).json()
        return found

    def is_led(self) -> None:
        """Both agents have joined the job's own service."""
        wait_until(lambda: self.state() == "training", "the job is led", LONG)

    def state(self) -> str:
        """`aside`; `training`, when both agents are connected; "": it is not known yet."""
        for line in self.lines():
            if line["job"] == "job" and line["state"] == "aside":
                assert codes(line["message"]), line
                return "aside"
        url = f"{self.service.url}/v1/jobs/job/status"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=LONG)
        pages = [rank["step"] for rank in answer.json()["ranks"]] if answer.status_code == 200 else []
        return "training" if len(pages) == 2 and self.joined() == 2 else ""

    def joined(self) -> int:
        """How many agents have joined since the orchestrator was started."""
        before = self.sound if self.sound.exists() else self.older
        with closing(sqlite3.connect(self.file)) as journal, closing(sqlite3.connect(before)) as was:
            ask = "select count(*) from events where job = 'job' and event like '{\"type\":\"NodeJoined\"%'"
            return int(journal.execute(ask).fetchone()[0]) - int(was.execute(ask).fetchone()[0])

    def outcome(self) -> str:
        """What becomes of the damaged journal: `refused`, `waiting` (until it can be read), `unwritten`, `aside` or `training`."""
        said = self.service.state / "orchestrator.json"
        said.unlink(missing_ok=True)
        log = self.service.folder / "orchestrator.txt"
        before = log.stat().st_size
        self.start()

        def reported() -> str:
            return log.read_bytes()[before:].decode()

        def answers() -> bool:
            ended = self.service.orchestrator.poll() is not None
            return ended or said.exists() or orchestrators.JOURNAL_UNREADABLE_NOW.code in reported()

        wait_until(answers, "the orchestrator serves, waits or refuses", LONG)
        if orchestrators.JOURNAL_UNREADABLE_NOW.code in reported():
            return "waiting"
        if self.service.orchestrator.poll() is not None:
            assert self.service.orchestrator.returncode == 2 and codes(reported()) and "Traceback" not in reported(), reported()
            return "refused"
        found: list[str] = []

        def decided() -> str:
            found.append(self.state() or ("unwritten" if orchestrators.JOURNAL_UNWRITTEN.code in reported() else ""))
            return found[-1]

        wait_until(decided, "the job is led or put aside", LONG)
        return found[-1]

    def start(self) -> None:
        port = self.service.url.rpartition(":")[2]
        words = ["orchestrator", "--listen", f"127.0.0.1:{port}", "--state-dir", str(self.service.state)]
        self.service.orchestrator = self.service._start(None, words, "orchestrator.txt")

    def is_damaged(self, number: int) -> str:
        """Damage number `number`, and what became of it."""
        random = Random(f"{SEED} {number}")
        damage = DAMAGES[number % len(DAMAGES)]
        self.restore()
        what = f"{number}: {damage.__name__}: {damage(self.file, self.older, random)}"
        outcome = self.outcome()
        assert all(map(is_alive, self.pids)), f"a rank was ended ({outcome}) by {what}"
        if outcome == "training":
            status = self.job.service.get("status", job="job")
            assert status["incidents"] == 0 and status["generation"] == 0, (what, json.dumps(status))
            self.is_sound()
        else:
            self.service.kill_orchestrator()
        return f"{damage.__name__} {outcome}"

    def restore(self) -> None:
        for file in self.service.state.glob("journal.db*"):
            file.unlink()
        shutil.copy(self.sound, self.file)

    def end(self) -> None:
        """The restored journal leads the job to its end."""
        self.restore()
        self.service.start_orchestrator()
        self.is_led()
        self.job.let("let go")
        wait_until(lambda: self.job.status()["state"] == "finished", "the job's end", LONG)
        self.job.process.wait(LONG)
        assert self.job.status()["exit_code"] == 0 and self.job.status()["incidents"] == 0


def damaged(folder: Path, numbers: range) -> Counter[str]:
    with marked() as mark:
        training = Training(Service(folder, mark))
        found = Counter(training.is_damaged(number) for number in numbers)
        training.end()
    return found


@pytest.mark.whole
def test_some_damages_end_no_rank(tmp_path: Path) -> None:
    found = damaged(tmp_path, range(len(DAMAGES)))
    assert found["tail aside"] == found["old_copy aside"] == found["row aside"] == 1, found


@pytest.mark.timeout(1800)
@pytest.mark.whole
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_five_hundred_damages_end_no_rank(tmp_path: Path, first: int) -> None:
    """In several trainings: a rank waits in each of them, which Gloo allows for 30 minutes."""
    found = damaged(tmp_path, range(first, first + 100))
    for damage in ("tail", "old_copy", "row"):
        assert not found[f"{damage} training"], found
