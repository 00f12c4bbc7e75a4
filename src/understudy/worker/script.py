"""Runs the user's script on a worker that has a rank, and reports how it ended.

The script's module stays `__main__` until the process ends: exit handlers and threads may pickle objects of its classes.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, NoReturn, cast

from understudy.common.page_view import Activity, Process
from understudy.core.events import Finished, Notice, ScriptFailed
from understudy.messages import set_up, worker_processes
from understudy.worker.api import session
from understudy.worker.errors import is_port_taken
from understudy.worker.process.control import Control
from understudy.worker.process.displaced import give_way
from understudy.worker.process.exits import finish_script, leave
from understudy.worker.process.where import traceback_of

RESERVE = 16 << 20  # bytes with which a script that has no memory left is still reported
_frozen = 0  # objects, by the template
ENDS_SLOWLY = 10.0  # seconds after which a script that has failed and has not ended yet is reported


class _Main:
    """Has no globals, which runpy would copy into the script's module: as it does, that module is `__main__`, and is kept."""

    module: ModuleType | None = None

    def keys(self) -> Iterator[str]:
        self.module = sys.modules["__main__"]
        return iter(())

    def put_back(self) -> None:
        if self.module is not None:
            sys.modules["__main__"] = self.module


def run(control: Control, arguments: list[str], module: bool) -> NoReturn:
    """Run the script as `__main__`, or `-m MODULE` if `module`, and end this process as its interpreter would."""
    global _frozen
    _frozen = gc.get_freeze_count()
    reserve = mmap.mmap(-1, RESERVE)  # never touched: address space, not memory
    if "SLURM_JOB_ID" in os.environ:
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # ignored until now (`agent.notices`); a script finds the usual ones
            signal.signal(number, signal.SIG_DFL)
    if not sys.flags.safe_path:
        give_way(sys.path[0])
    try:
        _execute(arguments, module)
    except SystemExit as error:
        if error.code is not None and error.code != 0:
            code = error.code if isinstance(error.code, int) else 1
            if not isinstance(error.code, int):
                print(error.code, file=sys.stderr, flush=True)
            if code & 0xFF:  # the kernel keeps only these bits
                _fail(control, worker_processes.SCRIPT_EXITED(code=error.code), "", code & 0xFF)
    except BaseException as error:
        reserve.close()
        _raised(control, error)
    if control.assignment is None:
        _fail(control, _with_files(worker_processes.NO_TRANSACTION()), "", 1)
    _end(control)


def _execute(arguments: list[str], module: bool) -> None:
    main = _Main()
    given = cast("dict[str, Any]", main)
    try:
        if module:
            sys.argv[:] = arguments[1:]
            runpy.run_module(arguments[1], given, "__main__", alter_sys=True)
        else:
            sys.argv[:] = arguments
            runpy.run_path(arguments[0], given, "__main__")
    finally:
        main.put_back()


def _raised(control: Control, error: BaseException) -> None:
    """Report the error that the script has raised, and wait to be ended, unless it comes from a loss."""
    from understudy.worker.data.loaders import leave_if_data_process_lost
    from understudy.worker.devices.broken_device import leave_if_device_failed
    from understudy.worker.generation.membership import EXPLANATION

    leave_if_data_process_lost(error)
    runtime = session.current.runtime if session.current else None
    if runtime is not None:
        runtime.membership.leave_if_device_failed(error)
    else:
        leave_if_device_failed(error, control, None, lambda: False)
    if runtime is not None and runtime.progress.transaction < 0 and runtime.membership.is_caused_by_loss(error):
        control.wait_for(lambda: False, EXPLANATION)  # every rank starts again, and this worker is ended for that
    text = traceback_of(error)
    reason = runtime.membership.explain(error) if runtime is not None else ""
    reason = reason or f"{type(error).__name__}: {error}"
    if control.assignment is None and is_port_taken(error):  # the rank's own worker has it
        reason = set_up.PORT_TAKEN(error=reason)
    _fail(control, _with_files(reason), text, 1)


def _end(control: Control) -> NoReturn:
    """Wait until every rank's script has ended, then end as the interpreter does."""
    runtime = session.current.runtime if session.current else None
    if runtime is None:
        control.send(Finished(control.worker, control.generation))
        control.wait_for(lambda: control.released is not None)
        assert control.released is not None
        code = control.released.exit_code
    else:
        try:
            code = runtime.finish()
        except BaseException as error:
            runtime.membership.leave_if_device_failed(error)
            _fail(control, f"{type(error).__name__}: {error}", traceback_of(error), 1)
    try:
        finish_script(_frozen)
    finally:
        leave(code)


def _with_files(summary: str) -> str:
    """Return a summary that names the files that its set-up has read, on a newcomer that has not arrived: they may be the reason."""
    here = session.current
    if (
        here is None
        or here.opened is None
        or (here.runtime is not None and here.runtime.newcomer is not None and here.runtime.newcomer.arrived)
    ):
        return summary
    return here.opened.explained(summary)


def _fail(control: Control, summary: str, text: str, code: int) -> NoReturn:
    """End the script as the interpreter does, report that it has failed, and wait to be ended."""
    assert control.role is not None
    runtime = session.current.runtime if session.current else None
    progress = runtime.progress if runtime else None
    failure = ScriptFailed(control.worker, control.role.rank, progress.step if progress else 0, summary[:4000], text[-100_000:], code)
    was_rank = _has_been_rank(control)
    asked: list[int] = []  # to end, as another rank's failure has ended the job: there is some grace
    if was_rank:
        control.page.enter(Activity.IDLE, progress.transaction if progress else -1, process=Process.ENDING)
        slow = threading.Timer(ENDS_SLOWLY, lambda: _tell_slow(control, summary, text))
        slow.daemon, slow.name = True, "understudy-slow"
        slow.start()
        control.send(replace(failure, ends=True))
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
        with contextlib.suppress(SystemExit):  # of a handler of a signal
            finish_script(_frozen)
        slow.cancel()
    control.send(failure)
    if was_rank:
        signal.signal(signal.SIGTERM, lambda number, frame: leave(code))
        if not asked:
            control.wait_for(lambda: control.released is not None, timeout=30.0)
        leave(code)
    control.wait_for(lambda: control.released is not None, timeout=30.0)
    sys.stdout.flush()
    os._exit(code)


def _has_been_rank(control: Control) -> bool:
    """Return whether files and exit handlers of this script are the rank's: not of a spare, nor of a newcomer that did not arrive."""
    here = session.current
    if control.assignment is None or here is None:
        return False
    if not here.newcomer:
        return True
    return here.runtime is not None and (here.runtime.newcomer is None or here.runtime.newcomer.arrived)


def _tell_slow(control: Control, summary: str, text: str) -> None:
    """Report a script that ends slowly. The agent shows the traceback when this worker has ended (`agent.failures`)."""
    print(text, file=sys.stderr, end="", flush=True)
    rank = control.role.rank if control.role is not None else -1
    threads = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    what = f"threads {', '.join(threads)}" if threads else "exit handlers"
    control.send(Notice(control.worker, rank, worker_processes.ENDS_SLOWLY(summary=summary[:500], seconds=ENDS_SLOWLY, what=what)))
