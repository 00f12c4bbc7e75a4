"""Two hosts as network namespaces, with rails between them as veth pairs; and faults of rails.

Rail i has the interfaces r<i> on both hosts, and the network 10.71.<i>.0/24: the sender's host is .1, the receiver's .2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.tools import SYSTEM

SENDER, RECEIVER = 0, 1


def missing() -> str:
    """Return why there can be no namespaces here, or ""."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [name for name in ("ip", "tc", "nft") if shutil.which(name, path=SYSTEM) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


class Hosts:
    """`rails` veth pairs between two namespaces. Faults are given by rail and by the host on which they are made."""

    def __init__(self, rails: int) -> None:
        unique = uuid.uuid4().hex[:8]
        self.rails = rails
        self.names = (f"netpath-{unique}-s", f"netpath-{unique}-r")

    def make(self) -> None:
        for name in self.names:
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        for rail in range(self.rails):
            first, second = self.names
            _run("ip", "link", "add", f"r{rail}", "netns", first, "type", "veth", "peer", "name", f"r{rail}", "netns", second)
            for number, name in enumerate(self.names):
                _run("ip", "-n", name, "address", "add", f"10.71.{rail}.{number + 1}/24", "dev", f"r{rail}")
                _run("ip", "-n", name, "link", "set", f"r{rail}", "up")

    def delete(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], env=_environment(), capture_output=True)

    def command(self, host: int, *words: str | Path) -> list[str]:
        return ["ip", "netns", "exec", self.names[host], *map(str, words)]

    def link(self, host: int, rail: int, state: str) -> None:
        """Set the link "up" or "down". The other end of the veth pair loses its carrier too."""
        _run("ip", "-n", self.names[host], "link", "set", f"r{rail}", state)

    def drop(self, host: int, rail: int, percent: int = 100) -> None:
        """Drop what arrives at `host` on the rail: all, or a random part of the packets."""
        chance = "" if percent == 100 else f"numgen random mod 100 < {percent}"
        rules = f"""
            add table inet rail{rail}
            add chain inet rail{rail} input {{ type filter hook input priority 0; }}
            add rule inet rail{rail} input iifname "r{rail}" {chance} drop
        """
        _run(*self.command(host, "nft", "-f", "-"), given=rules)

    def pass_again(self, host: int, rail: int) -> None:
        _run(*self.command(host, "nft", "delete", "table", "inet", f"rail{rail}"))

    def shape(self, host: int, rail: int, rate: str) -> None:
        """Limit what `host` sends on the rail, for example to "100mbit"."""
        words = ["tc", "qdisc", "replace", "dev", f"r{rail}", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        _run(*self.command(host, *words))

    def unshape(self, host: int, rail: int) -> None:
        _run(*self.command(host, "tc", "qdisc", "delete", "dev", f"r{rail}", "root"))


@contextlib.contextmanager
def hosts(rails: int) -> Iterator[Hosts]:
    made = Hosts(rails)
    try:
        made.make()
        yield made
    finally:
        made.delete()


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": SYSTEM}


def _run(*words: str, given: str = "") -> None:
    done = subprocess.run(words, input=given, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
