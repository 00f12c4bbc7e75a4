"""`python -m understudy.schedulers.slurm.leave JOB STEP`: end the task of our step on this node as if it had succeeded.

It runs in a further step of the job on that node. If Slurm killed the task, `srun` would report that as the job's own end. Our command ends
its workers when it is told that the node is not part of the job any more, and exits with code 0.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from pathlib import Path

from understudy.common.names import LEAVE

SECONDS = 20.0  # for it to end


def tasks(job: str, step: str) -> set[int]:
    """Return the pids of that step's tasks on this node: the processes that Slurm itself has started there, which are our command."""
    mine = {b"SLURM_JOB_ID=" + job.encode(), b"SLURM_STEP_ID=" + step.encode()}
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):
            variables = entry.read_bytes().split(b"\0")
            if mine.issubset(variables):
                found.update(int(each.partition(b"=")[2]) for each in variables if each.startswith(b"SLURM_TASK_PID="))
    return found


def main() -> int:
    job, step = sys.argv[1:]
    for pid in tasks(job, step):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended by itself
            process = os.pidfd_open(pid)
            if b"understudy" in Path(f"/proc/{pid}/cmdline").read_bytes():
                signal.pidfd_send_signal(process, LEAVE)
                if not select.select([process], [], [], SECONDS)[0]:
                    return 1
            os.close(process)
    return 0


if __name__ == "__main__":
    sys.exit(main())
