"""The names that processes share: files of a run directory, and variables in the environment of a job's processes.

`cli.run_directory` describes the files. A part of a service's job has a folder with the same names (`agent.node`).
"""

from __future__ import annotations

import signal
from pathlib import Path

JOB = "job.json"
AGENT = "agent.json"
ORCHESTRATOR = "orchestrator.json"
SECRET = "token"
JOURNAL = "journal.db"
ENDED = "ended"  # the exit code of an agent that has ended in order; without it the agent would be restarted
RECORD = "record"  # a folder: digests of the state of ranks, by commit (`worker.recorder`)
WORKERS = "workers"  # a folder: pages, output of workers, the agent's socket

CLAIM = "claim.json"  # settings for a node that the scheduler gives to the job later
OWNER_VARIABLE = "UNDERSTUDY_OWNER"  # on such a node: the scheduler's job that it is for
NEED_VARIABLE = "UNDERSTUDY_NEED"  # the same: what the scheduler must have given the job there
CLAIM_VARIABLE = "UNDERSTUDY_CLAIM"  # the same, filled in, on such a node
TOKEN_VARIABLE = "UNDERSTUDY_TOKEN"
WORKER_VARIABLE = "UNDERSTUDY_WORKER"  # of a worker, and so of everything that it starts
RUN_DIR_VARIABLE = "UNDERSTUDY_RUN_DIR"  # the same
CHAOS_VARIABLE = "UNDERSTUDY_CHAOS"
STRICT_VARIABLE = "UNDERSTUDY_STRICT"
INTEGRATION_VARIABLE = "UNDERSTUDY_INTEGRATION"  # "none": trainers of frameworks make their own process groups, and are not protected
RECORD_VARIABLE = "UNDERSTUDY_RECORD"  # of a job of `understudy run --check`: when the check began, in ns since the epoch
OWN_TIME_VARIABLE = "UNDERSTUDY_OWN_TIME"  # a worker's own time: "0": not measured; "device": by events of its GPU

UNUSABLE = 2  # exit code of an orchestrator that cannot lead, and has reported why; if its job has ended, it is 0, however the job ended

LEAVE = int(signal.SIGRTMIN) + 1  # to `understudy run`: its node is no longer part of the job, and it ends with success


def page_path(run_dir: Path, worker: str) -> Path:
    return run_dir / WORKERS / f"{worker}.page"
