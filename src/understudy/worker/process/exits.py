"""The end of a worker's process.

| the worker | what runs of the script |
|---|---|
| has the rank, and its script has ended in any way | all that the interpreter runs: threads, exit handlers, finalizers, files closed |
| has handed its rank over | threads that are at work end, and what it has appended to files is written; no exit handlers or finalizers |
| has never been the rank: a spare, a drill, a newcomer whose set-up failed | nothing: its files and exit handlers are the rank's |
| its device or one of its data loader's processes has failed | nothing |

Theory. The interpreter itself cannot end here. It would destroy the process groups of generations that are over, whose threads never
end, and kill threads of ours inside of torch. So `finish_script` does the same: threads, exit handlers, finalizers, files. And `leave`
ends the process by the C library's `exit`, because libraries write their last output in its handlers (HDF5, profilers).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import io
import os
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from understudy.worker.patches import put

HANDED_OVER = 60.0  # seconds for the threads of a worker that has handed its rank over
_OWN = __name__.partition(".")[0]
_HELD = 100_000  # objects to which threads refer
_KEPT: list[object] = []  # finalized here, which must not happen a second time


def leave(exit_code: int) -> NoReturn:
    """End this process. The lock of the interpreter is kept, so that no thread runs Python code meanwhile."""
    _flush_output()
    ctypes.PyDLL(None).exit(exit_code)
    os._exit(exit_code)


def finish_script(frozen: int) -> None:
    """Run what the interpreter runs when a script has ended, in its order. It prints errors. `frozen`: how many objects were frozen
    (`gc.freeze`) before the script began.
    """
    _quietly(threading._shutdown)  # type: ignore[attr-defined]
    _quietly(atexit._run_exitfuncs)
    put(sys, "is_finalizing", lambda: True, "libraries ask before they free what others may still use")
    if gc.get_freeze_count() > frozen:
        gc.unfreeze()  # the script has frozen objects, which would not be found
    gc.collect()  # garbage runs its finalizers by itself
    _quietly(_finalize)
    _flush_output()


def finish_handed_over() -> None:
    """Let threads end that are at work, and write out what they have appended to files. The rank's next worker has no part in either."""
    threads = threading.Thread(target=_join_threads, name="understudy-exit", daemon=True)
    threads.start()
    threads.join(HANDED_OVER)
    for file in _ordered(_open_files()):
        if _appends(file):
            _quietly(file.close)  # of a compressed file this writes the end
    _flush_output()


def _join_threads() -> None:
    """Join threads like `threading._shutdown` on the main thread, but from another one: there it would wait for the main thread as well."""
    for shut_down in reversed(threading._threading_atexits):  # type: ignore[attr-defined]  # executors end, once they have done their work
        _quietly(shut_down)
    spared = (threading.main_thread(), threading.current_thread())
    while at_work := [one for one in threading.enumerate() if one.ident and not one.daemon and one not in spared]:
        at_work[0].join()


def flush_appended() -> None:
    """Write out what the script has appended to files: the rank's next worker appends after it."""
    for file in _ordered(_open_files()):
        if _appends(file):
            _quietly(file.flush)
    _flush_output()


def _finalize() -> None:
    """Run the finalizers of all objects that are left, then close files. Those that may still write to something run first."""
    used = _used_by_threads()
    found = [one for one in gc.get_objects() if _has_finalizer(one) and id(one) not in used]
    files = [file for file in _ordered(_open_files()) if id(file) not in used and _writes(file)]
    _KEPT.extend([found, files])
    for one in _owners_first(found):
        _quietly(functools.partial(_delete, one))
    for file in files:
        _quietly(file.close)


def _delete(one: Any) -> None:
    type(one).__del__(one)


def _owners_first(found: list[Any]) -> list[Any]:
    """Sort an object before those that it refers to, by itself or by its attributes: these are still needed."""
    by_id = {id(one): one for one in found}
    order: list[Any] = []
    seen: set[int] = set()
    for first in found:
        stack = [(first, False)]
        while stack:
            one, done = stack.pop()
            if done:
                order.append(one)
            elif id(one) not in seen:
                seen.add(id(one))
                stack.append((one, True))
                referents = gc.get_referents(one, getattr(one, "__dict__", None))
                stack += [(by_id[id(other)], False) for other in referents if id(other) in by_id]
    return order[::-1]


def _used_by_threads() -> set[int]:
    """Return, by id, the objects in the frames of other threads, which the interpreter does not finalize either."""
    others = {one.ident for one in threading.enumerate() if one is not threading.main_thread() and not one.name.startswith(_OWN)}
    frames: list[types.FrameType | None] = [frame for thread, frame in sys._current_frames().items() if thread in others]
    pending: list[Any] = []
    for frame in frames:
        while frame is not None:
            pending += list(frame.f_locals.values())
            frame = frame.f_back
    seen: set[int] = set()
    while pending and len(seen) < _HELD:
        one = pending.pop()
        if id(one) in seen or isinstance(one, types.ModuleType | types.FunctionType | type | types.FrameType):
            continue
        seen.add(id(one))
        pending += gc.get_referents(one)
    return seen


def _has_finalizer(found: object) -> bool:
    kind = type(found)
    if getattr(kind, "__del__", None) is None or issubclass(kind, io.IOBase | socket.socket):
        return False
    if isinstance(found, types.GeneratorType):
        frame = None if found.gi_running else found.gi_frame
        return frame is not None and not _is_own(frame.f_globals.get("__name__")) and not _is_of_with(found)
    return not issubclass(kind, types.CoroutineType | types.AsyncGeneratorType) and not _is_own(kind.__module__)


def _is_of_with(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    """Return whether a generator is in a `with` statement, which another thread may be in."""
    return any(isinstance(one, contextlib._GeneratorContextManager) for one in gc.get_referrers(generator))


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
    except Exception:  # not initialized, or a user-defined class
        return True


def _ordered(files: list[io.IOBase]) -> list[io.IOBase]:
    """Return the files sorted: text before the file that it is written to, compressed files before those, and files of the kernel last."""

    def depth(file: io.IOBase) -> int:
        if isinstance(file, io.TextIOBase):
            return 0
        if isinstance(file, io.BufferedWriter | io.BufferedRandom | io.BufferedReader):
            return 2
        return 3 if isinstance(file, io.RawIOBase) else 1

    return sorted(files, key=depth)


def _writes(file: io.IOBase) -> bool:
    """Return whether there is anything to lose. To close a reader may take for ever: another thread may read from it."""
    try:
        return file.writable()
    except Exception:  # a user-defined class
        return True


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
