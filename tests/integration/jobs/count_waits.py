"""Two processes; the first one counts its waits for Gloo while the second one keeps it waiting, in ever more ways.

    count_waits.py RANK FILE

The first one prints its numbers, one for each line of `main`.
"""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore, PrefixStore
from torch.distributed import AllreduceOptions, BroadcastOptions

from understudy.worker.transport.backends import gloo_waits
from understudy.worker.transport.backends.gloo import GlooCommunicator

rank, file = int(sys.argv[1]), sys.argv[2]
store = FileStore(file, 2)
groups: list[Any] = [GlooCommunicator(PrefixStore(name, store), rank, 2, timedelta(hours=1)) for name in "ab"]
ones: list[Any] = [torch.full((1000,), rank + 1.0) for _ in range(4)]


def counted(wanted: int) -> int:
    """`wanted`, as soon as it is the number of waits. The test does not wait for that for ever."""
    while gloo_waits.count() != wanted:
        pass
    return wanted


def broadcast_from(root: int) -> Any:
    options = BroadcastOptions()
    options.rootRank = root
    return groups[1].broadcast([ones[1]], options)


def main() -> None:
    print(counted(0))
    summed = groups[0].allreduce([ones[0]], AllreduceOptions())  # the queue thread of this group waits
    print(counted(1))
    again = groups[0].allreduce([ones[3]], AllreduceOptions())  # and this waits for the queue thread
    waiting = threading.Thread(target=again.wait)
    waiting.start()
    print(counted(1))
    given = broadcast_from(1)
    print(counted(2))
    message = groups[0].recv([ones[2]], 1, 1)
    print(counted(2))  # nothing waits for it yet
    reading = threading.Thread(target=message.wait)
    reading.start()
    print(counted(3))
    store.set("go", "now")
    for one in (summed, given):
        one.wait()
    for thread in (waiting, reading):
        thread.join()
    print(counted(0))
    sent = broadcast_from(0)  # who sends waits until it is taken
    print(counted(1))
    store.set("on", "now")
    sent.wait()
    print(counted(0))


def other() -> None:
    store.get("go")
    works = [groups[0].allreduce([ones[0]], AllreduceOptions()), groups[0].allreduce([ones[3]], AllreduceOptions()), broadcast_from(1)]
    for work in [*works, groups[0].send([ones[2]], 0, 1)]:
        work.wait()
    store.get("on")
    broadcast_from(0).wait()


if rank == 0:
    main()
else:
    other()
# The second broadcast gave back what the first one had brought.
assert [float(tensor[-1]) for tensor in ones] == [3.0, 2.0, 2.0, 3.0], "an operation has not done what it should"
sys.stdout.flush()
os._exit(0)
