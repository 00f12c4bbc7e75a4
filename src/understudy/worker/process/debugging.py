"""pdb in a rank: the others wait for it (`where` notifies the hang watch), and leaving it does not end the job."""

from __future__ import annotations

import pdb
from typing import Any

from understudy.messages import worker_processes
from understudy.worker.patches import put


def quit_goes_on() -> None:
    """Make `quit`, and the end of its input, leave the debugger and let the script go on: it raises an error in the script otherwise."""
    names = [name for name in ("do_quit", "do_q", "do_exit", "do_EOF") if hasattr(pdb.Pdb, name)]
    for name in names:
        put(pdb.Pdb, name, _go_on, "a person who leaves the debugger does not mean to end the job")


def _go_on(debugger: Any, argument: str) -> Any:
    debugger.clear_all_breaks()
    debugger.message(f"\nunderstudy: {worker_processes.DEBUGGER_LEFT()}")
    return debugger.do_continue(argument)
