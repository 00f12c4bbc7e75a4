"""Run each check in its own process, because what it tests may be broken: bad memory ends a process with SIGBUS, a bad CPU
with SIGSEGV or SIGILL, and a disk may never answer. All of that is a failure of the check, and must not end the caller.

The process has its own session, and everything in its process group ends with it: at its limit, at the end of the caller (then its
standard input ends, and it kills its group itself), and when it is done. The kernel ends it first when memory runs out. It gets the
options and the token on its standard input, and has no token in its environment.

Known limit: a process in an uninterruptible wait does not obey SIGKILL. It is left running, and reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from understudy.checks.base import Result, Verdict
from understudy.checks.options import Name, Options
from understudy.checks.registry import CHECKS
from understudy.common.names import TOKEN_VARIABLE
from understudy.messages import node_checks

COMMAND = (sys.executable, "-P", "-m", "understudy.checks", "--one")
START = 30.0  # seconds in addition to the check's own limit, to start Python
GRACE = 5.0  # seconds for the kernel, after SIGKILL
MOST_OUTPUT = 1 << 22  # bytes of a result
_READ = 1 << 16


def isolated(name: Name, options: Options, token: str = "") -> Result:
    """Run the check `name` in its own process and return its result. Never raises."""
    began = time.monotonic()
    limit = CHECKS[name](options, token).limit + START
    try:
        found = _run(name, options, token, limit)
    except OSError as error:
        found = node_checks.NOT_STARTED(reason=error.strerror)
    if isinstance(found, str):
        found = Result(check=name, verdict=Verdict.FAILED, detail=found)
    return found.model_copy(update={"seconds": time.monotonic() - began})


def _run(name: Name, options: Options, token: str, limit: float) -> Result | str:
    """Return the result, or why there is none. Raises `OSError` if the process cannot be started."""
    environment = {variable: value for variable, value in os.environ.items() if variable != TOKEN_VARIABLE}
    pipe = subprocess.PIPE
    process = subprocess.Popen([*COMMAND, name], stdin=pipe, stdout=pipe, env=environment, bufsize=0, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None
    with process.stdin as given, process.stdout as output:
        try:
            with contextlib.suppress(BrokenPipeError):  # its exit code shows why it has ended
                given.write(json.dumps({"options": options.model_dump(), "token": token}).encode() + b"\n")
            text = _read(output, time.monotonic() + limit)
            if text is not None and len(text) <= MOST_OUTPUT:
                _wait(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # while its exit status is not collected, its number, and so its group's, is not reused
            ended = _ended(process)
    if text is None:
        return node_checks.NOT_DONE(seconds=limit, stuck="" if ended else ", and it cannot be ended: it waits in the kernel")
    if len(text) > MOST_OUTPUT:
        return node_checks.TOO_MUCH_OUTPUT(most=MOST_OUTPUT)
    return _result(name, text, process.returncode)


def _read(output: IO[bytes], end: float) -> bytes | None:
    """Read all its output, up to a little more than `MOST_OUTPUT`; None if it is not done by `end`."""
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while len(text) <= MOST_OUTPUT:
            if not selector.select(max(0.0, end - time.monotonic())):
                return None
            data = os.read(output.fileno(), _READ)
            if not data:
                break
            text += data
    return text


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait until it has ended, for `GRACE` seconds at most. Does not collect it."""
    pidfd = os.pidfd_open(process.pid)
    try:
        select.select([pidfd], [], [], GRACE)
    finally:
        os.close(pidfd)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        return False
    return True


def _result(name: Name, text: bytes, code: int | None) -> Result | str:
    if text:
        with contextlib.suppress(ValidationError):
            found = Result.model_validate_json(text)
            if found.check == name:
                return found
    if code is not None and code < 0:
        known = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return node_checks.BAD_MEMORY(signal=known) if known == "SIGBUS" else node_checks.KILLED(signal=known)
    return node_checks.NO_RESULT(exit_code=code)


def serve_one(name: Name) -> int:
    """Run the check `name` in this process, with the options on standard input; return the exit code."""
    answer = os.dup(1)
    os.dup2(2, 1)  # other output must not get into the JSON
    given = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    found = _tried(name, Options.model_validate(given["options"]), str(given["token"]))
    with os.fdopen(answer, "wb") as out:
        out.write(found.model_dump_json().encode())
    sys.stderr.flush()
    os._exit(0)  # does not wait for a thread that hangs


def _end_with_parent() -> None:
    while os.read(0, _READ):
        pass
    os.killpg(0, signal.SIGKILL)


def _tried(name: Name, options: Options, token: str) -> Result:
    try:
        check = CHECKS[name](options, token)
        if why := check.missing():
            return Result(check=name, verdict=Verdict.SKIPPED, detail=why)
        return check.run()
    except Exception as error:
        why = node_checks.RAISED(kind=type(error).__name__, reason=str(error))
        return Result(check=name, verdict=Verdict.FAILED, detail=why)
