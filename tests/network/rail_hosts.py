"""Hosts with several rails, for tests: network namespaces, each with one device on every rail; each rail is a switch of its own.

They do not touch this machine's own network. Needs root. A host's cable to a rail can be pulled, drop everything in one direction, and
be slow. `RailHost` can be used where tests use `tests.integration.hosts.Host`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hosts import why_not
from tests.integration.processes import LIMIT, Mark, send, wait_until

_WHY_NOT = why_not() or ("" if shutil.which("nft") else "needs the command nft (nftables)")
needs_rails = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
_numbers = itertools.count()
CLI = [sys.executable, "-m", "understudy.cli", "network"]
# As quick as the limits of the configuration allow where a test waits for it, and patient where a busy machine could disturb it.
PROBES = {"interval": 0.1, "patience": 1.0, "losses": 5, "answers": 3, "hold": 0.5, "hold_most": 4.0, "report": 1.0}


def command(*words: str, text: str | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, input=text)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


class RailHost:
    def __init__(self, tag: str, number: int, switches: list[str], folder: Path) -> None:
        self.name = f"host{number}"
        self.address = f"10.72.0.{number + 1}"
        self.namespace = f"{tag}h{number}"
        self.rails = [f"r{rail}" for rail in range(1, len(switches) + 1)]
        self.folder = folder / self.name
        self.folder.mkdir()
        self.here = folder / "here"
        self._switches = switches
        self._port = f"p{number}"
        command("ip", "netns", "add", self.namespace)
        # Addresses of IPv6 would appear some time later.
        self.run("sh", "-c", "for kind in all default; do echo 1 > /proc/sys/net/ipv6/conf/$kind/disable_ipv6; done")
        command("ip", "-n", self.namespace, "link", "set", "lo", "up")
        for rail in self.rails:
            self.insert(rail)

    def address_on(self, rail: str) -> str:
        return f"10.{self.rails.index(rail) + 1}.0.{self.address.rpartition('.')[2]}"

    @property
    def record(self) -> Path:
        return self.folder / "before.json"

    def run(self, *words: str) -> str:
        return command("ip", "netns", "exec", self.namespace, *words)

    def start(self, words: list[str], folder: Path, environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
        """The process sees the host's own folder as the folder `here`, too: so hosts can have the same settings."""
        self.here.mkdir(exist_ok=True)
        own = 'hostname "$0" && mount --bind "$1" "$2" && shift 2 && exec "$@"'
        words = ["sh", "-c", own, self.name, str(self.folder), str(self.here), *words]
        words = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "--mount", *words]
        with output.open("ab") as file:
            return subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)

    def network(self) -> dict[str, str]:
        """Everything that apply may change: addresses, routes, rules, and all settings of IPv4."""
        shown = {
            "addresses": self.run("ip", "-json", "address"),
            "routes": self.run("ip", "-json", "route", "show", "table", "all"),
            "rules": self.run("ip", "-json", "rule"),
        }
        text = self.run("sh", "-c", "cd /proc/sys/net/ipv4 && grep -rH . . 2>/dev/null | sort")
        return {**shown, **dict(line.split(":", 1) for line in text.splitlines() if not line.startswith("./neigh/"))}

    def hops(self, other: RailHost) -> list[str]:
        """The rails that the route to another host uses."""
        (found,) = json.loads(self.run("ip", "-json", "route", "show", f"{other.address}/32"))
        return [hop["dev"] for hop in found.get("nexthops", [found])]

    def insert(self, rail: str) -> None:
        """Add a device for the rail, with its address and cable."""
        switch = self._switch(rail)
        command("ip", "link", "add", rail, "netns", self.namespace, "type", "veth", "peer", "name", self._port, "netns", switch)
        command("ip", "-n", switch, "link", "set", self._port, "master", "br0", "up")
        command("ip", "-n", self.namespace, "addr", "add", f"{self.address_on(rail)}/24", "dev", rail)
        command("ip", "-n", self.namespace, "link", "set", rail, "up")
        wait_until(lambda: json.loads(self.run("ip", "-json", "link", "show", rail))[0]["operstate"] == "UP", f"the link of {rail}")

    def take_out(self, rail: str) -> None:
        """Remove the device."""
        command("ip", "-n", self.namespace, "link", "del", rail)

    def pull(self, rail: str) -> None:
        """Pull the cable: the device has no carrier any more."""
        command("ip", "-n", self._switch(rail), "link", "set", self._port, "down")

    def plug(self, rail: str) -> None:
        command("ip", "-n", self._switch(rail), "link", "set", self._port, "up")

    def set_down(self, rail: str) -> None:
        command("ip", "-n", self.namespace, "link", "set", rail, "down")

    def set_up(self, rail: str) -> None:
        command("ip", "-n", self.namespace, "link", "set", rail, "up")

    def deafen(self, rail: str, sender: RailHost | None = None) -> None:
        """Drop every IP packet that arrives on this rail, or those of one host; this host still sends there, and its link is up."""
        packets = f'iifname "{rail}"' + (f" ip saddr {sender.address_on(rail)}" if sender is not None else "")
        rules = f"""table ip deaf_{rail} {{
            chain arriving {{
                type filter hook prerouting priority -300; policy accept;
                {packets} drop
            }}
        }}
        """
        command("ip", "netns", "exec", self.namespace, "nft", "-f", "-", text=rules)

    def hear(self, rail: str) -> None:
        self.run("nft", "delete", "table", "ip", f"deaf_{rail}")

    def slow(self, rail: str, rate: str) -> None:
        command("tc", "-n", self.namespace, "qdisc", "replace", "dev", rail, "root", "tbf", "rate", rate, "burst", "4kb", "limit", "1mb")

    def hasten(self, rail: str) -> None:
        command("tc", "-n", self.namespace, "qdisc", "del", "dev", rail, "root")

    def pids(self) -> list[int]:
        return [int(pid) for pid in command("ip", "netns", "pids", self.namespace).split()]

    def remove(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                send(pid, signal.SIGKILL)
        command("ip", "netns", "del", self.namespace)

    def _switch(self, rail: str) -> str:
        return self._switches[self.rails.index(rail)]


class Agent:
    """The rail agent of a host, and what it prints."""

    def __init__(self, host: RailHost, config: Path, token: Path, mark: Mark) -> None:
        self.host = host
        self.state = host.folder / "rails.json"
        self.metrics = host.folder / "rails.prom"
        self._output = host.folder / "agent.txt"
        words = ["rails", "--config", config, "--token-file", token, "--state", self.state, "--metrics", self.metrics, "--json"]
        self.process = host.start([*CLI, *map(str, words)], host.folder, mark.environment(), self._output)

    def events(self, name: str = "", **fields: object) -> list[dict[str, Any]]:
        """The events so far, those with this name and these fields."""
        assert self.process.poll() is None, self._output.read_text()
        lines = self._output.read_text().splitlines(keepends=True) if self._output.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [one for one in found if name in ("", one["event"]) and fields.items() <= one.items()]

    def wait_for(self, name: str, count: int = 1, limit: float = LIMIT, **fields: object) -> dict[str, Any]:
        """Wait for the event, as often as `count` since the begin, and return the last one."""
        wait_until(lambda: len(self.events(name, **fields)) >= count, f"{count} times {name} {fields} in {self._output}", limit)
        return self.events(name, **fields)[-1]

    def ends(self) -> str:
        """End it in order, and return all that it has printed."""
        (pid,) = (pid for pid in self.host.pids() if str(self.state).encode() in Path(f"/proc/{pid}/cmdline").read_bytes())
        send(pid, signal.SIGTERM)
        assert self.process.wait(LIMIT) == 0, self._output.read_text()
        return self._output.read_text()


class RailNetwork:
    """Hosts, their configuration and token, and agents that are started on request."""

    def __init__(self, folder: Path, hosts: int, rails: int, mark: Mark, probes: dict[str, float] | None = None) -> None:
        self.folder = folder
        self._mark = mark
        tag = f"us{os.getpid():x}r{next(_numbers)}"
        self._switches = [f"{tag}s{number}" for number in range(rails)]
        self.hosts: list[RailHost] = []
        self.agents: list[Agent] = []
        self.config, self.token = folder / "rails.toml", folder / "token"
        self.token.write_text("a secret of this test\n")
        for switch in self._switches:
            command("ip", "netns", "add", switch)
            command("ip", "-n", switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0", "stp_state", "0")
            command("ip", "-n", switch, "link", "set", "br0", "up")
        for number in range(hosts):
            self.hosts.append(RailHost(tag, number, self._switches, folder))
        lines = ["[probes]", *(f"{name} = {value}" for name, value in (PROBES | (probes or {})).items())]
        for host in self.hosts:
            addresses = ", ".join(f'"{host.address_on(rail)}"' for rail in host.rails)
            lines += ["[[host]]", f'name = "{host.name}"', f'address = "{host.address}"', f"rails = [{addresses}]"]
        self.config.write_text("\n".join(lines) + "\n")

    def apply(self) -> None:
        for host in self.hosts:
            host.run(*CLI, "apply", "--config", str(self.config), "--record", str(host.record))

    def watch(self) -> list[Agent]:
        """Start an agent on every host, and wait until each has an answer of every peer on every rail."""
        self.agents = [Agent(host, self.config, self.token, self._mark) for host in self.hosts]
        for agent in self.agents:
            agent.wait_for("Began")
        for agent in self.agents:
            wait_until(lambda agent=agent: self._all_answer(agent), f"answers to {agent.host.name}")  # type: ignore[misc]
        return self.agents

    def _all_answer(self, agent: Agent) -> bool:
        paths = json.loads(agent.state.read_text())["paths"] if agent.state.exists() else []
        return bool(paths) and all(path["up"] and path["rtt"] is not None for path in paths)

    def remove(self) -> None:
        for host in self.hosts:
            host.remove()
        for switch in self._switches:
            command("ip", "netns", "del", switch)


MakeRails = Callable[..., RailNetwork]


@contextlib.contextmanager
def rails(folder: Path, mark: Mark) -> Iterator[MakeRails]:
    """Yield what makes a network of hosts; all is gone afterwards."""
    made: list[RailNetwork] = []

    def make(hosts: int = 2, rails: int = 2, **probes: float) -> RailNetwork:
        made.append(RailNetwork(folder, hosts, rails, mark, probes))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.remove()
