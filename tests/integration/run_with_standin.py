"""`understudy run` with the stand-in worker in place of the real one: `run_with_standin.py FLAGS RUN_DIR SCRIPT ARGS`.

FLAGS are the fields of `launch.Flags` as JSON. Everything else is real: supervisor, orchestrator, agent,
processes, sockets. See `standin_worker` for why.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.integration.agent_harness import STANDIN

from understudy.cli.flags import Flags
from understudy.cli.launch import launch
from understudy.cli.run_directory import RunDirectory
from understudy.cli.start import execute

flags, run_dir, *program = sys.argv[1:]
plan = launch(Flags(program=list(program), **json.loads(flags)), "job")
token = os.environ.get("UNDERSTUDY_TOKEN")
sys.exit(execute(plan, RunDirectory.create(Path(run_dir), "job"), token, worker_command=STANDIN))
