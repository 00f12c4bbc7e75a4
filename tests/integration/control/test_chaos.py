"""`understudy chaos` on real jobs: each fault has the outcome in the registry, and the end state is that of an undisturbed run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import wait_until
from tests.integration.training import LONG, Started, Training, training, understudy

from understudy.chaos.faults import network
from understudy.messages import coverage, faults
from understudy.messages.base import code_of

__all__ = ["training"]

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "soak_job.py"
RANKS = 2

needs_rules = pytest.mark.skipif(bool(network.why_not()), reason=network.why_not())


@pytest.fixture
def trains(training: Training) -> Callable[..., Started]:
    """Starts a job that goes on until `finish`, with two spares that are replaced, and waits until it trains."""

    def start(*flags: str) -> Started:
        command = ["-m", "understudy.cli", "run", "--nproc-per-node", str(RANKS), "--spares", "2", "--run-dir", "FOLDER/run", *flags]
        started = training.start(command, str(SCRIPT), "--pace", "0.15")

        def ready() -> bool:
            assert started.process.poll() is None, started.output
            return coverage.COVERED.code in started.output

        wait_until(ready, "training", LONG)
        return started

    return start


def ask(started: Started, what: str) -> dict[str, Any]:
    answer = understudy(what, "--json", "--run-dir", str(started.folder / "run"))
    return json.loads(answer.stdout) if answer.returncode == 0 else {}


def command(started: Started, plan: str) -> list[str]:
    path = started.folder / "plan.toml"
    path.write_text(plan)
    return [sys.executable, "-m", "understudy.cli", "chaos", str(path), "--json", "--run-dir", str(started.folder / "run")]


def chaos(started: Started, plan: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(command(started, plan), capture_output=True, text=True, timeout=LONG)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def finish(started: Started, training: Training) -> None:
    """Ends the training, and asserts that it is bit by bit an undisturbed one."""
    (started.folder / "stop").touch()
    outcome = started.succeeds()
    final = [json.loads((started.folder / f"final-{rank}.json").read_text()) for rank in range(RANKS)]
    reference = training.torchrun(str(SCRIPT), "--steps", final[0]["committed"], ranks=RANKS)
    for rank in range(RANKS):
        assert final[rank] == json.loads((reference.folder / f"final-{rank}.json").read_text()), outcome.output


def outcomes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(record["injection"]["fault"], record["outcome"]) for record in result["faults"]]


def test_faults_of_every_kind_on_one_training(trains: Callable[..., Started], training: Training) -> None:
    started = trains("--chaos", "--hang-limit", "4")
    code, result = chaos(
        started,
        """
        [[fault]]
        fault = "segfault"
        rank = 1
        at_step = 0
        point = "vote"
        [[fault]]
        fault = "sigterm"
        rank = 0
        [[fault]]
        fault = "exit"
        rank = 1
        point = "apply"
        after = 0.1
        [[fault]]
        fault = "out_of_memory"
        rank = "random"
        after = 0.2
        [[fault]]   # this newcomer is lost, too
        fault = "sigkill"
        rank = 0
        point = "verify"
        overlap = true
        after = 0.3
        [[fault]]
        fault = "abort"
        rank = 0
        point = "backward"
        after = 0.4
        [[fault]]
        fault = "sigkill"
        spare = true
        after = 0.5
        [[fault]]
        fault = "clock_jump"
        after = 0.6
        parameters = {seconds = 0.5, direction = "back"}
        [[fault]]
        fault = "disk_full"
        after = 0.7
        parameters = {seconds = 0.5}
        [[fault]]
        fault = "exception_in_thread"
        after = 0.8
        [[fault]]
        fault = "journal_full"
        after = 0.9
        [[fault]]
        fault = "orchestrator_kill"
        after = 1.0
        point = "vote"
        at_rank = 1
        [[fault]]
        fault = "gil_held"
        after = 1.1
        """,
    )
    assert code == 0 and result["met"], result
    assert outcomes(result) == [
        ("segfault", "replaced"),
        ("sigterm", "replaced"),
        ("exit", "replaced"),
        ("out_of_memory", "replaced"),
        ("sigkill", "replaced"),
        ("abort", "replaced"),
        ("sigkill", "undisturbed"),
        ("clock_jump", "undisturbed"),
        ("disk_full", "undisturbed"),
        ("exception_in_thread", "undisturbed"),
        ("journal_full", "undisturbed"),
        ("orchestrator_kill", "undisturbed"),
        ("gil_held", "replaced"),
    ]
    assert [record["incidents"] for record in result["faults"] if record["incidents"]] == [[1], [2], [3], [4], [5], [5], [6]]
    assert [record["point"] for record in result["faults"]][:6] == ["vote", "", "apply", result["faults"][3]["point"], "verify", "backward"]
    assert result["faults"][11]["point"] == "vote"
    finish(started, training)
    causes = [[part["cause"] for part in incident["ranks"]] for incident in ask(started, "report")["incidents"]]
    # From the journal, which could not be written for a while and whose orchestrator was killed.
    assert causes == [["crashed"], ["killed"], ["exited"], ["killed"], ["crashed", "killed"], ["hung"]]


@needs_rules
def test_packets_are_dropped_and_slowed_and_no_rule_stays(trains: Callable[..., Started], training: Training) -> None:
    started = trains()
    code, result = chaos(
        started,
        """
        [[fault]]
        fault = "packet_drop"
        rank = "random"
        parameters = {direction = "in", seconds = 0.5}
        [[fault]]
        fault = "packet_drop"
        rank = "random"
        parameters = {direction = "out", percent = 50, seconds = 0.5}
        [[fault]]
        fault = "slow_link"
        rank = "random"
        parameters = {seconds = 0.5}
        """,
    )
    assert code == 0 and outcomes(result) == [("packet_drop", "undisturbed")] * 2 + [("slow_link", "undisturbed")], result
    for number, ends in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
        words = command(started, '[[fault]]\nfault = "packet_drop"\nrank = 1\nparameters = {seconds = 1000}')
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_until(partial(ruled, process.pid), "rules")
            process.send_signal(number)
            assert process.wait(LONG) == ends
            wait_until(partial(unruled, process.pid), "the end of the rules")
    finish(started, training)
    assert ask(started, "report")["incidents"] == []


def ruled(pid: int) -> bool:
    """Whether there are rules of the command with this process id."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    return f"understudy_chaos_{pid}_" in tables


def unruled(pid: int) -> bool:
    return not ruled(pid)


def test_what_cannot_be_done_is_refused_and_a_killed_agent_is_started_again(trains: Callable[..., Started], training: Training) -> None:
    started = trains()
    dry = [*command(started, '[[fault]]\nfault = "sigkill"\nrank = "random"\nafter = 1\nevery = 1\ncount = 9'), "--dry-run", "--seed", "5"]
    first, second = (subprocess.run(dry, capture_output=True, text=True, timeout=LONG).stdout for _ in range(2))
    assert first == second and len(json.loads(first)) == 9
    code, result = chaos(
        started,
        """
        [[fault]]
        fault = "segfault"
        [[fault]]
        fault = "gpu_illegal_access"
        [[fault]]
        fault = "pause"
        rank = 1
        parameters = {seconds = 0.5}
        [[fault]]
        fault = "agent_kill"
        [[fault]]
        fault = "sigkill"
        rank = 0
        """,
    )
    assert code == 1
    missed = "not injected"
    wanted = [("segfault", missed), ("gpu_illegal_access", missed)]
    wanted += [("pause", "undisturbed"), ("agent_kill", "undisturbed"), ("sigkill", "replaced")]
    assert outcomes(result) == wanted, result
    assert code_of(result["faults"][0]["why"]) == faults.NO_CONSENT_INSIDE.code and not any(
        record["why"] for record in result["faults"][2:]
    ), result
    finish(started, training)


@pytest.mark.parametrize("fault", ["exception", "no_memory"])
def test_what_ends_the_job_ends_it(trains: Callable[..., Started], fault: str) -> None:
    started = trains("--chaos")
    code, result = chaos(started, f'[[fault]]\nfault = "{fault}"\nrank = 1\npoint = "forward"\n[[fault]]\nfault = "sigkill"\nrank = 0')
    assert code == 1
    assert outcomes(result) == [(fault, "ends"), ("sigkill", "not injected")], result
    assert [record["why"] for record in result["faults"]] == ["", faults.JOB_ENDED()], result
    assert started.ends().code == 1
