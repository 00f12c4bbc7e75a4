"""The template: a process that has imported torch once, and from which the node's workers are forked.

Importing torch takes a worker several seconds of processor time and some 200 MB, the same for every worker of a node. The template pays
once; a fork takes some ten milliseconds and shares these pages until a process writes to them. So jobs start earlier, and a waiting
spare costs little.

Only modules that every worker imports are imported here. What the script imports, and all that starts threads or touches a device,
comes after the fork: neither would survive it. A template whose imports have opened a device refuses to fork.

The garbage collector is off until a worker begins, as the documentation of `gc.freeze` recommends. Imports leave little garbage: 2 % of
half a million objects, which are frozen with the rest. Collecting again and again took a quarter of the processor time.

Theory. The worker must be the agent's child (which collects the exit status) and not the template's. So the template forks twice: the
process in the middle ends at once, and the kernel gives its child to the nearest child subreaper above, which is the agent. The agent
lets the worker go on when it has adopted it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import socket
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from understudy.links.fork import FDS, PLACEHOLDER, ForkRequest
from understudy.messages import worker_processes

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


@dataclass(frozen=True)
class Forked:
    """What a new worker gets."""

    request: ForkRequest
    link: int  # file descriptor
    outputs: tuple[int, int]  # descriptors: where its stdout and stderr can be read
    agent: int  # pid


def serve(connection: socket.socket) -> Forked:
    """Fork a worker for each request; return in the new worker only. Ends the process when the agent is gone."""
    agent = os.getppid()
    opened = devices_open()
    gc.freeze()  # otherwise a collection in any worker would write to, and so copy, every page
    while True:
        data, fds, _, _ = socket.recv_fds(connection, 1 << 16, FDS)
        if not data:
            os._exit(0)
        request = ForkRequest.decode(data)
        if opened:
            answer: dict[str, int | str] = {"refused": worker_processes.DEVICE_OPENED(device=opened)}
        else:
            try:
                pid = _fork_twice()
            except OSError as error:
                answer = {"failed": worker_processes.CANNOT_FORK(error=error)}
            else:
                if pid == 0:
                    gc.enable()
                    connection.close()
                    link, outputs, go = _become(request, fds)
                    os.read(go, 1)  # until the agent has adopted it, or is gone
                    os.close(go)
                    return Forked(request, link, outputs, agent)
                answer = {"pid": pid}
        for fd in fds:
            os.close(fd)
        connection.send(json.dumps(answer).encode())


def devices_open(prefixes: tuple[str, ...] = DEVICES) -> str:
    """Return the first device that this process has opened, or ""."""
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if (target := os.readlink(fd)).startswith(prefixes):
                return target
    return ""


def _fork_twice() -> int:
    """Return the pid of the grandchild, an orphan with its own session by then; 0 in it."""
    result, result_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's BLAS may have threads; it starts them again after a fork
        middle = os.fork()
        if middle == 0:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                os._exit(1)
            os.setsid()
            os.close(result)
            os.write(result_end, str(os.getpid()).encode())
            os.close(result_end)
            return 0
    os.close(result_end)
    with os.fdopen(result) as reading:
        text = reading.read()
    os.waitpid(middle, 0)
    if not text:
        raise OSError("the new process did not start")
    return int(text)


def _become(request: ForkRequest, fds: list[int]) -> tuple[int, tuple[int, int], int]:
    """Turn this fork into the worker that would otherwise have been started; return its link and its outputs, and the descriptor to wait
    for.
    """
    link, stdout, stderr, out, err, go = fds
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    _relabel(request.worker)
    os.environ.update(request.environment)
    _seed()
    return link, (out, err), go


def _seed() -> None:
    """Seed the generators as in a separate process: otherwise all ranks would draw the same numbers in a script that seeds nothing."""
    import torch

    random.seed()
    torch.default_generator.seed()  # those of devices are made when a device is first used
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _relabel(worker: str) -> None:
    """Write the worker's name over the placeholder in what `ps` and /proc/PID/environ show: the block in which the kernel put the
    arguments and the environment (fields 48 to 51 of /proc/PID/stat, proc_pid_stat(5)).
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[48])
    block = ctypes.string_at(start, end - start)
    placeholder = PLACEHOLDER.encode()
    name = worker.encode()[: len(placeholder)].ljust(len(placeholder), b"\0")
    at = block.find(placeholder)
    while at >= 0:
        ctypes.memmove(start + at, name, len(name))
        at = block.find(placeholder, at + len(placeholder))
