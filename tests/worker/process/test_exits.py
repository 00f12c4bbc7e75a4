"""A worker that has handed its rank over waits for threads that are at work, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.processes import LIMIT

LEAVER = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor

from understudy.worker.process import exits

exits.HANDED_OVER = threading.TIMEOUT_MAX
file, begun = open(sys.argv[1], "a"), threading.Event()


def write(line):
    begun.wait()
    file.write(line)


threading.Thread(target=write, args=("thread\\n",)).start()
ThreadPoolExecutor(1).submit(write, "executor\\n")
threading.Thread(target=threading.Event().wait, daemon=True).start()
threading._register_atexit(begun.set)
exits.finish_handed_over()
os._exit(0)
"""


def test_threads_at_work_end_and_the_main_thread_is_not_waited_for(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVER, str(tmp_path / "log")], check=True, timeout=LIMIT)
    assert sorted((tmp_path / "log").read_text().split()) == ["executor", "thread"]
