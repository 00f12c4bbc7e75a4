"""The test cluster's network: one switch, one address range, and only one cable outside of namespaces.

The switch is a bridge in a network namespace that no file names: it lasts as long as the process that keeps it, which
dies with the tests. A cable (a pair of linked interfaces) leads from it to the machine's own network, so that the tests reach the API
server and the pods; the kernel removes both ends with the switch. Each node has a bridge in its own namespace, and a cable from
there to the switch, which can be pulled.

Addresses are taken from 198.18.0.0/15, which RFC 2544 reserves for tests of networks: a block of 16 x 256 for each cluster, the first of
these for the control plane, one for each node. The name of the cable's end in the machine's network shows which block is taken.

Simpler than in reality: all addresses are in one flat network, without routes, rules or encapsulation.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes import wait_until
from understudy.common.dying import dying_with

BLOCKS = 32
BRIDGE = "br0"
TOOLS = ("ip", "unshare", "nsenter")


def ip(*words: str, inside: int | None = None) -> None:
    """The command `ip`, in this machine's network or in that of the process `inside`."""
    there = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    done = subprocess.run([*there, "ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def bridge(inside: int) -> None:
    # Its own address stays as it is given; otherwise it changes with the ports, and for a while the bridge cannot be reached.
    hardware = ":".join(["02", *(f"{byte:02x}" for byte in os.urandom(5))])
    ip("link", "add", BRIDGE, "address", hardware, "type", "bridge", "forward_delay", "0", "stp_state", "0", inside=inside)
    for device in ("lo", BRIDGE):
        ip("link", "set", device, "up", inside=inside)


def plug(process: int, device: str, switch: int, port: str) -> None:
    """A cable from `device` in the network of this process to the bridge in that of `switch`."""
    ip("link", "add", device, "netns", str(process), "type", "veth", "peer", "name", port, "netns", str(switch))
    ip("link", "set", port, "master", BRIDGE, "up", inside=switch)


@dataclass(frozen=True)
class Addresses:
    """Those of one block."""

    block: int

    def at(self, part: int, number: int) -> str:
        return f"198.{18 + self.block // 16}.{self.block % 16 * 16 + part}.{number}"

    @property
    def servers(self) -> str:
        """Of the control plane and of the names."""
        return self.at(0, 1)

    @property
    def tests(self) -> str:
        return self.at(0, 2)

    def node(self, number: int) -> str:
        """The kubelet's, on the node with this number (1 to 15); its pods follow."""
        return self.at(number, 1)


PREFIX = 20  # bits that all addresses of a block have in common

# Connections to a node that is off would keep the namespace for two minutes after everybody in it has ended.
HOLDS = "echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries; exec sleep infinity"


class Switch:
    """The switch, with the control plane in its network: processes there have the address of the servers."""

    def __init__(self) -> None:
        dies = dying_with(os.getpid(), signal.SIGKILL)
        self.process = subprocess.Popen(["unshare", "--net", "sh", "-c", HOLDS], preexec_fn=dies, start_new_session=True)
        wait_until(lambda: self._holds(), "a network namespace")
        bridge(self.pid)
        self.addresses, self.cable = self._take_block()
        ip("addr", "add", f"{self.addresses.servers}/{PREFIX}", "dev", BRIDGE, inside=self.pid)
        ip("link", "set", "tests", "master", BRIDGE, "up", inside=self.pid)
        ip("addr", "add", f"{self.addresses.tests}/{PREFIX}", "dev", self.cable)
        ip("link", "set", self.cable, "up")

    @property
    def pid(self) -> int:
        return self.process.pid

    def _holds(self) -> bool:
        return Path(f"/proc/{self.pid}/comm").read_text().strip() == "sleep"

    def _take_block(self) -> tuple[Addresses, str]:
        first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
        for number in range(BLOCKS):
            block = (first + number) % BLOCKS
            name = f"ustests{block}"
            try:  # two clusters cannot both make it
                ip("link", "add", name, "type", "veth", "peer", "name", "tests", "netns", str(self.pid))
                return Addresses(block), name
            except OSError as error:
                if "exists" not in str(error):
                    raise
        raise OSError("every block of addresses is taken: ip link")

    def inside(self, *words: str) -> list[str]:
        """For `subprocess`: `words`, run in the switch's network."""
        return ["nsenter", "--target", str(self.pid), "--net", *words]

    def remove(self) -> None:
        """Remove it with every cable. No process runs in it any more."""
        ip("link", "del", self.cable)
        self.process.kill()
        self.process.wait()
