"""A rank whose process gets less of the processor is distinguished from those that wait for it, and leaves; bit by bit the same as
undisturbed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.processes import wait_for_end, wait_until
from tests.integration.training import LONG, Training, survived, training
from tests.message_texts import has

from understudy.messages import coverage, policies, recoveries, training_evidence

__all__ = ["training"]

RANKS, SLOW = 4, 2
RUN = 0.02  # seconds in which a slowed process runs, ...
STOP = 0.1  # ... and pauses after that
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
    """A process that gets so much of one processor as the kernel lets its control group have: less than its share even of a machine on
    which a dozen processes wait for each of two cores."""
    period, quota = 100_000, 4_000  # microseconds
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


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slowed", [stopped_now_and_then, in_a_cgroup])
def test_a_slowed_rank_is_named_and_leaves(training: Training, tmp_path: Path, slowed: Slowed) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    flags = ["--nproc-per-node", str(RANKS), "--spares", "1", "--no-replenish", "--drill", "off", "--policy", str(policy)]
    job = training.start(["-m", "understudy.cli", "run", *flags, "--run-dir", "FOLDER/run"], "heavy.py")
    job.wait_for(coverage.COVERED.code)
    wait_until(lambda: [spare["state"] for spare in job.status()["spares"]] == ["warm"] and job.status()["step"] > 20, "steps", LONG)
    slow = job.status()["ranks"][SLOW]
    with slowed(slow["pid"]):
        job.wait_for(f"{recoveries.INCIDENT_OVER.code}: incident 1 ", 2 * LONG)
    moved = job.status()
    wait_until(lambda: job.status()["step"] > moved["step"] + 20, "steps of the newcomer", LONG)
    (job.folder / "end").touch()
    outcome = job.succeeds()

    after = outcome.ask("status")
    (seen,) = after["evidence"]
    assert (seen["detector"], seen["kind"], seen["severity"], seen["name"]) == ("straggler", "straggler", "suspect", slow["worker"])
    assert has(seen["detail"], training_evidence.COMPUTES_LONGER, rank=SLOW, activity="RUNNING")
    # As many steps as the job made until it was noticed: on a busy machine there are many.
    reference = training.torchrun("heavy.py", str(after["step"]), ranks=RANKS, limit=4 * LONG)
    (incident,) = survived(outcome, reference)
    assert (incident["planned"], incident["cause"], incident["rank"], incident["old_worker"]) == (True, "migrated", SLOW, slow["worker"])
    assert incident["ranks"][0]["detail"] == policies.DECIDED(detail=seen["detail"], detector="straggler", rule="slow")
