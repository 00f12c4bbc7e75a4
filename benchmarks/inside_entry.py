"""Run `train_gpt.py` as a rank of `inside.py`, and record the processor time of its main thread inside and outside its step function.

    inside_entry.py FOLDER SYSTEM MILLISECONDS train_gpt.py's arguments

The vote counts as outside, and so does what a rank records of its collectives (`worker.verification.issued`), which is also shown
separately. As SYSTEM `floor`, in a job of torchrun, what a redo and a vote need at least is done in its plainest form, and timed where it
happens. Before the function: random streams are read, in the cheapest way known, and registered values and an optimizer's settings, by
`state_dict`. Before the optimizer's step: the same again, because these may have changed; the bytes go to the next rank, those of the
previous one arrive, and then every rank sends a few numbers to every other one and receives theirs, over Unix sockets. No failure is
noticed, nothing is compared. After the step the same numbers go twice by Gloo, as two sums; its threads count.

Before its optimizer's step every system waits for MILLISECONDS, as the host does for an accelerator that computes.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import runpy
import secrets
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from understudy.worker.api.job import Job
from understudy.worker.collectives.interception import Collective
from understudy.worker.state.registry import State
from understudy.worker.step.transactions import Transactions
from understudy.worker.verification.issued import IssuedCollectives

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = 32  # in a sum: as many flags as a vote has


class Clock:
    """Nanoseconds of the main thread, for each step: inside the function, and from one step's start to the next one's."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.cycles: list[int] = []
        self.least: list[int] = []  # the least that a redo and a vote need
        self.gloo: list[int] = []  # two sums by Gloo, all threads
        self.noting: list[int] = []  # of recording the function's collectives
        self._noted = 0
        self._began = 0
        self._vote = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            now = time.thread_time_ns()
            if self._began:
                self.cycles.append(now - self._began)
            self._began, self._vote, self._noted = now, 0, 0
            try:
                return function(*args, **kwargs)
            finally:
                self.inside.append(time.thread_time_ns() - now - self._vote - self._noted)
                self.noting.append(self._noted)

        return step

    def voting(self, vote: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return vote(*args)
            finally:
                self._vote += time.thread_time_ns() - began

        return timed

    def noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(issued: IssuedCollectives, collective: Collective, operate: Callable[[], Any]) -> Any:
            spent = [0]

            def operated() -> Any:
                began = time.thread_time_ns()
                try:
                    return operate()
                finally:
                    spent[0] += time.thread_time_ns() - began

            began = time.thread_time_ns()
            try:
                return call(issued, collective, operated)
            finally:
                self._noted += time.thread_time_ns() - began - spent[0]

        return timed

    def bare(self, function: Callable[..., Any], state: State) -> Callable[..., Any]:
        mesh, numbers, took = _Mesh(), bytes(8 * NUMBERS), [0]

        def read() -> bytes:
            streams = state.randomness.capture()
            settings = [{k: v for k, v in group.items() if k != "params"} for o in state.optimizers.values() for group in o.param_groups]
            return pickle.dumps((streams, settings, [thing.state_dict() for thing in state.values.values()]))

        def vote(*_: Any) -> None:
            began = time.thread_time_ns()
            mesh.around(read())
            mesh.everyone(numbers)
            took[0] += time.thread_time_ns() - began

        register_optimizer_step_pre_hook(vote)

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time_ns()
            kept = read()
            took[0] = time.thread_time_ns() - began
            result = function(*args, **kwargs)
            self.least.append(took[0])
            del kept
            began = time.process_time_ns()
            for _ in range(2):
                dist.all_reduce(torch.zeros(NUMBERS, dtype=torch.int64))
            self.gloo.append(time.process_time_ns() - began)
            return result

        return step


class _Mesh:
    """Connections with every other rank."""

    def __init__(self) -> None:
        rank, size, store = dist.get_rank(), dist.get_world_size(), dist.distributed_c10d._get_default_store()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0inside-{secrets.token_hex(8)}")
            listener.listen(size)
            store.set(f"inside/{rank}", listener.getsockname())
            self._peers: dict[int, socket.socket] = {}
            for lower in range(rank):
                self._peers[lower] = socket.socket(socket.AF_UNIX)
                self._peers[lower].connect(store.get(f"inside/{lower}"))
                self._peers[lower].sendall(bytes([rank]))
            for _ in range(rank + 1, size):
                connection, _ = listener.accept()
                self._peers[connection.recv(1)[0]] = connection
        self._next, self._before = self._peers[(rank + 1) % size], self._peers[(rank - 1) % size]

    def around(self, data: bytes) -> None:
        """Send to the next rank, while the previous one sends as much, or less or more."""
        self._next.sendall(len(data).to_bytes(8, "little") + data)
        self._before.recv(int.from_bytes(self._before.recv(8, socket.MSG_WAITALL), "little"), socket.MSG_WAITALL)

    def everyone(self, data: bytes) -> None:
        for peer in self._peers.values():
            peer.sendall(data)
        for peer in self._peers.values():
            peer.recv(len(data), socket.MSG_WAITALL)


def main() -> None:
    folder, system, milliseconds, *arguments = sys.argv[1:]
    floor, seconds = system == "floor", int(milliseconds) / 1000
    if seconds:
        register_optimizer_step_pre_hook(lambda *_: time.sleep(seconds))  # before the vote's
    sys.argv = [str(ROOT / "examples" / "train_gpt.py"), *arguments]
    sys.path.insert(0, str(ROOT / "examples"))
    clock, transaction = Clock(), Job._transaction

    def watched(self: Job, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        if kind == "step":
            function = clock.timed(clock.bare(function, self._plain_state) if floor else function)
        return transaction(self, function, kind)

    rank, joined = [], Job.__init__

    def noted(self: Job, *args: Any) -> None:
        joined(self, *args)
        self.ignore("inside", "cycles", "least", "gloo", "noting", "_noted", "_began", "_vote")  # the clock's own: no rank's state
        rank.append(self.rank)

    for kind, name, method in (
        (Job, "__init__", noted),
        (Job, "_transaction", watched),
        (Transactions, "before_optimizer_step", clock.voting(Transactions.before_optimizer_step)),
        (IssuedCollectives, "call", clock.noted(IssuedCollectives.call)),
    ):
        setattr(kind, name, method)
    runpy.run_path(sys.argv[0], run_name="__main__")
    found = {"inside": clock.inside, "cycles": clock.cycles, "noting": clock.noting, "least": clock.least, "gloo": clock.gloo}
    Path(folder, f"rank{rank[0]}.json").write_text(json.dumps(found))
    if floor:  # Gloo's threads may still be at work: without this, one rank in a few ended with SIGABRT
        os._exit(0)


if __name__ == "__main__":
    main()
