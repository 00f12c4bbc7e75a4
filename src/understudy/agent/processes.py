"""One worker process: start it, detect its end, stop it.

A worker gets its own session (so that a signal reaches it and its forks), the command's stdin, and its end of a socketpair. It
outlives its agent (`links.reattach`). Its lifeline (`links.lifeline`) shows that it begins to end, its pidfd that it has ended; neither is
polled, and SIGCHLD is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from understudy.agent.config import AgentConfig
from understudy.agent.descendants import Process, environment_entry
from understudy.common.console import standard_input
from understudy.common.names import RUN_DIR_VARIABLE, TOKEN_VARIABLE, WORKER_VARIABLE, WORKERS, page_path
from understudy.core.model import LossCause
from understudy.core.topology import failure_domain

_OWN_FAULTS = {
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}


PF_EXITING = 0x4


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    cause: LossCause
    detail: str
    exit_code: int  # as a shell reports it: 128 + n for signal n


@dataclass(frozen=True)
class Started:
    """A new worker process and our ends of everything. The caller closes them."""

    pid: int
    pidfd: int
    link: socket.socket
    stdout: int
    stderr: int


# torch's NCCL watchdog and its monitor must not end a worker, whatever the user has set. After the loss of a peer they would end the
# survivors a minute later. After a device error they would end the process before the main thread can report the error.
NCCL_WATCHDOG = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}


def worker_environment(config: AgentConfig, base: Mapping[str, str], worker: str) -> dict[str, str]:
    """Return the environment of a worker without a rank; `Assign` has the variables of the rank."""
    environment = {name: value for name, value in base.items() if name != TOKEN_VARIABLE}
    environment[WORKER_VARIABLE] = worker
    environment[RUN_DIR_VARIABLE] = str(config.run_dir)
    environment["TORCHELASTIC_ERROR_FILE"] = str(config.run_dir / WORKERS / f"{worker}-error.json")  # for torch's @record
    environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals
    environment["UNDERSTUDY_NODE"] = config.node
    environment["UNDERSTUDY_DOMAIN"] = failure_domain(config.node, config.domain, dict(config.labels))
    environment["UNDERSTUDY_ADDRESS"] = config.address  # stores and Gloo listen there, and nowhere else
    environment |= NCCL_WATCHDOG
    # No flight record is written, and the watchdog does not sleep for a minute so that other ranks can write theirs.
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    environment.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0")
    # An abort breaks connections on purpose, and torch warns of each with a C++ stack trace.
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # torch's stores look up the names of addresses when they connect. A lost query is repeated after one second instead of
    # five, for which a recovery would wait, and in total for as long as before, if a name server is slow.
    environment.setdefault("RES_OPTIONS", "timeout:1 attempts:5")
    environment.setdefault("PYTHONHASHSEED", hash_seed(config.job))
    if config.workers_per_node > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun
    return environment


def hash_seed(job: str) -> str:
    """Return the hash seed of all nodes of a job: a set of strings has the same order in every rank, and in a newcomer on any node."""
    return str(1 + int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "little") % 0xFFFF_FFFE)  # 0 would turn it off


@dataclass(frozen=True)
class Ends:
    """Both ends of a new worker's link (a socketpair), stdout and stderr (pipes), in this order.

    The worker also keeps the reading ends of the pipes, for the next agent.
    """

    ours: tuple[socket.socket, int, int]
    theirs: tuple[int, int, int, int, int]

    @staticmethod
    def make() -> Ends:
        link, link_end = socket.socketpair()
        stdout, stdout_end = os.pipe2(os.O_CLOEXEC)
        stderr, stderr_end = os.pipe2(os.O_CLOEXEC)
        return Ends((link, stdout, stderr), (link_end.detach(), stdout_end, stderr_end, os.dup(stdout), os.dup(stderr)))

    def close_ours(self) -> None:
        link, *pipes = self.ours
        link.close()
        for fd in pipes:
            os.close(fd)

    def close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)


def command_line(config: AgentConfig, worker: str, fd: int, page: Path, *more: str) -> list[str]:
    return [*config.worker_command, "--worker", worker, "--fd", str(fd), "--page", str(page), *more, "--", *config.program]


def start(config: AgentConfig, worker: str) -> Started:
    """Start a worker. Raises `OSError` or `subprocess.SubprocessError` if the process cannot be started."""
    ends = Ends.make()
    link, stdout, stderr, *outputs = ends.theirs
    try:
        process = subprocess.Popen(
            command_line(config, worker, link, page_path(config.run_dir, worker), "--outputs", *map(str, outputs)),
            stdin=standard_input(),
            stdout=stdout,
            stderr=stderr,
            pass_fds=(link, *outputs),
            start_new_session=True,
            env=worker_environment(config, os.environ, worker),
        )
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
    except BaseException:
        ends.close_ours()
        raise
    finally:
        ends.close_theirs()
    process.returncode = 0  # the exit status is collected through the pidfd
    return Started(process.pid, pidfd, *ends.ours)


def collect(pidfd: int) -> Ending | None:
    """Collect and return the end of the process, once; None while it runs."""
    status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return _exited(status.si_status)
    return _signalled(status.si_status)


def seen(pid: int) -> Ending:
    """Return the end of a worker that another agent has started: only its parent gets its exit status."""
    return dying(pid) or Ending(LossCause.KILLED, "how it ended went to another process, as its agent had been started again", 1)


def dying(pid: int) -> Ending | None:
    """Return the end of a process whose threads are already stopping, before the kernel is done with it; None while it runs.

    Its lifeline shows when to check (`links.lifeline`). The flag PF_EXITING is in field 9 of /proc/PID/stat, and field 52 then holds the
    exit status as wait(2) returns it (see proc_pid_stat(5)).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not int(fields[6]) & PF_EXITING:
        return None
    status = int(fields[49])
    return _signalled(status & 0x7F) if status & 0x7F else _exited(status >> 8)


def _exited(code: int) -> Ending:
    return Ending(LossCause.EXITED, f"exit code {code}", code)


def _signalled(number: int) -> Ending:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in _OWN_FAULTS:
        return Ending(LossCause.CRASHED, name, 128 + number)
    return Ending(LossCause.KILLED, name, 128 + number)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a worker and its forks in its process group. Only before its end is collected: then the number is free."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def signal_one(pidfd: int, number: signal.Signals) -> None:
    """Send a signal to a worker alone. Only before its end is collected."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)


def left_by(config: AgentConfig, worker: str, pid: int, process: Process) -> bool:
    """Return whether this worker has started `process`."""
    return process.session == pid or (environment_entry(process.pid, WORKER_VARIABLE) == worker and of_run(config, process))


def of_run(config: AgentConfig, process: Process) -> bool:
    """Return whether a worker of this agent, or of one before it, has started `process`."""
    return environment_entry(process.pid, RUN_DIR_VARIABLE) == str(config.run_dir)
