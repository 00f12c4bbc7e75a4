"""The position of the script, or of its failure: the lines of a stack that are the user's own."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from understudy.common.page_view import Process
from understudy.worker.script_files import is_of_script

_PACKAGE = str(Path(__file__).parents[2])
LINES = 3  # of the script: the innermost first
_DEBUGGERS = frozenset({"bdb", "pdb", "pudb", "pydevd", "pydevd_frame", "_pydevd_bundle", "debugpy", "ipdb", "remote_pdb"})


def main_thread() -> tuple[str, Process] | None:
    """Return the position of the main thread, in words, and whether it is in a debugger; None if it has ended."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return None if frame is None else (_lines(frame), _debugged(frame))


def _lines(innermost: FrameType) -> str:
    found: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and len(found) < LINES:
        code = frame.f_code
        if is_of_script(code.co_filename):
            found.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return ", called from ".join(found)


def _debugged(innermost: FrameType) -> Process:
    frame: FrameType | None = innermost
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _DEBUGGERS and frame.f_code.co_name not in ("runcall", "run", "runeval", "dispatch_line"):
            return Process.DEBUGGED
        frame = frame.f_back
    return Process(0)


def traceback_of(error: BaseException) -> str:
    """Return the user's part of the traceback: without our frames, and those that started the script."""
    found = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = found
    seen: set[int] = set()
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        users = [frame for frame in part.stack if not _is_ours(frame.filename)]
        part.stack = traceback.StackSummary.from_list(users)
        part = part.__cause__ or part.__context__
    return "".join(found.format())


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE + os.sep) or filename == "<frozen runpy>"
