"""The process that waits for a job, and the behaviour of its agent. With real jobs: `tests/integration/control/test_cli_run.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.message_texts import codes

from understudy.messages import starting

LIMIT = 60.0
# It asks for the job's end twice, as a user does who presses Ctrl-C again, and ends before it has read the second time.
AGENT = """
import os, select, signal, socket, sys
from understudy.links.supervision import Ending
control = socket.socket(fileno=int(sys.argv[1]))
os.kill(os.getppid(), signal.SIGINT)
control.recv(1 << 16)
control.sendall(Ending(130, "", False).encode())
os.kill(os.getppid(), signal.SIGINT)
select.select([control], [], [])
"""
SUPERVISOR = f"""
import signal, sys
from dataclasses import replace
from pathlib import Path
from understudy.agent.config import AgentConfig
from understudy.cli.run_directory import RunDirectory
from understudy.cli.supervisor import Supervisor
from understudy.common.console import say
from understudy.schedulers.local import LocalScheduler

class Hasty(LocalScheduler):
    def add_node(self, work):
        return super().add_node(replace(work, command=(sys.executable, "-c", {AGENT!r}, str(work.descriptors[0]))))

run = RunDirectory.create(Path(sys.argv[1]), "job")
config = AgentConfig("-", run.path, "node0", 0, "127.0.0.1", ("train.py",), 1)
sys.exit(Supervisor(run, config, "a secret", None, 0, (signal.SIGINT,), say, scheduler=Hasty()).run())
"""


def test_an_agent_that_ends_before_it_has_read_everything(tmp_path: Path) -> None:
    """The kernel reports it as a reset connection, after the agent's last message."""
    ended = subprocess.run([sys.executable, "-c", SUPERVISOR, str(tmp_path)], capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 130, ended.stderr
    assert codes(ended.stderr) == [starting.STOPPING.code], ended.stderr
