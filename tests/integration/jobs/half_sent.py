"""Two processes; the second one is stopped in the middle of a message, and the first one breaks its connections.

    half_sent.py RANK FILE send|receive|allreduce|abandon

The first one prints how many waits had to be ended because Gloo had forgotten their operation, and how many connections had to be
taken away because it had forgotten them. `abandon`: it has dropped the operation itself by then.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path

import torch
from torch._C._distributed_c10d import FileStore
from torch.distributed import AllreduceOptions

from understudy.worker.communicators import GlooCommunicator
from understudy.worker.gloo_waits import Waker

SIZE = 128 << 20  # bytes; far more than the connection's buffers hold
rank, file, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
store = FileStore(file, 2)
gloo = GlooCommunicator(store, rank, 2, timedelta(hours=1))
data = torch.full((SIZE,), rank, dtype=torch.uint8)

if rank == 1:
    store.set("pid", str(os.getpid()))
    if what == "send":
        work = gloo.recv([data], 0, 1)  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what in ("receive", "abandon"):
        work = gloo.send([data], 0, 1)  # type: ignore[attr-defined]
    else:
        work = gloo.allreduce([data], AllreduceOptions())  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGSTOP)
    work.wait()
    sys.exit("the peer did not stop this process in time")

other = int(store.get("pid"))
if what == "send":
    work = gloo.send([data], 1, 1)  # type: ignore[attr-defined]
elif what in ("receive", "abandon"):
    work = gloo.recv([data], 1, 1)  # type: ignore[attr-defined]
    while not data[0]:
        pass
    os.kill(other, signal.SIGSTOP)
    assert not data[-1], "all of it has arrived"
else:
    work = gloo.allreduce([data], AllreduceOptions())  # type: ignore[attr-defined]
outcome: list[str] = []


def wait() -> None:
    try:
        work.wait()
        outcome.append("returned")
    except RuntimeError:
        outcome.append("raised")


waiting = threading.Thread(target=wait)
if what == "abandon":
    del work, data
    outcome.append("dropped")
else:
    waiting.start()
    sleeps_on = Path(f"/proc/self/task/{waiting.native_id}/syscall")
    while not sleeps_on.read_text().startswith(("202 ", "98 ")):  # futex
        pass
waker = Waker(gloo.closed, gloo.cut)
waker.start()
gloo.abort()
if waiting.ident is not None:
    waiting.join()
gloo.drain()
waker.stop()
woken, replaced = waker.woken, gloo.replaced
del waker, gloo  # as a script does that destroys its groups at its end
gc.collect()
print(outcome[0], woken, replaced, flush=True)
os._exit(0)
