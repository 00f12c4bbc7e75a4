"""Pass signals on to the script: a scheduler sends one some time before it ends a job, so that the script can save its state.

Slurm sends it to our command only, or, with `proctrack/linuxproc`, to every process of the job. Our own processes, and spares, ignore it
(`cli.start`); a handler of the script may run twice there.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from understudy.agent.worker import Worker
from understudy.messages import agents


def pass_on(number: signal.Signals, workers: Sequence[Worker]) -> str | None:
    """Send the signal to the workers whose script has a handler for it; it would end the others. Return a line for the user about those."""
    deaf = [worker for worker in workers if not _pass_on(number, worker)]
    if not deaf:
        return None
    ranks = ", ".join(str(worker.rank) for worker in sorted(deaf, key=lambda worker: worker.rank))
    return agents.SIGNAL_KEPT(signal=number.name, ranks=f"rank{'s' * (len(deaf) > 1)} {ranks}")


def _pass_on(number: signal.Signals, worker: Worker) -> bool:
    try:
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{worker.pid}/status").read_text(), re.MULTILINE)
    except OSError:  # it has ended
        return True
    if caught is None or not int(caught[1], 16) >> (number - 1) & 1:
        return False
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(worker.pidfd, number)
    return True
