"""Wakes threads that wait for an operation that Gloo has forgotten.

When a TCP connection ends, Gloo fails the operations that are still in its tables, but not one whose message is half sent, half
received, or could not be written: a thread that waits for that one waits until the group's timeout (`Pair::signalException` in
gloo/transport/tcp/pair.cc checks neither `tx_` nor `rx_` for unbound buffers; torch 2.13). Breaking the connections is then not enough
to free a rank.

Between an abort and the moment when the main thread has released the old communicators, every wait for Gloo in this process is one for
an operation that cannot complete, and once Gloo has closed its connections it is one that Gloo will not end. `Waker` finds such waits
and ends them by Gloo's own `abortWaitSend` and `abortWaitRecv`. No debugger is needed for that: the kernel reports on which word each
thread of this process sleeps (/proc/self/task/*/syscall), and a word inside an object of Gloo's class `UnboundBuffer` (the address of
its vtable is exported) is such a wait. An operation ended so seems to have succeeded, with any content; code that goes on must check
whether its generation is over, which was announced before; a vote checks in either case (`Groups.is_broken`).

None of that runs while no generation is being aborted. `count` is for the hang watch, and for the time that a worker spends by itself:
it finds the same waits, and leaves them alone.

Known limit: where the kernel or torch does not show these waits, the limit for quiescing ends a blocked rank.
`tests/integration/recovery/test_gloo_waits.py` fails when Gloo no longer needs this.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from understudy.common.page_view import UNKNOWN

INTERVAL = 0.025  # seconds from an abort to the first search, and between two; Gloo itself wakes its waiters within 0.015 s
PATIENCE = 2  # searches
_CLASS = "N4gloo9transport3tcp13UnboundBuffer"
_REACH = 256  # bytes: an object is smaller than this
# futex and restart_syscall, which a futex call becomes after a signal
_WAITS = {"x86_64": (b"202", b"219"), "aarch64": (b"98", b"128")}
_TASKS = "/proc/self/task"


class _Gloo:
    """The addresses that are needed of Gloo. Raises `AttributeError`, `OSError` or `ValueError` if this torch does not export them."""

    def __init__(self) -> None:
        path = next(iter((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")))
        library = ctypes.CDLL(str(path))
        table = ctypes.addressof(ctypes.c_char.in_dll(library, f"_ZTV{_CLASS}E"))
        self.first_word = table + 2 * ctypes.sizeof(ctypes.c_void_p)  # of every object of the class
        self.end_waits = [getattr(library, f"_Z{_CLASS}{name}Ev") for name in ("13abortWaitSend", "13abortWaitRecv")]
        for function in self.end_waits:
            function.argtypes, function.restype = [ctypes.c_void_p], None


@cache
def _gloo() -> _Gloo | None:
    if platform.machine() not in _WAITS or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    with suppress(AttributeError, OSError, ValueError, StopIteration):
        return _Gloo()
    return None


def _word_slept_on(thread: str) -> int | None:
    """Return the address that a thread of this process waits on, if it sleeps. Raises `OSError` if it has ended, or the kernel does not
    report it.
    """
    file = os.open(f"{_TASKS}/{thread}/syscall", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call = os.read(file, 256).split()
    finally:
        os.close(file)
    return int(call[1], 16) if call[0] in _WAITS[platform.machine()] else None


def _object_around(address: int, first_word: int, memory: int) -> int | None:
    """Return the object of the class that contains `address`."""
    word, wanted = address & ~7, first_word.to_bytes(8, "little")
    end = word + 8
    for start in (end - _REACH, word & -mmap.PAGESIZE):  # if the memory before its page is not readable, no object reaches from there
        try:
            words = os.pread(memory, end - start, start)
        except OSError:
            continue
        found = len(words)
        while (found := words.rfind(wanted, 0, found)) > 0 and found % 8:
            found += 7
        return start + found if found >= 0 else None
    return None


def count() -> int:
    """Return how many threads of this process wait for a Gloo operation, or `UNKNOWN`. Changes nothing."""
    gloo = _gloo()
    if gloo is None:
        return UNKNOWN
    waiting, readable = 0, False
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return UNKNOWN
    try:
        for thread in os.listdir(_TASKS):
            try:
                address = _word_slept_on(thread)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            readable = True
            waiting += address is not None and _object_around(address, gloo.first_word, memory) is not None
    except OSError:
        return UNKNOWN
    finally:
        os.close(memory)
    return waiting if readable else UNKNOWN  # this thread is among them, if the kernel reports any


def end_waits() -> int:
    """End every wait for a Gloo operation in this process; return their number. Call only while all of them are doomed."""
    gloo = _gloo()
    if gloo is None:
        return 0
    ended = 0
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        for thread in os.listdir(_TASKS):
            with suppress(OSError):
                address = _word_slept_on(thread)
                found = None if address is None else _object_around(address, gloo.first_word, memory)
                if found is None:
                    continue
                ended += 1
                for end in gloo.end_waits:
                    if _word_slept_on(thread) == address:  # else it was woken by the first one, and the object may be gone
                        end(found)
    finally:
        os.close(memory)
    return ended


class GlooWaker:
    """Searches for doomed waits on its own thread, from `start` until `stop`. `woken`: how many were ended so far.

    `closed`: whether Gloo has closed every connection. From then on it wakes no thread any more, so one that still sleeps is
    forgotten. After `PATIENCE` searches that is assumed: some connections Gloo never closes.
    """

    def __init__(self, closed: Callable[[], bool]) -> None:
        self._woken = 0
        self._closed = closed
        self._lock = threading.Lock()  # locked while waits are ended: after `stop`, none of a new generation is ended
        self._over = threading.Event()
        self._over.set()

    @property
    def woken(self) -> int:
        with self._lock:  # every thread that was woken by now is counted
            return self._woken

    def start(self) -> None:
        with self._lock:
            if not self._over.is_set():
                return
            self._over = threading.Event()
        threading.Thread(target=self._run, args=(self._over,), name="understudy-waker", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            self._over.set()

    def _run(self, over: threading.Event) -> None:
        looks = 0
        while not over.wait(INTERVAL):
            looks += 1
            with self._lock:
                if over.is_set():
                    return
                if looks >= PATIENCE or self._closed():
                    self._woken += end_waits()
