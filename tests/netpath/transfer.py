"""A sender and a receiver (`driver.cc`) on two hosts, that exchange messages until the test has seen enough."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.processes import wait_until
from tests.netpath.builds import Build
from tests.netpath.hosts import RECEIVER, SENDER, Hosts

LIMIT = 60  # seconds without any progress after which the driver gives up
LONG = 240.0  # seconds that a test waits for something


class Transfer:
    """Both processes. `sizes` is as in `driver.cc`, `version` of the table; `settings` are variables of the plugin."""

    def __init__(
        self,
        build: Build,
        hosts: Hosts,
        folder: Path,
        sizes: str,
        *,
        comms: int = 2,
        version: int = 12,
        limit: int = LIMIT,
        **settings: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.stats_folder = folder / "stats"
        self.stats_folder.mkdir(exist_ok=True)
        common = {"UNDERSTUDY_NET_IFNAME": "r", "UNDERSTUDY_NET_STATS": str(self.stats_folder), **settings}
        self._environment = {**os.environ, **common}
        self.lines: dict[int, list[str]] = {SENDER: [], RECEIVER: []}
        words = [str(version), str(comms), sizes, str(limit)]
        self._errors = [folder / "sender.err", folder / "receiver.err"]
        self.receiver = self._start(hosts.command(RECEIVER, build.driver, build.library, "receive", *words), RECEIVER)
        wait_until(lambda: len(self.handles()) == comms or self.receiver.poll() is not None, "the handles", LONG)
        self.sender = self._start(hosts.command(SENDER, build.driver, build.library, "send", *words, *self.handles()), SENDER)

    def _start(self, words: list[str], host: int) -> subprocess.Popen[str]:
        with self._errors[host].open("w") as errors:
            process = subprocess.Popen(
                words, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        output = process.stdout
        assert output is not None
        # Ends with the process: its output is then at its end.
        threading.Thread(target=lambda: self.lines[host].extend(iter(output.readline, "")), daemon=True).start()
        return process

    def handles(self) -> list[str]:
        return [line.split()[1] for line in list(self.lines[RECEIVER]) if line.startswith("handle ")]

    def sent(self) -> int:
        """The number of messages that the sender knows to have arrived."""
        return max((int(line.split()[1]) for line in list(self.lines[SENDER]) if line.startswith("sent ")), default=0)

    def wait_for_messages(self, count: int) -> None:
        """Wait until `count` more messages have arrived."""
        goal = self.sent() + count
        wait_until(lambda: self.sent() >= goal or self.over(), f"{count} more messages", LONG)
        assert not self.over(), self.errors()

    def wait_for(self, counter: str, more_than: int, host: int = SENDER, interface: str = "", ended: bool = False) -> None:
        """Wait until a counter of the plugin, summed over rails, has grown, or, if `ended`, until a process has ended."""
        wait_until(lambda: self.total(counter, host, interface) > more_than or self.over(), f"{counter} > {more_than}", LONG)
        assert ended or not self.over(), self.errors()

    def stats(self, host: int = SENDER) -> list[dict[str, Any]]:
        """The lines about rails, of the process on `host`."""
        found = sorted(self.stats_folder.glob(f"*-{(self.sender if host == SENDER else self.receiver).pid}.jsonl"))
        lines = [json.loads(line) for file in found for line in file.read_text().splitlines()]
        return [line for line in lines if "interface" in line]

    def total(self, counter: str, host: int = SENDER, interface: str = "") -> int:
        return sum(line[counter] for line in self.stats(host) if interface in ("", line["interface"]))

    def sender_is_quiet(self) -> None:
        """Wait until the sender has reported nothing new in 100 looks."""
        looks, seen = 0, self.sent()

        def quiet() -> bool:
            nonlocal looks, seen
            looks = looks + 1 if self.sent() == seen else 0
            seen = self.sent()
            return looks >= 100

        wait_until(quiet, "silence", LONG)

    @contextlib.contextmanager
    def no_descriptors(self) -> Iterator[None]:
        """For the body, the sender can open no descriptor; those that it has go on."""
        limits = resource.prlimit(self.sender.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.sender.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended, which the test notices
                resource.prlimit(self.sender.pid, resource.RLIMIT_NOFILE, limits)

    @contextlib.contextmanager
    def receiver_stopped(self) -> Iterator[None]:
        """Stop the receiver's process for the body."""
        with _stopped(self.receiver):
            yield

    @contextlib.contextmanager
    def both_stopped(self) -> Iterator[None]:
        """Stop both processes for the body."""
        with _stopped(self.receiver), _stopped(self.sender):
            yield

    def stop(self) -> dict[str, Any]:
        """End both, and return what the receiver measured. Fails unless both have found all bytes right."""
        assert self.sender.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.sender.stdin.write("stop\n")
            self.sender.stdin.flush()
        codes = self.codes()
        assert codes == (0, 0), f"{codes}: {self.errors()}"
        wait_until(lambda: any(line.startswith("result ") for line in self.lines[RECEIVER]), "the result", LONG)
        result: dict[str, Any] = json.loads(next(line for line in self.lines[RECEIVER] if line.startswith("result ")).partition(" ")[2])
        return result

    def codes(self) -> tuple[int, int]:
        """Exit codes of sender and receiver, when both have ended."""
        return self.sender.wait(LONG), self.receiver.wait(LONG)

    def receiver_code(self) -> int:
        """Exit code of the receiver, when it has ended."""
        return self.receiver.wait(LONG)

    def errors(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in self._errors)

    def over(self) -> bool:
        """Return whether one of the processes has ended."""
        return self.sender.poll() is not None or self.receiver.poll() is not None

    def close(self) -> None:
        for process in (self.sender, self.receiver):
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()


@contextlib.contextmanager
def _stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def transfer(build: Build, hosts: Hosts, folder: Path, sizes: str, **options: Any) -> Iterator[Transfer]:
    made = Transfer(build, hosts, folder, sizes, **options)
    try:
        yield made
    finally:
        made.close()
