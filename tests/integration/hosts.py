"""Hosts for tests: network namespaces, each with an address, a host name and its own processes, connected by a switch.

They do not touch this machine's own network. Needs root. A host can vanish (its processes end, without a packet), be cut
off in both directions or in one, and be slow and lose packets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.integration.processes import send

_numbers = itertools.count()


def _ip(*words: str) -> str:
    return _command("ip", *words)


def _traffic(*words: str) -> str:
    return _command("tc", *words)


def _command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def why_not() -> str:
    """Why this machine cannot have such hosts, or ""."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if any(shutil.which(tool) is None for tool in ("ip", "tc", "unshare")):
        return "network namespaces need the commands ip, tc and unshare (iproute2, util-linux)"
    name = f"us{os.getpid():x}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return "" if made.returncode == 0 else f"this kernel gives no network namespaces here: {made.stderr.strip()}"


needs_hosts = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Place(Protocol):
    """Where a process is started, and with what around it."""

    def start(self, command: list[str], folder: Path, environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]: ...


class Host:
    def __init__(self, network: Network, number: int) -> None:
        self.name = f"host{number}"
        self.address = f"10.77.0.{number + 1}"
        self.namespace = f"{network.tag}h{number}"
        self._switch = network.switch
        self._port = f"p{number}"
        _ip("netns", "add", self.namespace)
        _ip("link", "add", "eth0", "netns", self.namespace, "type", "veth", "peer", "name", self._port, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", self._port, "master", "br0", "up")
        _ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.namespace, "link", "set", device, "up")

    def start(self, command: list[str], folder: Path, environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
        named = 'hostname "$0" && exec "$@"'
        words = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", named, self.name, *command]
        with output.open("ab") as file:
            return subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)

    def pids(self) -> list[int]:
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]

    def cut(self) -> None:
        """Nothing comes in or out."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def silence(self) -> None:
        """Drop everything that it sends; it still receives."""
        self._tc(self.namespace, "replace", "eth0", "blackhole")

    def deafen(self) -> None:
        """Drop everything that it should receive; it still sends."""
        self._tc(self._switch, "replace", self._port, "blackhole")

    def slow(self, rate: str, queue: str = "1mb") -> None:
        """Limit its sending to `rate`, such as 20mbit; packets that do not fit into the `queue` are lost."""
        self._tc(self.namespace, "replace", "eth0", "tbf", "rate", rate, "burst", "4kb", "limit", queue)

    def lost_packets(self) -> int:
        """How many did not fit."""
        found = re.search(r"dropped (\d+)", _traffic("-n", self.namespace, "-s", "qdisc", "show", "dev", "eth0"))
        assert found is not None
        return int(found[1])

    def heal(self) -> None:
        _ip("-n", self._switch, "link", "set", self._port, "up")
        self._tc(self.namespace, "replace", "eth0", "pfifo", "limit", "1000")
        self._tc(self._switch, "replace", self._port, "pfifo", "limit", "1000")

    def vanish(self) -> None:
        """End it as a power failure does: without a packet."""
        self.cut()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                send(pid, signal.SIGKILL)

    def _tc(self, namespace: str, verb: str, device: str, *discipline: str) -> None:
        _traffic("-n", namespace, "qdisc", verb, "dev", device, "root", *discipline)

    def remove(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                send(pid, signal.SIGKILL)
        _ip("netns", "del", self.namespace)


class Network:
    def __init__(self) -> None:
        self.tag = f"us{os.getpid():x}n{next(_numbers)}"
        self.switch = f"{self.tag}s"
        self.hosts: list[Host] = []
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0", "stp_state", "0")
        _ip("-n", self.switch, "link", "set", "br0", "up")

    def add(self) -> Host:
        host = Host(self, len(self.hosts))
        self.hosts.append(host)
        return host

    def remove(self) -> None:
        for host in self.hosts:
            host.remove()
        _ip("netns", "del", self.switch)


@contextlib.contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """`count` hosts that reach each other; they and all that runs on them are gone afterwards."""
    made = Network()
    try:
        for _ in range(count):
            made.add()
        yield made.hosts
    finally:
        made.remove()
