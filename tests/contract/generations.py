"""One rank of a group that is joined again and again (`test_generations`).

    python -m tests.contract.generations RANK SIZE ADDRESS COUNT [LEFT_BEHIND]

ADDRESS: a store, in which the members meet. LEFT_BEHIND: in every so many generations one member alone begins to connect, and the others do
not come; all connect in the next one. Prints, as JSON, in how many generations every sum was right, what was open in the third one and
in the last one, and the error that ended it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from understudy.worker.errors import UnderstudyError
from understudy.worker.transport.groups import Groups
from understudy.worker.transport.rendezvous import Rendezvous

rank, size, address, count = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
left_behind = int(sys.argv[5]) if len(sys.argv) > 5 else 0
groups = Groups()


class Meetings(Rendezvous):
    """One client for many generations: connecting takes a second now and then, where names are looked up by a slow server."""

    def enter(self, generation: int) -> Rendezvous:
        self.generation = generation
        self.store = PrefixStore(f"g{generation}", self._client)
        return self


def what_is_open() -> dict[str, int]:
    kinds = Counter[str]()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            kinds[os.readlink(entry).split(":")[0].split("/")[-1]] += 1
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            kinds[f"thread {(thread / 'comm').read_text().strip()}"] += 1
    return dict(kinds)


def let_go() -> None:
    groups.abort()
    groups.drain()
    groups.stop_waking()


def together(words: Rendezvous, what: str) -> None:
    """All are through with it."""
    words.put(f"{what}/{rank}", b"")
    for other in range(size):
        words.get(f"{what}/{other}")


def begin_alone(meeting: Rendezvous, words: Rendezvous) -> None:
    """Connects where no other rank does, until the generation is over."""

    def connect() -> None:
        with suppress(RuntimeError):
            groups.connect(rank, meeting)

    thread = threading.Thread(target=connect)
    thread.start()
    words.get(f"go on/{meeting.generation}")
    meeting.close()
    thread.join()


def main() -> None:
    groups.install()
    words = Rendezvous(address, 1_000_000, lambda: False)
    meetings = Meetings(address, 0, lambda: False)
    dist.init_process_group("gloo", store=meetings.store, rank=rank, world_size=size)
    group = dist.group.WORLD
    found: dict[str, object] = {"right": 0, "error": ""}
    for generation in range(1, count + 1):
        together(words, str(generation))
        let_go()
        if left_behind and generation % left_behind == 0:
            if rank == generation // left_behind % size:
                begin_alone(Rendezvous(address, generation, lambda: False), words)
            else:
                words.put(f"go on/{generation}", b"")
            continue
        meeting = meetings.enter(generation)
        try:
            groups.adopt(groups.connect(rank, meeting), meeting)
        except UnderstudyError as error:
            found["error"] = str(error)
            break
        numbers = torch.full((4,), float(generation + rank))
        dist.all_reduce(numbers)
        assert dist.group.WORLD is group and (dist.get_rank(), dist.get_world_size()) == (rank, size)
        assert numbers.tolist() == [float(size * generation + sum(range(size)))] * 4, (generation, numbers)
        assert groups.collectives() == 1, groups.collectives()
        found["right"] = generation
        if generation in (3, count):
            found["third" if generation == 3 else "last"] = what_is_open()
    together(words, "end")
    print(json.dumps(found), flush=True)


main()
os._exit(0)  # as after a loss: nothing waits for the threads of dead communicators
