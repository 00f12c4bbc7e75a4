"""`understudy run` with the stand-in worker in place of the real one.

`run_with_standin.py RANKS SPARES STOP RUN_DIR SCRIPT ARGS...`

Everything else is the real thing: supervisor, orchestrator, agent, processes, sockets. See `standin_worker` for why.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.agent_harness import STANDIN

from understudy.cli.launch import Flags, launch
from understudy.cli.run_directory import RunDirectory
from understudy.cli.start import execute

ranks, spares, stop, run_dir, *program = sys.argv[1:]
flags = Flags(program=tuple(program), nproc_per_node=ranks, spares=int(spares), shutdown_timeout=int(stop))
plan = launch(flags, "job")
sys.exit(execute(plan, RunDirectory.create(Path(run_dir), "job"), None, worker_command=STANDIN))
