"""`python -m understudy.schedulers.slurm.leave JOB STEP`: ends what a step of ours runs on this node, as if it had gone well.

It runs in a further step of the job on that node. Slurm would kill the task, and `srun` would report that as the job's own end; our command
ends its workers when it is told that the node is not part of the job any more, and its exit code is 0.
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
    """Of that step, on this node: what Slurm itself has started there, which is our command."""
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
