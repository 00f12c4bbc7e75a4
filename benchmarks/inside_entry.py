"""Runs `train_gpt.py` as a rank of `inside.py`, and notes the processor time of its main thread inside and outside its step function.

    inside_entry.py FOLDER [--floor] train_gpt.py's arguments

The vote counts as outside. With --floor, in a job of torchrun, what the least vote would need is done after each step, and timed: random
streams are read once by their own methods, and every rank sends a few numbers to every other one and hears theirs, twice; first over plain
sockets, then as two sums by Gloo, whose threads count.
"""

from __future__ import annotations

import functools
import json
import random
import runpy
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist

from understudy.worker.job import Job
from understudy.worker.runtime import Runtime

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = 32  # in a sum: as many flags as a vote has


class Clock:
    """Nanoseconds of the main thread, for each step: inside the function, and from one step's begin to the next one's."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.cycles: list[int] = []
        self.sockets: list[int] = []  # the streams, and two rounds of messages over sockets
        self.gloo: list[int] = []  # the streams, and two sums by Gloo, all threads
        self._began = 0
        self._vote = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            now = time.thread_time_ns()
            if self._began:
                self.cycles.append(now - self._began)
            self._began, self._vote = now, 0
            try:
                return function(*args, **kwargs)
            finally:
                self.inside.append(time.thread_time_ns() - now - self._vote)

        return step

    def voting(self, vote: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any) -> None:
            began = time.thread_time_ns()
            try:
                vote(*args)
            finally:
                self._vote += time.thread_time_ns() - began

        return timed

    def bare(self, function: Callable[..., Any]) -> Callable[..., Any]:
        mesh, data = _mesh(), bytes(8 * NUMBERS)

        def sockets() -> None:
            for peer in mesh:
                peer.sendall(data)
            for peer in mesh:
                peer.recv(len(data), socket.MSG_WAITALL)

        def gloo() -> None:
            dist.all_reduce(torch.zeros(NUMBERS, dtype=torch.int64))

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            began = time.process_time_ns()
            torch.get_rng_state(), random.getstate(), numpy.random.get_state()
            read = time.process_time_ns() - began
            for way, times in ((sockets, self.sockets), (gloo, self.gloo)):
                began = time.process_time_ns()
                way(), way()
                times.append(read + time.process_time_ns() - began)
            return result

        return step


def _mesh() -> list[socket.socket]:
    """A connection with every other rank."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store.set(f"inside/{rank}", str(listener.getsockname()[1]))
        made = [socket.create_connection(("127.0.0.1", int(store.get(f"inside/{lower}")))) for lower in range(rank)]
        made += [listener.accept()[0] for _ in range(rank + 1, dist.get_world_size())]
    for connection in made:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def main() -> None:
    folder, *arguments = sys.argv[1:]
    floor = "--floor" in arguments
    sys.argv = [str(ROOT / "examples" / "train_gpt.py"), *(a for a in arguments if a != "--floor")]
    sys.path.insert(0, str(ROOT / "examples"))
    clock, transaction = Clock(), Job._transaction

    def watched(self: Job, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        return transaction(self, clock.timed(clock.bare(function) if floor else function) if kind == "step" else function, kind)

    rank, joined = [], Job.__init__

    def noted(self: Job, *args: Any) -> None:
        joined(self, *args)
        rank.append(self.rank)

    for kind, name, method in (
        (Job, "__init__", noted),
        (Job, "_transaction", watched),
        (Runtime, "_before_optimizer_step", clock.voting(Runtime._before_optimizer_step)),
    ):
        setattr(kind, name, method)
    runpy.run_path(sys.argv[0], run_name="__main__")
    found = {"inside": clock.inside, "cycles": clock.cycles, "sockets": clock.sockets, "gloo": clock.gloo}
    Path(folder, f"rank{rank[0]}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
