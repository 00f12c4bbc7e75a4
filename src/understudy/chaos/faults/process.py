"""Faults inside a worker's process, run by its main thread. Each affects this process only."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from understudy.chaos.base import SECONDS, Fault, Hits, Outcome, Parameter, Values
from understudy.messages import faults

_AF_UNSPEC = struct.pack("H14x", 0)
_PIECE = 16 << 20  # bytes


def segfault(values: Values) -> None:
    """Read at address 8."""
    ctypes.string_at(8)


def abort(values: Values) -> None:
    """Call abort(3), as a failed assertion in C++ does."""
    ctypes.CDLL(None).abort()


def exit_code(values: Values) -> None:
    os._exit(int(values["code"]))


def exception(values: Values) -> None:
    raise RuntimeError(faults.EXCEPTION_IN_SCRIPT())


def exception_in_thread(values: Values) -> None:
    def fail() -> None:
        raise RuntimeError(faults.EXCEPTION_IN_THREAD())

    thread = threading.Thread(target=fail, name="chaos")
    thread.start()
    thread.join()


def hang(values: Values) -> None:
    """Block the main thread forever; the other threads go on, so the worker still beats."""
    threading.Event().wait()


def gil_held(values: Values) -> None:
    """Block in a call that never returns and keeps the interpreter's lock (as PyDLL does), so that no Python thread runs any more."""
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(1 << 20)


def fill_memory(mib: int) -> list[bytearray]:
    """Allocate until the address space has grown by `mib` MiB and malloc fails. The limit stays, and the machine is not harmed."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (mib << 20), hard))
    blocks = []
    size = _PIECE
    while size:
        try:
            blocks.append(bytearray(size))
        except MemoryError:
            size //= 2  # use the last gaps, too
    return blocks


def out_of_memory(values: Values) -> None:
    """Kill this process with SIGKILL. The kernel's own choice of a process requires a shortage for the whole machine."""
    blocks = fill_memory(int(values["mib"]))
    os.kill(os.getpid(), signal.SIGKILL)
    del blocks


_held: list[list[bytearray]] = []


def no_memory(values: Values) -> None:
    _held.append(fill_memory(int(values["mib"])))


def disk_full(values: Values) -> None:
    """Set RLIMIT_FSIZE to 0: writes that make a file longer fail with EFBIG (a full disk gives ENOSPC). Python ignores the signal that
    comes with it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    _later(values, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)))


def clock_jump(values: Values) -> None:
    """Change `time.time` and `time.time_ns` of this process; the kernel's clock, and code that reads it directly, are not affected."""
    right, right_ns, by = time.time, time.time_ns, float(values["by"]) * (-1 if values["direction"] == "back" else 1)

    def put(now: Callable[[], float], now_ns: Callable[[], int]) -> None:
        time.time, time.time_ns = now, now_ns

    put(lambda: right() + by, lambda: right_ns() + int(by * 1e9))
    _later(values, lambda: put(right, right_ns))


def socket_reset(values: Values) -> None:
    """Reset every TCP connection of this process at both ends, by a connect(2) to AF_UNSPEC."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as end:
                internet = end.family in (socket.AF_INET, socket.AF_INET6) and end.type == socket.SOCK_STREAM
                if internet and end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0:
                    libc.connect(end.fileno(), _AF_UNSPEC, len(_AF_UNSPEC))
        except OSError:
            continue  # closed meanwhile


def _later(values: Values, undo: Callable[[], None]) -> None:
    timer = threading.Timer(float(values[SECONDS]), undo)
    timer.daemon = True
    timer.start()


def _inside(name: str, expected: Outcome, text: str, function: Callable[[Values], None], *parameters: Parameter) -> Fault:
    return Fault(name, text, Hits.WORKER, expected, inside=function, parameters=parameters)


_LONG = Parameter(SECONDS, 2.0, "how long", "s")
_MORE = Parameter("mib", 256, "how much it may take beyond what it has", "MiB")

FAULTS = (
    _inside("segfault", Outcome.REPLACED, "The worker reads memory that it does not have.", segfault),
    _inside("abort", Outcome.REPLACED, "The worker calls abort, as a failed assertion in C++ does.", abort),
    _inside(
        "exit",
        Outcome.REPLACED,
        "The worker's process ends in the middle of the script with an exit code.",
        exit_code,
        Parameter("code", 3, "the exit code", choices=tuple(range(256))),
    ),
    _inside("exception", Outcome.ENDS, "The script raises an exception in its main thread, which no spare would cure.", exception),
    _inside("exception_in_thread", Outcome.UNDISTURBED, "A thread of the script ends with an exception.", exception_in_thread),
    _inside("hang", Outcome.REPLACED, "The main thread waits for ever; lost when the hang limit has passed.", hang),
    _inside("gil_held", Outcome.REPLACED, "A call keeps the interpreter's lock for good; lost when the hang limit has passed.", gil_held),
    _inside(
        "out_of_memory",
        Outcome.REPLACED,
        "The worker takes memory up to its own limit (RLIMIT_AS) and is killed, as the kernel would kill it.",
        out_of_memory,
        _MORE,
    ),
    _inside("no_memory", Outcome.ENDS, "Memory is refused to the worker from now on (RLIMIT_AS), so its script fails.", no_memory, _MORE),
    _inside("disk_full", Outcome.UNDISTURBED, "The worker's files cannot grow for some seconds (RLIMIT_FSIZE).", disk_full, _LONG),
    _inside(
        "clock_jump",
        Outcome.UNDISTURBED,
        "The worker's clock (time.time) jumps, and jumps back after some seconds; the machine's does not.",
        clock_jump,
        Parameter("by", 3600.0, "how far", "s"),
        Parameter("direction", "forth", "forth or back", choices=("forth", "back")),
        _LONG,
    ),
    _inside("socket_reset", Outcome.REJOINED, "Every TCP connection of the worker is reset.", socket_reset),
)
