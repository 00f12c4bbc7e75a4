"""How a worker's process ends when its part is over.

| the worker | what runs of the script |
|---|---|
| holds the rank, and its script has ended in any way | all that the interpreter runs: threads, exit handlers, finalizers, files closed |
| has handed its rank over | threads that are at work end, and what it has appended to files is written; no exit handlers, no finalizers |
| has never been the rank: a spare, a rehearsal, a newcomer whose set-up failed | nothing: its files and exit handlers are the rank's |
| its device or one of its data loader's processes has failed | nothing |

Theory. The interpreter itself cannot end here. It would destroy the process groups of generations that are over, whose threads never end,
and kill threads of ours inside of torch. So `finish_script` does the same in the same order: threads, exit handlers, finalizers, files. And
`leave` ends the process by the C library's `exit`, because libraries write their last words in its handlers (HDF5, profilers).
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import io
import os
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

HANDED_OVER = 60.0  # seconds for the threads of a worker that has handed its rank over
_OWN = __name__.partition(".")[0]
_KEPT: list[object] = []  # finalized here: nobody must finalize them a second time


def leave(exit_code: int) -> NoReturn:
    """End this process. The lock of the interpreter is kept, so that no thread runs Python code meanwhile."""
    _flush_output()
    ctypes.PyDLL(None).exit(exit_code)
    os._exit(exit_code)


def finish_script() -> None:
    """Run what the interpreter runs when a script has ended, in its order. Errors are printed, as it does."""
    _quietly(threading._shutdown)  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what is garbage runs its finalizers by itself
    for finalize in _finalizers():
        _quietly(finalize)
    _flush_output()


def finish_handed_over() -> None:
    """Let threads end that are at work, and write out what was appended to files: the rank's next worker does neither."""
    for file in _ordered(_open_files()):
        if _appends(file):
            _quietly(file.flush)
    threads = threading.Thread(target=threading._shutdown, name="understudy-exit", daemon=True)  # type: ignore[attr-defined]
    threads.start()
    threads.join(HANDED_OVER)
    _flush_output()


def _finalizers() -> Iterator[Callable[[], Any]]:
    """Of all objects that are left. What may still write to a file comes before the files."""
    found: list[Any] = [one for one in gc.get_objects() if _has_finalizer(one)]
    files = _ordered(_open_files())
    _KEPT.extend([found, files])
    for one in found:
        yield one.__del__
    for file in files:
        yield file.close


def _has_finalizer(found: object) -> bool:
    kind = type(found)
    if getattr(kind, "__del__", None) is None or issubclass(kind, io.IOBase | socket.socket):
        return False
    if isinstance(found, types.GeneratorType):
        return not found.gi_running and found.gi_frame is not None and not _is_own(found.gi_frame.f_globals.get("__name__"))
    return not issubclass(kind, types.CoroutineType | types.AsyncGeneratorType) and not _is_own(kind.__module__)


def _is_own(module: object) -> bool:
    return str(module).partition(".")[0] == _OWN


def _open_files() -> list[io.IOBase]:
    standard = [sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__]
    buffers = [getattr(stream, "buffer", None) for stream in standard]
    spared = {id(part) for part in (*standard, *buffers, *(getattr(buffer, "raw", None) for buffer in buffers))}
    return [found for found in gc.get_objects() if issubclass(type(found), io.IOBase) and id(found) not in spared and not _closed(found)]


def _closed(file: io.IOBase) -> bool:
    try:
        return file.closed
    except Exception:  # not initialized, or a class of somebody's own
        return True


def _ordered(files: list[io.IOBase]) -> list[io.IOBase]:
    """Text before what it is written to, compressed files before those, and what the kernel knows last."""

    def depth(file: io.IOBase) -> int:
        if isinstance(file, io.TextIOBase):
            return 0
        if isinstance(file, io.BufferedWriter | io.BufferedRandom | io.BufferedReader):
            return 2
        return 3 if isinstance(file, io.FileIO) else 1

    return sorted(files, key=depth)


def _appends(file: io.IOBase) -> bool:
    try:
        return file.writable() and bool(fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_APPEND)
    except Exception:  # no file of the kernel's, or already closed
        return False


def _quietly(run: Callable[[], Any]) -> None:
    """Call `run`; print its error, and go on."""
    try:
        run()
    except BaseException:
        print(f"Exception ignored in: {run!r}", file=sys.stderr)
        traceback.print_exc()


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            _quietly(stream.flush)
