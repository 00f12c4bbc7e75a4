"""Two processes; the second one is stopped in the middle of a message, and the first one breaks its connections.

    half_sent.py RANK FILE send|receive|allreduce|abandon

The first one prints how many waits had to be ended because Gloo had forgotten their operation, and what of its processor time its
other threads used in the end. `abandon`: it has dropped the operation itself by then, and Gloo never closes the connection.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore
from torch.distributed import AllreduceOptions

from understudy.worker.transport.backends.gloo import GlooCommunicator
from understudy.worker.transport.backends.gloo_waits import GlooWaker

SIZE = 256 << 20  # bytes; far more than the connection's buffers hold, and than passes till a process heeds its signal
work: Any
rank, file, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
store = FileStore(file, 2)
gloo: Any = GlooCommunicator(store, rank, 2, timedelta(hours=1))
data: Any = torch.full((SIZE,), rank, dtype=torch.uint8)


def stopped(process: int) -> bool:
    """Whether every thread of that process has stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


if rank == 1:
    store.set("pid", str(os.getpid()))
    if what == "send":
        work = gloo.recv([data], 0, 1)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what in ("receive", "abandon"):
        work = gloo.send([data], 0, 1)
    else:
        work = gloo.allreduce([data], AllreduceOptions())
        os.kill(os.getpid(), signal.SIGSTOP)
    work.wait()
    sys.exit("the peer did not stop this process in time")

other = int(store.get("pid"))
if what == "send":
    work = gloo.send([data], 1, 1)
elif what in ("receive", "abandon"):
    work = gloo.recv([data], 1, 1)
    while not data[0]:
        pass
    signal.pidfd_send_signal(os.pidfd_open(other), signal.SIGSTOP)
    while not stopped(other):  # a thread in a call of the kernel finishes that first, and may send on for as long
        pass
    assert not data[-1], "all of it has arrived"
else:
    work = gloo.allreduce([data], AllreduceOptions())
outcome: list[str] = []


def wait() -> None:
    try:
        work.wait()
        outcome.append("returned")
    except RuntimeError:
        outcome.append("raised")


waiting = threading.Thread(target=wait)
if what == "abandon":
    work = data = None
    outcome.append("dropped")
else:
    waiting.start()
    sleeps_on = Path(f"/proc/self/task/{waiting.native_id}/syscall")
    while not sleeps_on.read_text().startswith(("202 ", "98 ")):  # futex
        pass
waker = GlooWaker(gloo.closed)
waker.start()
gloo.abort()
if waiting.ident is not None:
    waiting.join()
gloo.drain()
waker.stop()
woken = waker.woken
if what == "abandon":
    assert not gloo.closed(), "Gloo closes all its connections now: Connections.discard needs no _wake_once"
else:
    before = data.clone()
start, mine = time.process_time(), time.thread_time()
while time.thread_time() - mine < 0.5:
    pass  # Gloo's thread has had its time
others = 1 - (time.thread_time() - mine) / (time.process_time() - start)
if what != "abandon":
    assert torch.equal(before, data), "something has written after the drain"
work = None
del waker, gloo  # as a script does that destroys its groups at its end
gc.collect()
print(outcome[0], woken, others, flush=True)
os._exit(0)
