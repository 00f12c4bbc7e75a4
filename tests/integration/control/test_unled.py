"""A single run whose orchestrator cannot read its journal: training goes on, and ends as it would have."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.processes import Mark, marked, pid_of, send, wait_until
from tests.integration.training import JOBS, LONG, Outcome
from tests.message_texts import has

from understudy.messages import agents, orchestrators, starting
from understudy.messages.base import Message

FAILS = """
import sys, time
from pathlib import Path
import torch, understudy

job = understudy.join()
model = torch.nn.Linear(2, 2)
job.register(model=model)

@job.step
def train():
    while not (Path(sys.argv[1]) / "let go").exists():
        time.sleep(0.01)
    raise ValueError("on purpose")

(Path(sys.argv[1]) / "marker begun").touch()
for _ in job.steps(3):
    train()
"""


def overwritten(journal: Path) -> None:
    for file in journal.parent.glob("journal.db-*"):
        file.unlink()
    journal.write_bytes(b"no database" * 10_000)


def without_its_last_events(journal: Path) -> None:
    """The agent knows of the first one that is missing."""
    (position,) = journal.parent.rglob("journal-position")
    with closing(sqlite3.connect(journal)) as database, database:
        database.execute("delete from events where number >= ?", (int(position.read_text().partition("-")[0]),))


class Run:
    """`understudy run` on one node, whose orchestrator was killed and finds its journal damaged in a way that `report` names."""

    def __init__(
        self,
        folder: Path,
        mark: Mark,
        script: Path,
        begun: str,
        damage: Callable[[Path], None] = overwritten,
        report: Message = orchestrators.JOURNAL_DAMAGED,
    ) -> None:
        self.folder = folder
        self.run = folder / "run"
        words = [
            "run",
            "--nproc-per-node",
            "2",
            "--spares",
            "0",
            "--hang-limit",
            "600",
            "--run-dir",
            str(self.run),
            str(script),
            str(folder),
        ]
        with (folder / "output.txt").open("wb") as output:
            variables = mark.environment(HELD="1:6", OMP_NUM_THREADS="1")
            self.process = subprocess.Popen([sys.executable, "-m", "understudy.cli", *words], stdout=output, stderr=output, env=variables)
        self.wait_until((folder / begun).exists, "the script has begun")
        pid = pid_of(lambda: json.loads((self.run / "orchestrator.json").read_text()))
        damage(self.run / "journal.db")
        send(pid, signal.SIGKILL)
        self.wait_until(lambda: has(self.output, report), "the damage is reported")
        self.wait_until(lambda: has(self.output, starting.ORCHESTRATOR_UNUSABLE), "and what works meanwhile")

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text()

    def wait_until(self, what: Callable[[], bool], words: str) -> None:
        def there() -> bool:
            assert self.process.poll() is None, self.output
            return what()

        wait_until(there, words, LONG)

    def ends(self) -> int:
        (self.folder / "let go").touch()
        code = self.process.wait(LONG)
        for file in self.run.glob("journal.db*"):  # every journal of the tests is read at their end
            file.unlink()
        return code


DAMAGES: dict[Callable[[Path], None], Message] = {
    overwritten: orchestrators.JOURNAL_DAMAGED,
    without_its_last_events: orchestrators.JOURNAL_BEHIND,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_training_of_a_single_run_ends_normally_without_an_orchestrator(
    tmp_path: Path, undisturbed_spread: Callable[[int], Outcome], damage: Callable[[Path], None]
) -> None:
    """Its journal is damaged for good: that is reported again and again, and ends nothing."""
    with marked() as mark:
        run = Run(tmp_path, mark, JOBS / "spread.py", "marker held 6", damage, DAMAGES[damage])
        run.wait_until(lambda: run.output.count(DAMAGES[damage].code) > 2, "it is tried again")
        assert run.output.count(starting.ORCHESTRATOR_UNUSABLE.code) == 1
        code = run.ends()
        output = run.output
    assert code == 0 and has(output, agents.FINISHED_UNLED, ranks=2), output
    assert Outcome(code, output, tmp_path).record == undisturbed_spread(2).record


def test_a_script_that_fails_without_an_orchestrator_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FAILS)
    with marked() as mark:
        run = Run(tmp_path, mark, script, "marker begun")
        code = run.ends()
        output = run.output
    assert code == 1 and has(output, agents.FAILED_UNLED) and "on purpose" in output, output
