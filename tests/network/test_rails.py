"""Two hosts with two rails: apply and undo restore bit by bit, and TCP connections outlive the loss of a rail with every byte."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes import Mark, marked, send, wait_until
from tests.message_texts import codes, has
from tests.network.rail_hosts import CLI, Agent, MakeRails, RailHost, RailNetwork, needs_rails, rails

from understudy.detectors.base import Severity
from understudy.detectors.rails import Rails
from understudy.messages import network_rails
from understudy.network.packets import SIZE

pytest.importorskip("pyroute2", reason="needs pyroute2 (pip install 'understudy[network]')")
pytestmark = needs_rails
LONG = 120.0  # seconds
STREAM = Path(__file__).with_name("tcp_stream.py")
CONNECTIONS = 6  # the rail of each follows from its ports, so a single one may happen to be on the other rail
SOME = 1 << 20  # bytes


@pytest.fixture
def mark() -> Iterator[Mark]:
    with marked() as mark:
        yield mark


@pytest.fixture
def make(tmp_path: Path, mark: Mark) -> Iterator[MakeRails]:
    with rails(tmp_path, mark) as make:
        yield make


def network(host: RailHost, *words: str) -> subprocess.CompletedProcess[str]:
    """`understudy network` on a host."""
    command = ["ip", "netns", "exec", host.namespace, *CLI, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, env={**os.environ, "COLUMNS": "200"})


class Stream:
    """TCP connections from the first host to the second."""

    def __init__(self, hosts: list[RailHost], folder: Path, mark: Mark) -> None:
        source, sink = hosts
        self._folder = folder / "stream"
        self._folder.mkdir()
        environment = mark.environment()
        words = [sink.address, "7000", str(CONNECTIONS), str(self._folder)]
        self._outputs = [self._folder / "receiver.txt", self._folder / "sender.txt"]
        receiver = sink.start([sys.executable, str(STREAM), "receive", *words], folder, environment, self._outputs[0])
        wait_until((self._folder / "listening").exists, "the receiver", LONG)
        sender = source.start([sys.executable, str(STREAM), "send", *words, source.address], folder, environment, self._outputs[1])
        self._processes = [receiver, sender]

    def goes_on(self) -> None:
        """Wait until every connection has brought some more data."""
        wanted = self._received() + SOME

        def gone_on() -> bool:
            assert all(process.poll() is None for process in self._processes), [path.read_text() for path in self._outputs]
            return self._received() >= wanted

        wait_until(gone_on, f"{wanted} bytes of every connection", LONG)

    def ends(self) -> None:
        """Every byte has arrived."""
        (self._folder / "stop").touch()
        assert [process.wait(LONG) for process in self._processes] == [0, 0], [path.read_text() for path in self._outputs]
        received, sent = (int(path.read_text()) for path in self._outputs)
        assert received == sent > 0

    def _received(self) -> int:
        path = self._folder / "received"
        return int(path.read_text()) if path.exists() else 0


@pytest.fixture
def rail_network(make: MakeRails) -> RailNetwork:
    made = make()
    made.apply()
    made.watch()
    return made


@pytest.fixture
def stream(rail_network: RailNetwork, tmp_path: Path, mark: Mark) -> Iterator[Stream]:
    made = Stream(rail_network.hosts, tmp_path, mark)
    made.goes_on()
    yield made
    made.goes_on()
    made.ends()


def both_rails(network: RailNetwork) -> None:
    """Wait until both hosts use both rails."""
    one, other = network.hosts
    wait_until(lambda: one.hops(other) == other.hops(one) == ["r1", "r2"], "both rails", LONG)


def only(network: RailNetwork, rail: str) -> None:
    one, other = network.hosts
    wait_until(lambda: one.hops(other) == other.hops(one) == [rail], f"only {rail}", LONG)


def test_apply_and_undo_restore_everything(make: MakeRails) -> None:
    made = make()
    host, other = made.hosts
    options = ["--config", str(made.config)]
    record = ["--record", str(host.record)]
    before = host.network()
    planned = network(host, "plan", *options, "--json")
    assert planned.returncode == 0, planned.stderr
    assert [step["there"] for step in json.loads(planned.stdout)["steps"]] == [False] * 8
    assert host.network() == before

    bad = made.folder / "bad.toml"
    bad.write_text(made.config.read_text().replace('"10.2.0.2"', '"10.9.0.2"'))
    failed = network(host, "apply", "--config", str(bad), *record)
    assert failed.returncode == 1 and has(failed.stderr, network_rails.KERNEL_REFUSED), failed.stderr
    assert host.network() == before and not host.record.exists()

    made.apply()
    applied = host.network()
    assert applied != before and host.hops(other) == ["r1", "r2"]
    again = network(host, "apply", *options, *record, "--json")
    assert {step["outcome"] for step in json.loads(again.stdout)["steps"]} == {"there"}
    assert host.network() == applied
    with_listener = [sys.executable, "-c", "import socket; socket.create_connection(('10.72.0.1', 7000), 60).close()"]
    listening = [
        sys.executable,
        "-c",
        "import socket; s = socket.create_server(('10.72.0.1', 7000)); print(flush=True); print(s.accept()[1][0])",
    ]
    server = subprocess.Popen(["ip", "netns", "exec", host.namespace, *listening], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stdout.readline() == "\n"
    other.run(*with_listener)
    assert server.communicate(timeout=LONG)[0] == "10.72.0.2\n", "the host address is the source, too"

    undone = network(host, "undo", *record, "--json")
    assert [step["outcome"] for step in json.loads(undone.stdout)["steps"]] == ["restored"] * 8, undone.stderr
    assert host.network() == before and not host.record.exists()
    assert codes(network(host, "undo", *record).stderr) == [network_rails.NOTHING_APPLIED.code]


@pytest.mark.whole
def test_the_printed_plan_does_the_same(make: MakeRails) -> None:
    """Typed into a shell."""
    made = make()
    host, _ = made.hosts
    shown = network(host, "plan", "--config", str(made.config)).stdout
    host.run("sh", "-euc", _with_own_sysctl(shown))
    assert all(step["there"] for step in json.loads(network(host, "plan", "--config", str(made.config), "--json").stdout)["steps"])


def _with_own_sysctl(commands: str) -> str:
    """The command `sysctl` is not on every machine."""
    function = 'sysctl() { name=${2%%=*}; echo "${2#*=}" > "/proc/sys/$(echo "$name" | tr . /)"; }\n'
    return function + commands


@pytest.mark.whole
@pytest.mark.parametrize("fault", ["pull", "set_down", "deafen"])
def test_connections_outlive_the_loss_of_each_rail_in_turn(rail_network: RailNetwork, stream: Stream, fault: str) -> None:
    """`deafen` drops packets in one direction only: both hosts notice."""
    heal = {"pull": "plug", "set_down": "set_up", "deafen": "hear"}[fault]
    host, other = rail_network.hosts
    watching, opposite = rail_network.agents
    for round_number, (rail, left) in enumerate((("r1", "r2"), ("r2", "r1"), ("r1", "r2"))):
        hit = (host, other)[round_number % 2]
        getattr(hit, fault)(rail)
        only(rail_network, left)
        stream.goes_on()
        getattr(hit, heal)(rail)
        both_rails(rail_network)
        stream.goes_on()
    found = watching.events("NextHopWithdrawn")
    assert [event["rail"] for event in found] == ["r1", "r2", "r1"], found
    assert not watching.events("Stalled") and not watching.events("Refused") and not opposite.events("Refused")
    shown = network(host, "status", "--state", str(watching.state), "--json")
    state = json.loads(shown.stdout)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert [path["withdrawals"] for path in state["paths"]] == [2, 1]
    assert len(state["failovers"]) == 3 and all(one["seconds"] >= 0 for one in state["failovers"])
    assert all(path["rtt"] > 0 for path in state["paths"])
    assert (state["malformed"], state["unauthenticated"], state["unexpected"]) == (0, 0, 0)
    assert "understudy_rail_path_failovers_total" in watching.metrics.read_text()


@pytest.mark.whole
def test_a_slow_rail_is_left(make: MakeRails, tmp_path: Path, mark: Mark) -> None:
    """Its queue is full of the stream's data, so probes are late. Held down, because it is quick again as soon as it is not used."""
    made = make(patience=0.3, hold=600, hold_most=600)
    made.apply()
    agent, _ = made.watch()
    stream = Stream(made.hosts, tmp_path, mark)
    stream.goes_on()
    made.hosts[0].slow("r1", "256kbit")
    agent.wait_for("NextHopWithdrawn", rail="r1", cause="probes", limit=LONG)
    stream.goes_on()
    stream.ends()


@pytest.mark.whole
def test_a_rail_that_flaps_is_held_down_longer(rail_network: RailNetwork, stream: Stream) -> None:
    host, _ = rail_network.hosts
    agent, _ = rail_network.agents
    for count in range(1, 6):
        host.pull("r2")
        agent.wait_for("NextHopWithdrawn", count, rail="r2", limit=LONG)
        host.plug("r2")
        agent.wait_for("Restored", count, rail="r2", limit=LONG)
    assert [event["hold"] for event in agent.events("NextHopWithdrawn")] == [0.5, 1.0, 2.0, 4.0, 4.0]
    for event in agent.events("Restored"):
        assert event["early"] is False
    for withdrawn, restored in zip(agent.events("NextHopWithdrawn"), agent.events("Restored"), strict=True):
        assert restored["seconds"] >= withdrawn["hold"]


@pytest.mark.whole
def test_a_rail_that_stays_down_is_reported(rail_network: RailNetwork, stream: Stream) -> None:
    host, other = rail_network.hosts
    agent, _ = rail_network.agents
    other.pull("r2")
    event = agent.wait_for("StaysDown", rail="r2", limit=LONG)
    assert (event["peer"], event["cause"]) == ("host1", "probes") and event["seconds"] >= 1.0
    shown = network(host, "status", "--state", str(agent.state))
    assert shown.returncode == 1 and "withdrawn (probes" in shown.stdout, shown.stdout + shown.stderr
    other.plug("r2")


@pytest.mark.whole
def test_a_peer_that_is_stopped_has_stalled_and_loses_no_rail(rail_network: RailNetwork) -> None:
    agent, stopped = rail_network.agents
    host, other = rail_network.hosts
    (pid,) = (pid for pid in other.pids() if b"python" in Path(f"/proc/{pid}/cmdline").read_bytes())
    send(pid, signal.SIGSTOP)
    agent.wait_for("Stalled", peer="host1", limit=LONG)
    assert host.hops(other) == ["r1", "r2"]
    assert network(host, "status", "--state", str(agent.state)).returncode == 1
    send(pid, signal.SIGCONT)
    agent.wait_for("AnswersAgain", peer="host1", limit=LONG)
    wait_until(lambda: network(host, "status", "--state", str(agent.state)).returncode == 0, "both are well", LONG)
    assert not agent.events("NextHopWithdrawn") and not stopped.events("NextHopWithdrawn")


@pytest.mark.whole
def test_a_device_that_was_removed_and_is_back(rail_network: RailNetwork, stream: Stream) -> None:
    """The new device has the same name, and is another one to the kernel."""
    host, _ = rail_network.hosts
    agent, _ = rail_network.agents
    host.take_out("r1")
    only(rail_network, "r2")
    stream.goes_on()
    host.insert("r1")
    both_rails(rail_network)
    assert agent.events("LinkChanged", rail="r1", works=False)


@pytest.mark.whole
def test_an_agent_that_is_started_again_continues(rail_network: RailNetwork, mark: Mark) -> None:
    """A next hop that the one before had withdrawn is restored when it answers, and not before."""
    host, other = rail_network.hosts
    agent, _ = rail_network.agents
    other.deafen("r1")
    only(rail_network, "r2")
    printed = agent.ends()
    assert network_rails.ENDED.code in codes(printed)
    assert codes(network(host, "status", "--state", str(agent.state)).stderr) == [network_rails.STALE.code]
    assert host.hops(other) == ["r2"]
    (host.folder / "agent.txt").unlink()
    again = Agent(host, rail_network.config, rail_network.token, mark)
    rail_network.agents[0] = again
    again.wait_for("Began")
    wait_until(lambda: _path(again, "r1")["lost"] > 5, "lost probes", LONG)
    assert host.hops(other) == ["r2"]
    other.hear("r1")
    again.wait_for("Restored", rail="r1", limit=LONG)
    both_rails(rail_network)


@pytest.mark.whole
def test_what_others_change_is_put_right_until_undo(rail_network: RailNetwork) -> None:
    host, other = rail_network.hosts
    agent, _ = rail_network.agents
    host.run("ip", "route", "del", f"{other.address}/32")
    wait_until(lambda: _has_route(host, other), "the route", LONG)
    assert host.hops(other) == ["r1", "r2"]
    host.run(*CLI, "undo", "--record", str(host.record))
    agent.wait_for("Refused", code=network_rails.NOT_APPLIED.code, limit=LONG)
    assert not _has_route(host, other)
    second = network(host, "rails", "--config", str(rail_network.config), "--token-file", str(rail_network.token))
    assert second.returncode == 2 and codes(second.stderr) in (
        [network_rails.NOT_APPLIED.code],
        [network_rails.PORT_UNUSABLE.code],
    )


@pytest.mark.whole
def test_packets_of_others_are_ignored_and_counted(rail_network: RailNetwork) -> None:
    _, other = rail_network.hosts
    agent, _ = rail_network.agents
    script = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for data in (b"", b"x" * 10, b"USR1" + bytes({SIZE - 4}), b"USR1\\x01" + bytes({SIZE - 5})):
        sender.sendto(data, ("10.1.0.1", 29480))
"""
    other.run(sys.executable, "-c", script)
    wait_until(lambda: _counts(agent) == (3, 1), "the counts", LONG)
    assert not agent.events("NextHopWithdrawn")


@pytest.mark.whole
def test_a_host_with_another_token_is_not_believed(make: MakeRails, mark: Mark) -> None:
    """It has no answer on any rail, so it withdraws nothing; neither does the other one."""
    made = make()
    made.apply()
    wrong = made.folder / "wrong"
    wrong.write_text("another secret of this test")
    agents = [Agent(made.hosts[0], made.config, made.token, mark), Agent(made.hosts[1], made.config, wrong, mark)]
    for agent in agents:
        agent.wait_for("Stalled", limit=LONG)
        wait_until(lambda agent=agent: _counts(agent)[1] > 0, "packets without the token", LONG)  # type: ignore[misc]
        assert not agent.events("NextHopWithdrawn")
        assert "secret" not in agent.ends() and "secret" not in agent.state.read_text()


@pytest.mark.whole
def test_it_listens_on_the_rails_only(rail_network: RailNetwork) -> None:
    host, _ = rail_network.hosts
    lines = [
        line.split() for line in host.run("cat", "/proc/net/udp", "/proc/net/udp6").splitlines() if ":" in line and "local" not in line
    ]
    assert sorted(socket.inet_ntoa(bytes.fromhex(words[1].partition(":")[0])[::-1]) for words in lines) == ["10.1.0.1", "10.2.0.1"]
    assert len(host.run("cat", "/proc/net/tcp").splitlines()) == 1


@pytest.mark.whole
def test_three_hosts_know_which_of_them_has_failed(make: MakeRails) -> None:
    """A cable between two of them is blamed on neither; a host that a rail does not reach is suspect, and no other."""
    made = make(hosts=3)
    made.apply()
    agents = made.watch()
    first, second, _ = made.hosts
    first.deafen("r1", second)
    for agent, peer in zip(agents, ("host1", "host0"), strict=False):
        agent.wait_for("NextHopWithdrawn", rail="r1", peer=peer, limit=LONG)
    assert [_suspects(agent) for agent in agents] == [[], [], []]
    first.hear("r1")
    agents[0].wait_for("Restored", rail="r1", peer="host1", limit=LONG)
    first.pull("r1")
    for agent, peer in zip(agents[1:], ("host0", "host0"), strict=True):
        agent.wait_for("NextHopWithdrawn", rail="r1", peer=peer, limit=LONG)
    wait_until(lambda: _suspects(agents[0]) == ["r1"], "the first host is suspect", LONG)
    assert [_suspects(agent) for agent in agents[1:]] == [[], []]
    made.hosts[1].pull("r1")  # now the third one reaches no host either
    wait_until(lambda: [_suspects(agent) for agent in agents] == [[], [], []], "no host is suspect", LONG)


def _suspects(agent: Agent) -> list[str]:
    return [found.part for found in Rails(agent.state, after=0.0).look() if found.severity is Severity.SUSPECT]


def _has_route(host: RailHost, other: RailHost) -> bool:
    return bool(json.loads(host.run("ip", "-json", "route", "show", f"{other.address}/32")))


def _path(agent: Agent, rail: str) -> dict[str, int]:
    found: dict[str, int] = next(path for path in json.loads(agent.state.read_text())["paths"] if path["device"] == rail)
    return found


def _counts(agent: Agent) -> tuple[int, int]:
    state = json.loads(agent.state.read_text())
    return state["malformed"], state["unauthenticated"]
