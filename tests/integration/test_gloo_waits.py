"""Who waits for a message that is half sent or half received is freed when the connections are broken, though Gloo forgets it.

And Gloo can be destroyed afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.processes import LIMIT, marked

SCRIPT = Path(__file__).parent / "jobs" / "half_sent.py"


@pytest.mark.parametrize("what", ["send", "receive", "allreduce", "abandon"])
def test_waits_for_forgotten_operations_are_ended(what: str, tmp_path: Path) -> None:
    with marked() as mark:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), str(rank), str(tmp_path / "store"), what],
                env=mark.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        output, _ = ranks[0].communicate(timeout=LIMIT)
    assert ranks[0].returncode == 0, output
    outcome, woken, others = output.split()[-3:]
    assert float(others) < 0.2, "Gloo's thread spins on a connection that it has forgotten"
    if what == "abandon":
        return
    assert outcome in ("raised", "returned")
    if what != "allreduce":  # where other messages of the same operation may have been told
        assert int(woken) > 0, "Gloo forgets nothing any more: understudy.worker.gloo_waits can be deleted"
