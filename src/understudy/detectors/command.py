"""Run an operator's own check of a node: a program that is run periodically, like Slurm's HealthCheckProgram and the custom plugins of the
node problem detector.

Its result, by `output`:

- `status`: exit code 0 is healthy, 1 is evidence against the node, with the first line of the program's output.
- `json`: exit code 0, and on standard output a list of findings (`Finding`), empty for a healthy node.

Everything else (another exit code, a signal, a timeout, output that is too long or malformed) counts against the check and never against
the node: a note about it.

The program runs without a shell, without standard input, in a new session and process group, and without the job's
token in its environment. At its `limit` the group gets SIGTERM, and `GRACE` seconds later SIGKILL; `Command.limit` has room for both.
What it leaves running in its group when it ends is killed: a check that starts a daemon must give it a new session. If the
agent is killed during a run, the kernel kills the program with it; the next agent starts with a new run.

Known limits. A process that leaves the group is not tracked or waited for, because the pipes are closed when the program has
ended. A process in an uninterruptible wait (a dead file server, a driver) does not obey even SIGKILL: it is left running and reported,
and the check does not run again until it has gone. Starting a program that is on a dead file server blocks beyond every limit here. Exit
code 1 is also that of an interpreter after an uncaught exception: a check in Python or the like should use `json`. The program is a
child of the thread that looks, and no other code may collect it (`agent.descendants.reap` does not): a check whose exit status was
collected elsewhere has no result, and is reported. Processes that the program has started outlive a killed agent, and so does a program
that the kernel does not signal because it takes other rights (setuid). Linux only.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from understudy.common.bounds import LAST_TIME
from understudy.common.dying import dying_with
from understudy.common.names import TOKEN_VARIABLE
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.detectors.configuration import Configured, Kind, Name, NodeSeverity, NodeSubject, Part, Period, Seconds, first_line, problem
from understudy.messages import node_programs
from understudy.messages.base import Text

GRACE = 2.0  # seconds between SIGTERM and SIGKILL, and for the kernel after that
MARGIN = 5.0  # seconds after that before the caller gives up
MOST_OUTPUT = 1 << 16  # bytes of standard output
KEPT_ERRORS = 1 << 12  # bytes of standard error; more is read and discarded
MOST_FINDINGS = 100
SECRETS = frozenset({TOKEN_VARIABLE, "UNDERSTUDY_DATABASE"})  # variables that a check does not get
_READ = 1 << 14


class CommandCheck(Configured):
    """One check. `kind` and `severity` apply to exit code 1; `holds` also to findings that do not set how long they are valid."""

    name: Name
    argv: Annotated[tuple[Annotated[str, Field(max_length=4096)], ...], Field(min_length=1, max_length=256)]
    every: Period = 60.0  # seconds between two runs
    limit: Annotated[Period, Field(le=3600)] = 30.0  # seconds that a run may take
    output: Literal["status", "json"] = "status"
    severity: NodeSeverity = "suspect"
    kind: Kind = "check-failed"
    holds: Seconds = 0.0  # seconds after which a failure is not valid any more; 0: it does not wear off

    @field_validator("argv")
    @classmethod
    def _can_be_run(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        if not argv[0].startswith("/"):
            raise ValueError(node_programs.RELATIVE_PATH())
        if any("\0" in word for word in argv):
            raise ValueError(node_programs.ZERO_BYTE())
        return argv


class Finding(Configured):
    """One item of the output of a check with `output = "json"`."""

    subject: NodeSubject
    kind: Kind
    severity: NodeSeverity
    detail: Annotated[str, Field(max_length=1000)] = ""
    part: Part | Literal[""] = ""
    until: Annotated[float, Field(ge=0, lt=LAST_TIME, allow_inf_nan=False)] | None = None  # unix time; 0: it does not wear off
    for_: Seconds | None = Field(None, alias="for")  # seconds from now

    @model_validator(mode="after")
    def _consistent(self) -> Finding:
        if self.until is not None and self.for_ is not None:
            raise ValueError(node_programs.UNTIL_OR_FOR())
        if (self.subject == "node") == bool(self.part):
            raise ValueError(node_programs.PART_AND_SUBJECT())
        return self


_FINDINGS: TypeAdapter[list[Finding]] = TypeAdapter(Annotated[list[Finding], Field(max_length=MOST_FINDINGS)])


@dataclass
class _Run:
    """The result of one run."""

    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    ended: tuple[int, int] | None = None  # how it ended (os.CLD_...), and with which code or signal
    taken: bool = False  # the exit status was collected elsewhere
    cut: Literal["", "limit", "output", "closed"] = ""  # why it was ended


class Command(NodeDetector):
    """Run a program as a check. `look` runs it once, on the caller's thread; `close` may be called on another one, and ends it."""

    def __init__(self, check: CommandCheck, now: Callable[[], float] = time.time, environment: Mapping[str, str] | None = None) -> None:
        """Prepare the check; nothing is started. `now` returns unix time; `environment`: default is that of this process."""
        self.name = f"command:{check.name}"
        self.every = check.every
        self.limit = check.limit + 2 * GRACE + MARGIN
        self._check = check
        self._now = now
        self._environment = environment
        self._changed = threading.Condition()
        self._closed = False
        self._wake: int | None = None  # an eventfd, during a look
        self._process: subprocess.Popen[bytes] | None = None  # also one that could not be ended

    @property
    def pid(self) -> int | None:
        """The process id of the current run, or None."""
        process = self._process
        return process.pid if process is not None else None

    def look(self) -> list[Evidence]:
        with self._changed:
            if self._closed:
                return []
            if self._wake is not None:
                raise RuntimeError(f"{self.name} is being run already")
            if self._process is not None and not self._gone():
                return [self._note("check-stuck", node_programs.STUCK(check=self._check.name))]
            self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            run = self._run(self._wake)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            return [self._note("check-start", node_programs.NOT_STARTED(check=self._check.name, reason=reason))]
        finally:
            with self._changed:
                os.close(self._wake)
                self._wake = None
                self._changed.notify_all()
        return [] if run.cut == "closed" else self._judged(run)

    def close(self) -> None:
        """End the current run, with its process group, and wait until it has ended. Later looks do not run it again."""
        with self._changed:
            self._closed = True
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)
            self._changed.wait_for(lambda: self._wake is None, 2 * GRACE + MARGIN)
            if self._process is not None:
                self._gone()

    # -- one run ------------------------------------------------------------------------------------------------------

    def _run(self, wake: int) -> _Run:
        """Run the program once. Raises `OSError` if it cannot be started."""
        inherited = os.environ if self._environment is None else self._environment
        end = time.monotonic() + self._check.limit
        self._process = process = subprocess.Popen(
            self._check.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=dying_with(os.getpid(), signal.SIGKILL),
            env={name: value for name, value in inherited.items() if name not in SECRETS},
        )
        assert process.stdout is not None and process.stderr is not None
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            _signal_group(process, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired), process.stdout, process.stderr:
                process.wait(GRACE)
            self._gone()
            raise
        run = _Run()
        try:
            with process.stdout as output, process.stderr as errors:
                self._follow(process, run, {pidfd, wake}, end)
                if run.cut and not self._has_ended(process, run):
                    _signal_group(process, signal.SIGTERM)
                    _wait(pidfd, GRACE)
                # While its exit status is not collected, its number, and so its group's, is not reused.
                self._has_ended(process, run)
                if not run.taken:
                    _signal_group(process, signal.SIGKILL)
                    _wait(pidfd, GRACE)
                if not run.cut:
                    self._take_rest(output, errors, run)
        finally:
            os.close(pidfd)
            self._gone()
        return run

    def _follow(self, process: subprocess.Popen[bytes], run: _Run, others: set[int], end: float) -> None:
        """Read the output until the program has ended or must be ended. `others`: its pidfd, and the eventfd that `close` writes to."""
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ)
            for descriptor in others:
                selector.register(descriptor, selectors.EVENT_READ)
            while not run.cut and not self._has_ended(process, run):
                ready = [key.fileobj for key, _ in selector.select(max(0.0, end - time.monotonic()))]
                for pipe in pipes:
                    if pipe in ready and not self._take(pipe, run):
                        selector.unregister(pipe)
                if self._closed:
                    run.cut = "closed"
                elif time.monotonic() >= end:
                    run.cut = run.cut or "limit"

    def _has_ended(self, process: subprocess.Popen[bytes], run: _Run) -> bool:
        """Return whether the program has ended. Does not collect it."""
        try:
            status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            run.taken = True
            return True
        if status is not None:
            run.ended = status.si_code, status.si_status
        return status is not None

    def _take(self, pipe: IO[bytes], run: _Run) -> bool:
        """Read a piece of the output; return false at its end."""
        try:
            data = os.read(pipe.fileno(), _READ)
        except BlockingIOError:
            return True
        assert self._process is not None
        if pipe is self._process.stderr:
            run.errors += data[: KEPT_ERRORS - len(run.errors)]
        elif len(run.output) + len(data) > MOST_OUTPUT:
            run.cut = "output"
        else:
            run.output += data
        return bool(data)

    def _take_rest(self, output: IO[bytes], errors: IO[bytes], run: _Run) -> None:
        """Read the rest of the pipes of a program that has ended; a process that has left its group may keep writing to them."""
        for pipe in (output, errors):
            for _ in range(2 * MOST_OUTPUT // _READ):
                if run.cut or not self._take(pipe, run):
                    break

    def _gone(self) -> bool:
        """Collect the process; return false if it has not ended."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return self._process is None

    # -- results ------------------------------------------------------------------------------------------------------

    def _judged(self, run: _Run) -> list[Evidence]:
        output, errors = run.output.decode(errors="replace"), run.errors.decode(errors="replace")
        c, line = self._check, first_line(output) or first_line(errors)
        if run.cut == "limit":
            return [self._note("check-timeout", node_programs.TIMEOUT(check=c.name, seconds=c.limit, printed=_printed(line)))]
        if run.cut == "output":
            return [self._note("check-output", node_programs.TOO_MUCH_OUTPUT(check=c.name, most=MOST_OUTPUT, printed=_printed(line)))]
        if run.taken or run.ended is None:
            return [self._note("check-status", node_programs.STATUS_TAKEN(check=c.name, printed=_printed(line)))]
        how, number = run.ended
        if how != os.CLD_EXITED:
            known = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            return [self._note("check-signal", node_programs.SIGNALLED(check=c.name, signal=known, printed=_printed(line)))]
        if c.output == "json" and number == 0:
            return self._findings(run.output)
        if c.output == "json" or number > 1:
            printed = _printed(first_line(errors) or line)
            return [self._note("check-exit", node_programs.BAD_EXIT(check=c.name, exit_code=number, printed=printed))]
        if number == 0:
            return []
        now = self._now()
        detail = node_programs.FAILED(check=c.name, printed=f": {line}" if line else "")
        until = now + c.holds if c.holds else 0.0
        return [Evidence(self.name, Subject.NODE, "", Severity(c.severity), detail, now, c.kind, until=until)]

    def _findings(self, output: bytearray) -> list[Evidence]:
        try:
            findings = _FINDINGS.validate_json(bytes(output), strict=True)
        except ValidationError as error:
            wrong = problem(error.errors(include_url=False, include_context=False, include_input=False)[0])
            printed = _printed(first_line(output.decode(errors="replace")))
            return [self._note("check-output", node_programs.NO_FINDINGS(check=self._check.name, problem=wrong, printed=printed))]
        now = self._now()
        return [self._evidence(finding, now) for finding in findings]

    def _evidence(self, finding: Finding, now: float) -> Evidence:
        until = finding.until
        if until is None:
            seconds = self._check.holds if finding.for_ is None else finding.for_
            until = now + seconds if seconds else 0.0
        detail = node_programs.FINDING(check=self._check.name, finding=first_line(finding.detail) or finding.kind)
        return Evidence(self.name, Subject(finding.subject), "", Severity(finding.severity), detail, now, finding.kind, finding.part, until)

    def _note(self, kind: str, detail: Text) -> Evidence:
        """Return a note about the check itself. The words of its command line are left out: they may be secret."""
        return Evidence(self.name, Subject.NODE, "", Severity.NOTE, detail, self._now(), kind)


def _printed(line: str) -> str:
    return f" (it printed: {line})" if line else ""


def _wait(pidfd: int, seconds: float) -> None:
    """Wait until the process has ended, or the time is over."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(seconds * 1000)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # a process of another user (setuid) is reported if it does not end
        os.killpg(process.pid, number)
