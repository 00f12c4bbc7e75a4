"""Whole jobs with the real worker: whichever of our processes is killed with SIGKILL, no process is left running.

The script trains with data loader processes, and each rank starts a process in a new session; every process
of the run carries a mark, by which the test finds it. The effect of recovery on the numbers is tested elsewhere.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.control.test_cli_run import ask
from tests.integration.processes import LIMIT, Mark, marked, send, wait_until
from tests.message_texts import has

from understudy.messages import recoveries, starting

SCRIPT = """
import os, select, subprocess, sys
import torch, understudy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=1)
job.register(model=model, optimizer=optimizer, loader=loader)
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause() # stray"], start_new_session=True)

@job.step
def train_step(batch):
    optimizer.zero_grad()
    inputs, targets = batch
    loss = (model(inputs) - targets).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()

for batch in job.batches(loader, steps=6):
    train_step(batch)
    if job.rank == 0:
        print("step", job.committed, flush=True)
    if job.committed == 3 and job.generation == 0 and not os.path.exists("go"):
        # Both ranks stand here until the test has done its deed: it kills this process, or lets it go on.
        open(f"here{job.rank}", "w").close()
        while not os.path.exists("go"):
            select.select([], [], [], 0.01)
print("done", flush=True)
"""


def start(folder: Path, mark: Mark) -> subprocess.Popen[str]:
    """A job of two ranks and a spare that waits after its third step; returns when both ranks are there."""
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "-m", "understudy.cli", "run", "--nproc-per-node", "2", "--run-dir", "run", "script.py"],
        cwd=folder,
        env=mark.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "step 3" in line:
            return process
    raise AssertionError(f"the job ended before its third step, with code {process.wait()}")


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=LIMIT)
    return process.returncode, output


def test_the_death_of_the_command_line_leaves_nothing(tmp_path: Path) -> None:
    with marked() as mark:
        process = start(tmp_path, mark)
        assert len(mark.pids_running("# stray")) == 2
        (pid,) = mark.pids_running("understudy.cli run")
        send(pid, signal.SIGKILL)
        mark.wait_until_none(30.0)
        code, _ = finish(process)
        assert code == -signal.SIGKILL


def test_an_agent_that_was_started_again_leaves_nothing(tmp_path: Path) -> None:
    """Neither processes of ranks that it has not started, nor those that are not its descendants."""
    with marked() as mark:
        process = start(tmp_path, mark)
        assert len(mark.pids_running("# stray")) == 2
        (pid,) = mark.pids_running("understudy.agent")
        send(pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        code, output = finish(process)
        assert code == 0, output
        assert has(output, starting.AGENT_RESTARTED, node="node0", how="killed by SIGKILL")
        assert output.count("done") == 2
        mark.wait_until_none(10.0)


def test_an_agent_that_is_killed_again_and_again(tmp_path: Path) -> None:
    with marked() as mark:
        process = start(tmp_path, mark)
        killed: set[int] = set()
        for _ in range(6):
            wait_until(lambda: set(mark.pids_running("-m understudy.agent")) - killed, "an agent")
            (pid,) = set(mark.pids_running("-m understudy.agent")) - killed
            killed.add(pid)
            send(pid, signal.SIGKILL)
        code, output = finish(process)
        assert code == 1
        assert has(output, starting.ENDED_TOO_OFTEN, process="agent", how="killed by SIGKILL")
        assert has(output, starting.AGENT_LOST, node="node0")
        mark.wait_until_none(30.0)


def test_the_death_of_the_orchestrator_stops_no_training(tmp_path: Path) -> None:
    with marked() as mark:
        process = start(tmp_path, mark)
        (pid,) = mark.pids_running("understudy.orchestrator")
        send(pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        code, output = finish(process)
        assert code == 0, output
        assert output.count("done") == 2
        mark.wait_until_none(10.0)


def test_a_lost_rank_is_replaced_and_its_strays_end(tmp_path: Path) -> None:
    with marked() as mark:
        process = start(tmp_path, mark)
        ranks = json.loads(ask(tmp_path, "status", "--json", "--run-dir", "run").stdout)["ranks"]
        send(ranks[1]["pid"], signal.SIGKILL)
        (tmp_path / "go").touch()
        code, output = finish(process)
        assert code == 0, output
        assert has(output, recoveries.TAKES_OVER, rank=1)
        mark.wait_until_none(10.0)
        (incident,) = json.loads(ask(tmp_path, "report", "--json", "--run-dir", "run").stdout)["incidents"]
        assert (incident["cause"], incident["rank"], incident["steps_lost"]) == ("killed", 1, 0)
        assert incident["new_worker"] != incident["old_worker"]
        table = ask(tmp_path, "report", "--run-dir", "run")
        assert "killed" in table.stdout


def test_ctrl_c_ends_data_loaders_and_strays(tmp_path: Path) -> None:
    with marked() as mark:
        process = start(tmp_path, mark)
        process.send_signal(signal.SIGINT)
        code, _ = finish(process)
        assert code == 130
        mark.wait_until_none(5.0)
