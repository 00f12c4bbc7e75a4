"""Who waits for a message that is half sent or half received is freed when the connections are broken, though Gloo forgets it.

And Gloo can be destroyed afterwards. Waits are counted without changing anything.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.processes import LIMIT, marked
from tests.integration.training import JOBS

from understudy.common.page_view import UNKNOWN
from understudy.worker.transport.backends import gloo_waits

SCRIPT = JOBS / "half_sent.py"
COUNT = SCRIPT.with_name("count_waits.py")


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
    if what != "allreduce":  # where other messages of the same operation may have been counted
        assert int(woken) > 0, "Gloo forgets nothing any more: understudy.worker.transport.backends.gloo_waits can be deleted"


def test_waits_are_counted(tmp_path: Path) -> None:
    with marked() as mark:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(COUNT), str(rank), str(tmp_path / "store")],
                env=mark.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        outputs = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert outputs[0].split() == ["0", "1", "1", "2", "2", "3", "0", "1", "0"]


def test_waits_are_unknown_where_the_kernel_hides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gloo_waits.count() == 0
    (tmp_path / "7").mkdir()  # a thread without a file that shows where it sleeps, as some sandboxes have it
    monkeypatch.setattr(gloo_waits, "_TASKS", str(tmp_path))
    assert gloo_waits.count() == UNKNOWN
    (tmp_path / "7" / "syscall").mkdir()  # cannot be read
    assert gloo_waits.count() == UNKNOWN


def test_waits_are_unknown_on_another_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr(gloo_waits, "_gloo", gloo_waits._gloo.__wrapped__)  # without what it remembers
    assert gloo_waits.count() == UNKNOWN
