"""Watches which files a newcomer's set-up has read, and which its script is about to write from scratch on its way.

`open`, `os.open`, `os.rename` and `os.mkdir` are wrapped, on a newcomer only, from the begin of its script until it has arrived; then
they are Python's own again. An audit hook would also see opens that a module has bound to its own name, but it cannot be removed,
and every `id()` in the training that follows would pass it: one that does nothing makes that 900 ns instead of 35.

*Read* (`otherwise`). A newcomer runs the set-up long after the first workers did, and may find a snapshot that the job itself has
written meanwhile. Files that were read and are newer than the set-up of the first workers are named if this newcomer is refused. A
checkpoint that it is about to save after that, still in its set-up as far as it knows, is refused at once: with the snapshot of a
training that is at its end, a script passes no loop and no transaction, and saves its final model over the right one.

*Written from scratch* (`judge`). Opening with "w" or "x", or with `os.O_TRUNC`, and a rename over an existing file. Left alone are:
files that are opened by anything but the script's own code (the search looks through libraries that write for their caller, as pathlib
or numpy), files that are not plain, files that `tempfile` has made in this process, and the run directory, in which nothing counts as
read either. A file that is appended to is right.

Known limits: other threads than the main one, code that is installed as a package, opens in C or Rust (HDF5), and `open` under another
name that a module has bound before the script began. Times of files come from the clock of the machine that writes them.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import site
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from understudy.common.names import RUN_DIR_VARIABLE
from understudy.messages import set_up
from understudy.worker import patches
from understudy.worker.errors import UnderstudyError

# They write for their caller, where it asks.
_THROUGH = frozenset(
    (
        *("pathlib", "shutil", "codecs", "gzip", "bz2", "lzma", "zipfile", "tarfile"),
        *("numpy", "pandas", "PIL", "matplotlib", "yaml", "safetensors"),
    )
)
_THROUGH_OF_TORCH = ("torch.serialization", "torch.distributed.checkpoint")
_OURS = (__name__, "understudy.worker.guards.state_reads", patches.__name__)  # these wrap functions
_INSTALLED = (
    "<frozen ",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(f"{folder}/" for folder in (*site.getsitepackages(), site.getusersitepackages())),
)
_PRIVATE = 0o700  # `tempfile` makes its directories with this mode
_SHOWN = 3  # files that are named at most


class FileAccessGuard:
    """Watches from `install` to `remove`."""

    def __init__(self) -> None:
        self.over = 0  # when the set-up of the first workers was, in ns since the epoch; 0: unknown
        self._read: dict[str, int] = {}  # by the set-up, with the time at which it was changed last
        self._written: set[str] = set()  # by this process
        self._own: set[str] = set()  # made by `tempfile`
        self._wrote: Callable[[str], None] | None = None
        self._patches: list[patches.Patch] = []
        self._pid, self._thread = os.getpid(), threading.get_ident()

    def install(self) -> None:
        self._wrap(builtins, "open", self._open)
        self._wrap(io, "open", self._open)
        self._wrap(os, "open", self._os_open)
        self._wrap(os, "mkdir", self._mkdir)
        self._wrap(os, "rename", self._rename)
        self._wrap(os, "replace", self._rename)

    def remove(self) -> None:
        while self._patches:
            self._patches.pop().remove()

    def judge(self, wrote: Callable[[str], None]) -> None:
        """Begin to judge after the set-up: from now on `wrote` is called with each file that the script is about to write from scratch, as
        "FILE at FILE:LINE".
        """
        self._wrote = wrote

    def otherwise(self) -> str:
        """Return why this newcomer may have set up something else than the first workers, as far as files show; or ""."""
        later = [path for path, changed in self._read.items() if changed > self.over and path not in self._written] if self.over else []
        if not later:
            return ""
        more = f" and {len(later) - _SHOWN} more" if len(later) > _SHOWN else ""
        return set_up.FILES_WRITTEN_SINCE(files=", ".join(later[:_SHOWN]), more=more)

    def explained(self, text: str) -> str:
        """Return `text` with that reason, if it does not contain it."""
        why = self.otherwise()
        return f"{text}. {why}" if why and why not in text else text

    def writes(self, file: Any) -> None:
        """Check that the script may save a checkpoint as `file`, by whatever means. Raises `UnderstudyError` if its set-up is not that of
        the first workers.
        """
        path = _path_of(file)
        if path is None or self._spared(path):
            return
        if self._judged():
            self._tell(path, where())
        elif self._wrote is None and (why := self.otherwise()):
            place = where()
            raise UnderstudyError(set_up.NOT_SAVED(file=f"{path} at {place}" if place else path, reason=why))

    # -- wrapped functions -------------------------------------------------------------------------------------------------

    def _wrap(self, owner: Any, name: str, look: Callable[..., Callable[[], None] | None]) -> None:
        def looked_at(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            then = look(*args, **kwargs) if os.getpid() == self._pid else None
            result = function(*args, **kwargs)
            if then is not None:
                then()
            return result

        self._patches.append(patches.wrap(owner, name, looked_at, "what a newcomer's set-up reads, and what it rewrites"))

    def _open(self, file: Any = None, mode: Any = "r", *args: Any, **kwargs: Any) -> None:
        path = _path_of(file)
        if path is None or not isinstance(mode, str):
            return
        if "w" in mode or "x" in mode:
            self._begin(path)
        if not set("wxa+").isdisjoint(mode):
            self._written.add(path)
        elif self._wrote is None and not path.endswith((".py", ".pyc", ".so")):
            self._note(path)

    def _os_open(self, path: Any = None, flags: Any = 0, *args: Any, **kwargs: Any) -> Callable[[], None] | None:
        found = _path_of(path)
        if found is None or not isinstance(flags, int) or not flags & (os.O_TRUNC | os.O_WRONLY | os.O_RDWR):
            return None
        if flags & os.O_TRUNC:
            self._begin(found)
        self._written.add(found)
        return functools.partial(self._own.add, found) if flags & os.O_EXCL and _by_tempfile() else None

    def _mkdir(self, path: Any = None, mode: Any = 0o777, *args: Any, **kwargs: Any) -> Callable[[], None] | None:
        found = _path_of(path)
        return functools.partial(self._own.add, found) if found is not None and mode == _PRIVATE and _by_tempfile() else None

    def _rename(self, src: Any = None, dst: Any = None, *args: Any, **kwargs: Any) -> None:
        path = _path_of(dst)
        if path is None:
            return
        if os.path.lexists(path):
            self._begin(path)
        self._written.add(path)

    # -- findings ----------------------------------------------------------------------------------------------------------

    def _begin(self, path: str) -> None:
        if self._judged() and not self._spared(path) and (place := where()):
            self._tell(path, place)

    def _tell(self, path: str, place: str) -> None:
        wrote, self._wrote = self._wrote, None  # the callback may open files
        assert wrote is not None
        try:
            wrote(f"{path} at {place}" if place else path)
        finally:
            self._wrote = wrote

    def _judged(self) -> bool:
        return self._wrote is not None and (self._pid, self._thread) == (os.getpid(), threading.get_ident())

    def _spared(self, path: str) -> bool:
        if path.startswith(("/proc/", "/dev/", "/sys/")) or "__pycache__" in path or _is_of_run(path):
            return True
        if any(path == own or path.startswith(f"{own}/") for own in self._own):
            return True
        try:
            return not stat.S_ISREG(Path(path).stat().st_mode)  # a pipe, a terminal; for a directory `open` raises
        except OSError:
            return False

    def _note(self, path: str) -> None:
        try:
            found = Path(path).stat()
        except OSError:
            return
        if stat.S_ISREG(found.st_mode) and not path.startswith(("/proc/", "/sys/")) and not _is_of_run(path):
            self._read[path] = found.st_mtime_ns
            self.noted(path, found.st_mtime_ns)

    def noted(self, path: str, changed: int) -> None:
        """Note that the set-up reads this file, which was changed last at `changed`, in ns since the epoch. For others to override."""


def where() -> str:
    """Return the place in the script's own code from which a file is being written, as "FILE:LINE"; "" if a library writes it by itself."""
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        frame = caller
        module = str(frame.f_globals.get("__name__", ""))
        if module in _OURS or module.partition(".")[0] in _THROUGH or module.startswith(_THROUGH_OF_TORCH):
            continue
        if module.partition(".")[0] == "understudy" or frame.f_code.co_filename.startswith(_INSTALLED):
            return ""
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return ""


def _is_of_run(path: str) -> bool:
    """Return whether it is in the run directory, where files are ours."""
    run = os.environ.get(RUN_DIR_VARIABLE)
    return bool(run) and path.startswith(f"{run}/")


def _by_tempfile() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, patches.__file__):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "tempfile"


def _path_of(file: Any) -> str | None:
    """Return the path of `file`. None: an open descriptor, or nothing that could be opened."""
    try:
        return str(Path(os.fsdecode(file)).absolute())
    except (TypeError, ValueError, OSError):
        return None
