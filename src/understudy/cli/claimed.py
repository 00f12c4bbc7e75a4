"""`python -m understudy.cli.claimed`: the process on a node that a scheduler has given to a job of ours on demand.

Its environment (`CLAIM_VARIABLE`) names the job to serve; it finds its own address. If the node has less than the job's nodes have, it
ends before a rank can be placed there, and leaves the reason with the scheduler. It ends when the orchestrator or the scheduler ends it,
and when its job is over. It polls for that itself, because the processes that should end it may all be gone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

from understudy.agent.config import AgentConfig
from understudy.cli.run_directory import NoRun, RunDirectory
from understudy.cli.supervisor import Supervisor
from understudy.common.addresses import by_which_it_reaches
from understudy.common.console import say
from understudy.common.names import CLAIM_VARIABLE, NEED_VARIABLE, OWNER_VARIABLE, TOKEN_VARIABLE
from understudy.messages import starting
from understudy.schedulers.slurm.claims import owner_is_over, refuse
from understudy.schedulers.slurm.likeness import unlike
from understudy.schedulers.slurm.resources import Resources
from understudy.schedulers.slurm.step import topology

LOOK = 20.0  # seconds between two polls whether the job is over


def address(orchestrators: str) -> str:
    """Return the address at which the other nodes reach this one."""
    places = [urlsplit(url) for url in orchestrators.split(",")]
    found = (by_which_it_reaches(place.hostname or "", place.port or 1) for place in places)
    return next(filter(None, found), "") or socket.gethostname()


def _watch(owner: str) -> None:
    while not owner_is_over(owner):
        time.sleep(LOOK)
    say(starting.OWNER_OVER(job=owner))
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    claimed = AgentConfig.of(os.environ.pop(CLAIM_VARIABLE))
    token = os.environ[TOKEN_VARIABLE]
    owner = os.environ[OWNER_VARIABLE]
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    need = os.environ.pop(NEED_VARIABLE, "")  # none if this node was requested by a running orchestrator of an older version
    if owner_is_over(owner):
        return 0
    if need and (why := unlike(Resources.of_json(need))):
        refuse(why)
        say(why)
        return 3
    try:
        run = RunDirectory.create(None, f"slurm-{owner}-claim{claimed.claim}-{node}")
    except (NoRun, OSError) as error:
        say(str(error))
        return 2
    where = {"node": node, "address": address(claimed.orchestrator), "labels": topology(os.environ)}
    config = claimed.with_(**where, run_dir=run.path, began=time.time(), shown_local_ranks=None)
    run.write_job({"job": config.job, "orchestrator": config.orchestrator, "certificate": config.certificate, "started": time.time()})
    run.write_token(token)
    threading.Thread(target=_watch, args=(owner,), daemon=True).start()
    signals = (signal.SIGTERM, signal.SIGINT)
    return Supervisor(run, config, token, None, 0, signals, say, several=True).run()


if __name__ == "__main__":
    sys.exit(main())
