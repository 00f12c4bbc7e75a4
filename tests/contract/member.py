"""One rank of the contract of a backend (`tests.contract.backend`).

    python -m tests.contract.member RANK ADDRESS BACKEND DEVICE NEWCOMER SHOWS

ADDRESS: a store, in which members and the test meet. NEWCOMER: 1 for who comes in the place of a lost rank. SHOWS: 1 if `is_broken` shows
a lost peer. Prints, as JSON, what it has found.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from tests.contract.backend import LOST, SIZE
from understudy.worker.transport.groups import Groups
from understudy.worker.transport.rendezvous import Rendezvous

rank, address, name, device = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
newcomer, shows = sys.argv[5] == "1", sys.argv[6] == "1"
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
groups = Groups()
found: dict[str, Any] = {}


def meet(generation: int) -> Rendezvous:
    return Rendezvous(address, generation, lambda: False)


words = meet(100)  # for messages between members and the test


def until(condition: Callable[[], bool]) -> None:
    """The test does not wait for that for ever."""
    while not condition():
        os.sched_yield()


def total() -> list[float]:
    numbers = torch.full((4,), rank + 1.0, device=device)
    dist.all_reduce(numbers)
    return [float(number) for number in numbers.cpu()]


class Blocked:
    """A thread that starts a sum to which not all members come, and waits for it. With NCCL the start may wait already: what the algorithm
    for this size needs is connected when it is first used."""

    def __init__(self) -> None:
        self.numbers = torch.full((1 << 20,), float(rank), device=device)
        self.error: BaseException | None = None
        self._work: Any = None
        self._thread = threading.Thread(target=self._sum)
        self._thread.start()
        until(lambda: groups.waits() != 0)
        found["waits"] = groups.waits()

    def _sum(self) -> None:
        try:
            self._work = dist.all_reduce(self.numbers, async_op=True)
            self._work.wait()
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            self.error = error

    def abort(self, helped: bool) -> None:
        """Comes back when the thread has been woken and the communicators are drained. `helped`: operations that were under way with a
        peer may have been forgotten, which a waker finds."""
        if helped:
            groups.wake()
        groups.abort()
        self._thread.join()
        found["failure"] = self.error is None or groups.is_failure(self.error)
        self._work = None
        let_go()


def let_go() -> None:
    groups.abort()
    groups.drain()
    groups.stop_waking()


def main() -> None:
    groups.install()
    groups.detached = newcomer
    dist.init_process_group(name, store=HashStore() if newcomer else meet(0).store, rank=rank, world_size=SIZE)
    group: Any = dist.group.WORLD
    found["place"] = [dist.get_rank(), dist.get_world_size()]
    found["first"] = total()  # of a newcomer: alone
    blocked = None
    if not newcomer:
        if rank == LOST:
            words.put(f"ready/{rank}", b"")
            words.get("never")
        blocked = Blocked()
        words.put(f"ready/{rank}", b"")
        words.get("lost")
        if shows:
            until(groups.is_broken)
        blocked.abort(helped=True)
        after = blocked.numbers.clone()
    meeting = meet(1)
    groups.adopt(groups.connect(rank, meeting), meeting)
    found["again"] = total()
    found["same group"] = dist.group.WORLD is group
    found["unbroken"] = not groups.is_broken()
    found["collectives"] = groups.collectives()
    if blocked is not None:
        found["untouched"] = torch.equal(after, blocked.numbers)
    words.put(f"again/{rank}", b"")
    for other in range(SIZE):
        words.get(f"again/{other}")
    if rank == 0:  # its peers are alive, and do not come
        Blocked().abort(helped=False)
        words.put("aborted", b"")
    words.get("aborted")
    if rank:
        if shows:
            until(groups.is_broken)
        words.put(f"noticed/{rank}", b"")
        let_go()
    for other in range(1, SIZE):
        words.get(f"noticed/{other}")
    found["end"] = groups.collectives()
    print(json.dumps(found), flush=True)


main()
os._exit(0)  # as after a loss: nothing waits for the threads of dead communicators
