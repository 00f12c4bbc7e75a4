"""A rank whose process gets less of the processor is told from those that wait for it, and leaves; bit by bit the same as undisturbed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import wait_for_end, wait_until
from tests.integration.training import LONG, Started, Training, survived, training, understudy

__all__ = ["training"]

RANKS, SLOW = 4, 2
RUN = 0.02  # seconds in which a slowed process runs, ...
STOP = 0.1  # ... and stands still behind that
CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # of version 1, and of version 2
Slowed = Callable[[int], contextlib.AbstractContextManager[None]]
POLICY = """
[[rule]]
name = "slow"
subject = ["worker"]
kind = "straggler"
action = "leave"
"""


@contextlib.contextmanager
def stopped_now_and_then(pid: int) -> Iterator[None]:
    """A process that is stopped again and again, as `cpulimit` does it, until it has ended."""
    process, over = os.pidfd_open(pid), threading.Event()

    def work() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not over.wait(RUN):
                signal.pidfd_send_signal(process, signal.SIGSTOP)
                over.wait(STOP)
                signal.pidfd_send_signal(process, signal.SIGCONT)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.close(process)


@contextlib.contextmanager
def in_a_cgroup(pid: int) -> Iterator[None]:
    """A process that gets so much of one processor as the kernel lets its control group have."""
    period, quota = 100_000, int(100_000 * RUN / (RUN + STOP))  # microseconds
    group = next((root for root in CGROUPS if (root / "cgroup.procs").exists()), CGROUPS[0]) / f"understudy-test-{os.getpid()}-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {period}")
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            pytest.skip(f"this control group limits no processor: {error}")
        yield
        wait_for_end(pid, LONG)
    finally:
        with contextlib.suppress(OSError):  # it has ended, as it should
            (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def status(job: Started) -> dict[str, Any]:
    assert job.process.poll() is None, job.output
    found: dict[str, Any] = json.loads(understudy("status", "--json", "--run-dir", str(job.folder / "run")).stdout)
    return found


def wait_for(job: Started, words: str) -> None:
    def said() -> bool:
        assert job.process.poll() is None, job.output
        return words in job.output

    wait_until(said, words, 2 * LONG)


@pytest.mark.whole
@pytest.mark.parametrize("slowed", [stopped_now_and_then, in_a_cgroup])
def test_a_slowed_rank_is_named_and_leaves(training: Training, tmp_path: Path, slowed: Slowed) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    flags = ["--nproc-per-node", str(RANKS), "--spares", "1", "--no-replenish", "--drill", "off", "--policy", str(policy)]
    job = training.start(["-m", "understudy.cli", "run", *flags, "--run-dir", "FOLDER/run"], "heavy.py")
    wait_for(job, "coverage: ")
    wait_until(lambda: [spare["state"] for spare in status(job)["spares"]] == ["warm"] and status(job)["step"] > 20, "steps", LONG)
    slow = status(job)["ranks"][SLOW]
    with slowed(slow["pid"]):
        wait_for(job, f"incident 1 is over: rank {SLOW} is on ")
    moved = status(job)
    wait_until(lambda: status(job)["step"] > moved["step"] + 20, "steps of the newcomer", LONG)
    (job.folder / "end").touch()
    outcome = job.succeeds()

    after = outcome.ask("status")
    (seen,) = after["evidence"]
    assert (seen["detector"], seen["kind"], seen["severity"], seen["name"]) == ("straggler", "straggler", "suspect", slow["worker"])
    assert seen["detail"].startswith(f"rank {SLOW} computes ") and seen["detail"].endswith("in forward and backward (RUNNING)")
    reference = training.undisturbed("heavy.py", str(after["step"]), ranks=RANKS)
    (incident,) = survived(outcome, reference)
    assert (incident["planned"], incident["cause"], incident["rank"], incident["old_worker"]) == (True, "migrated", SLOW, slow["worker"])
    assert incident["ranks"][0]["detail"] == f"{seen['detail']} (straggler), by rule 'slow'"
