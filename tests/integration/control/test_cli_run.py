"""`understudy run` from start to end: real supervisor, orchestrator and agent, with stand-in workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.processes import LIMIT, Mark, marked, send, wait_for_end, wait_until
from tests.message_texts import has

from understudy.messages import asking, moves, starting

ROOT = Path(__file__).parents[3]
WAIT = "import threading; threading.Event().wait()"
STRAYS = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause() # stray'], start_new_session=True)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        {WAIT}
    os._exit(0)
if os.fork() == 0:
    {WAIT}
print('started', flush=True)
{WAIT}
"""


class Run:
    def __init__(self, folder: Path, mark: Mark, script: str, flags: dict[str, object], **environment: str) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.mark = mark
        path = folder / "script.py"
        path.write_text(script)
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        driver = str(Path(__file__).parents[1] / "run_with_standin.py")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, driver, json.dumps(flags), str(self.run_dir), str(path)],
                cwd=folder,
                env=mark.environment(PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", **environment),
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for_output(self, text: str, times: int) -> None:
        def there() -> bool:
            assert self.process.poll() is None, f"it ended: {self.err}"
            return self.out.count(text) >= times

        wait_until(there, f"{times} times {text!r}")

    def process_of(self, words: str) -> int:
        pids = self.mark.pids_running(words)
        assert len(pids) == 1, pids
        return pids[0]

    def ends(self) -> int:
        return self.process.wait(LIMIT)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return ask(self.folder, *words, "--run-dir", str(self.run_dir))


def ask(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "understudy.cli", *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@contextmanager
def running(folder: Path, script: str, *, ranks: int = 2, spares: int = 0, stop: int = 5) -> Iterator[Run]:
    with marked() as mark:
        run = Run(folder, mark, script, {"nproc_per_node": str(ranks), "spares": spares, "shutdown_timeout": stop})
        try:
            yield run
        finally:
            mark.kill()
            run.process.wait()


def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path, "import os; print('rank', os.environ['RANK'], os.environ['WORLD_SIZE'])", spares=1) as run:
        assert run.ends() == 0
        assert sorted(run.out.splitlines()) == ["[rank 0 w0] rank 0 2", "[rank 1 w1] rank 1 2"]
        run.mark.wait_until_none()
        token = run.run_dir / "token"
        assert token.stat().st_mode & 0o777 == 0o600
        kept = [path for path in run.run_dir.rglob("*") if path.is_file() and path != token]
        assert not [path for path in kept if token.read_bytes().strip() in path.read_bytes()]
        status = json.loads(run.ask("status", "--json").stdout)
        assert status["state"] == "finished"
        assert {"job", "generation", "step", "ranks", "spares"} <= status.keys()
        assert [set(rank) for rank in status["ranks"]] == [{"rank", "worker", "pid", "node", "device", "state", "step", "proven"}] * 2
        assert json.loads(run.ask("report", "--json").stdout)["incidents"] == []
        assert "finished" in run.ask("status").stdout


@pytest.mark.gate
def test_a_failed_script_gives_its_exit_code_and_traceback(tmp_path: Path) -> None:
    script = """
import os
from understudy.core.events import *
if os.environ['RANK'] == '1':
    say(ScriptFailed(me, 1, 5, 'ValueError: no', 'Traceback of the script', 3))
    os._exit(3)
import threading; threading.Event().wait()
"""
    with running(tmp_path, script) as run:
        assert run.ends() == 3
        assert "Traceback of the script" in run.err
        assert "rank 1" in run.err
        run.mark.wait_until_none()


def test_ask_a_running_job(tmp_path: Path) -> None:
    with running(tmp_path, f"print('started', flush=True); {WAIT}") as run:
        run.wait_for_output("started", 2)
        status = json.loads(run.ask("status", "--json").stdout)
        assert [rank["worker"] for rank in status["ranks"]] == ["w0", "w1"]
        refused = run.ask("migrate", "--rank", "1")
        assert refused.returncode == 1
        assert has(refused.stderr, moves.NOT_SETTLED)
        latest = json.loads(ask(tmp_path, "status", "--json").stdout)
        assert latest["job"] == status["job"], "found without --run-dir"
        (tmp_path / "empty").mkdir()
        assert ask(tmp_path / "empty", "status").returncode == 2, "there is no run here"
        assert run.ask("stop", "--exit-code", "9").returncode == 0
        assert run.ends() == 9
        run.mark.wait_until_none()
        gone = run.ask("migrate", "--rank", "1")
        assert gone.returncode == 1
        assert has(gone.stderr, asking.NOT_RUNNING, path=run.run_dir)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, STRAYS) as run:
        run.wait_for_output("started", 2)
        run.process.send_signal(number)
        assert run.ends() == 128 + number
        run.mark.wait_until_none(5.0)
        assert json.loads(run.ask("status", "--json").stdout)["state"] == "failed"


def test_a_second_signal_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    script = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WAIT}"
    with running(tmp_path, script, stop=1000) as run:
        run.wait_for_output("deaf", 2)
        run.process.send_signal(signal.SIGINT)
        wait_until(lambda: has(run.err, starting.STOPPING, signal="SIGINT"), "the first signal's answer")
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130
        run.mark.wait_until_none(5.0)


def test_the_death_of_the_command_line_ends_everything(tmp_path: Path) -> None:
    with running(tmp_path, STRAYS) as run:
        run.wait_for_output("started", 2)
        run.process.kill()
        run.ends()
        run.mark.wait_until_none(20.0)


def test_an_agent_that_is_killed_is_started_again_and_leaves_no_strays(tmp_path: Path) -> None:
    """Real workers stay with their job (`test_adoption`); these end when their agent does, so the job restarts."""
    with running(tmp_path, STRAYS) as run:
        run.wait_for_output("started", 2)
        send(run.process_of("-m understudy.agent"), signal.SIGKILL)
        run.wait_for_output("started", 4)
        assert has(run.err, starting.AGENT_RESTARTED, node="node0", how="killed by SIGKILL")
        wait_until(lambda: len(run.mark.pids_running("# stray")) == 2, "the end of the first workers' strays")


def test_the_death_of_a_worker_leaves_no_strays(tmp_path: Path) -> None:
    with running(tmp_path, STRAYS, ranks=1) as run:
        run.wait_for_output("started", 1)
        status = json.loads(run.ask("status", "--json").stdout)
        send(status["ranks"][0]["pid"], signal.SIGKILL)
        # No rank can take over a job of one rank: it restarts, up to the limit, or ends; strays end either way.
        wait_until(lambda: run.process.poll() is not None or run.out.count("started") == 2, "the end or a new start")
        assert len(run.mark.pids_running("# stray")) <= 1


def test_training_outlives_the_orchestrator(tmp_path: Path) -> None:
    script = """
import pathlib, select
print('started', flush=True)
while not pathlib.Path('go').exists():
    select.select([], [], [], 0.05)
"""
    with running(tmp_path, script) as run:
        run.wait_for_output("started", 2)
        workers = {rank["pid"] for rank in json.loads(run.ask("status", "--json").stdout)["ranks"]}
        first = run.process_of("-m understudy.orchestrator")
        url = json.loads((run.run_dir / "orchestrator.json").read_text())["url"]
        send(first, signal.SIGKILL)
        wait_for_end(first)

        def back() -> bool:
            answer = json.loads((run.run_dir / "orchestrator.json").read_text())
            return bool(answer["pid"] != first and answer["url"] == url)

        wait_until(back, "a new orchestrator on the same port")
        assert {rank["pid"] for rank in json.loads(run.ask("status", "--json").stdout)["ranks"]} == workers
        (tmp_path / "go").touch()
        assert run.ends() == 0
        assert has(run.err, starting.ORCHESTRATOR_RESTARTED, how="killed by SIGKILL")
        run.mark.wait_until_none()


def test_an_orchestrator_that_cannot_start_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("")
    with marked() as mark, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = subprocess.run(
            [sys.executable, "-m", "understudy.cli", "run", "--master-port", port, "script.py"],
            cwd=tmp_path,
            env=mark.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert process.returncode == 1
        assert has(process.stderr, starting.ORCHESTRATOR_UNSTARTED)
        mark.wait_until_none()


@pytest.mark.gate
def test_two_nodes_are_one_job(tmp_path: Path) -> None:
    script = "import os; print(os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['GROUP_RANK'], hash('word'))"
    with marked() as mark:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        runs = []
        for rank in (0, 1):
            (tmp_path / str(rank)).mkdir()
            flags = {"nnodes": "2", "node_rank": rank, "master_addr": "127.0.0.1", "master_port": port, "spares": 0}
            flags["nproc_per_node"] = "2"
            runs.append(Run(tmp_path / str(rank), mark, script, flags, UNDERSTUDY_TOKEN="a shared secret"))
        assert [run.ends() for run in runs] == [0, 0]
        lines = [line.split("] ")[1].rpartition(" ") for run in runs for line in sorted(run.out.splitlines())]
        assert [ranks for ranks, _, _ in lines] == ["0 0 0", "1 1 0", "2 0 1", "3 1 1"]
        assert len({word for _, _, word in lines}) == 1, "a set of strings has the same order on all nodes"
        mark.wait_until_none()
