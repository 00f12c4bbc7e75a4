"""The lock in a page opens when the process that holds it ends, however it ends, and not before."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.integration.processes import send

from understudy.links.lifeline import Lifeline
from understudy.links.page import PageWriter

LIMIT = 60.0  # seconds; generous, because machines are slow and busy
HOLDER = """
import os, sys, threading
from pathlib import Path
from understudy.links.lifeline import Lifeline

held = threading.Event()
lifeline = Lifeline(Path(sys.argv[1]))

def hold():
    lifeline.hold()
    held.set()
    threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
print("held", flush=True)
sys.stdin.readline()
os._exit(3)
"""


@pytest.mark.parametrize("end", ["SIGKILL", "exit"])
def test_it_opens_at_the_holders_end(end: str, tmp_path: Path) -> None:
    page = tmp_path / "page"
    PageWriter(page)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(page)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        lifeline = Lifeline(page)
        found: list[bool] = []
        waiting = threading.Thread(target=lambda: found.append(lifeline.wait()), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and holder.poll() is None
        if end == "exit":
            holder.stdin.write("\n")
            holder.stdin.flush()
        else:
            send(holder.pid, signal.SIGKILL)
        waiting.join(LIMIT)
        assert found == [True]
    finally:
        holder.kill()
        holder.communicate()


def test_a_page_without_a_holder(tmp_path: Path) -> None:
    PageWriter(tmp_path / "page")
    assert Lifeline(tmp_path / "page").wait() is False
