"""`understudy network`: route a host address over several rails, and keep it on those that work."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from understudy.cli.exit_codes import epilog
from understudy.cli.job_commands import AsJson
from understudy.cli.network_build_command import build, env
from understudy.cli.show_rails import rails_view
from understudy.common import rail_state
from understudy.common.console import say
from understudy.messages import network_rails
from understudy.network import changes, events
from understudy.network.agent import RailAgent
from understudy.network.configuration import BadNetwork, Network, of_options, read_file, read_tokens, seen_from_here
from understudy.network.kernel import KernelRefused, Netlink
from understudy.network.packets import Codec
from understudy.network.steps import AnyStep, Outcome, SettingStep

network = typer.Typer(
    name="network",
    help="Keep the connections of a job alive when one of several networks (rails) between its hosts fails.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Config = Annotated[Path | None, typer.Option("--config", help="TOML file with all hosts and their rails, the same on every host.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME=ADDRESS,RAIL,RAIL", help="Instead of --config: a host, and its address on each rail. Repeatable."),
]
This = Annotated[str, typer.Option("--this", help="Name of this host. Default: the one that has rail addresses of this machine.")]
RecordFile = Annotated[Path, typer.Option("--record", help="File for what was there before, which undo restores.")]
StateFile = Annotated[Path, typer.Option("--state", help="File with the state of the rails.")]
OUTCOMES = {
    Outcome.RESTORED: network_rails.STEP_RESTORED,
    Outcome.GONE: network_rails.STEP_GONE,
    Outcome.KEPT: network_rails.STEP_KEPT,
}


network.command(epilog=epilog("network build"))(build)
network.command(epilog=epilog("network env"))(env)


@network.command(epilog=epilog("network plan"))
def plan(config: Config = None, host: Hosts = None, this: This = "", as_json: AsJson = False) -> None:
    """Print what apply would do on this host, as commands. Changes nothing.

    Each host gets a host address, which is on no rail but is routed over all of them. A connection between host addresses
    moves to another rail when its own one fails.

    [bold]understudy network plan --config rails.toml[/bold]

    [bold]understudy network plan --host node0=10.72.0.1,10.1.0.1,10.2.0.1 --host node1=10.72.0.2,10.1.0.2,10.2.0.2[/bold]
      The addresses after the host address are those that the devices of the rails have already.
    """
    with _errors_printed(), closing(Netlink()) as kernel:
        found = _network(kernel, config, host, this)
        steps = changes.pending(found, kernel)
        if as_json:
            rows = [{"command": step.command, "there": there} for step, there in steps]
            print(json.dumps({"host": found.host, "address": found.address, "bridge": found.bridge, "steps": rows}, indent=1))
            return
        print(f"# host {found.host}: {found.address} over {', '.join(rail.device for rail in found.rails)}")
        for step, there in steps:
            now = f"  # now {step.before}" if isinstance(step, SettingStep) else ""
            print(f"# already so: {step.command}" if there else step.command + now)
        print(f"# for programs that choose a device: export GLOO_SOCKET_IFNAME={found.bridge}")


@network.command(epilog=epilog("network apply"))
def apply(config: Config = None, host: Hosts = None, this: This = "", record: RecordFile = changes.RECORD, as_json: AsJson = False) -> None:
    """Do what plan prints. If a step fails, the steps before it are undone.

    It lasts until the machine restarts. It does only what is missing, so it can be run again, also with a changed file.

    [bold]understudy network apply --config rails.toml[/bold]
    """
    with _errors_printed(), closing(Netlink()) as kernel:
        found = _network(kernel, config, host, this)
        made = changes.apply(found, kernel, record)
    if as_json:
        rows = [_row(step, "done") for step in made.done] + [_row(step, "there") for step in made.there]
        rows += [_row(step, str(outcome)) for step, outcome in made.reverted]
        print(json.dumps({"host": found.host, "record": str(record), "steps": rows}, indent=1))
        return
    for step in made.there:
        say(network_rails.STEP_THERE(command=step.command))
    for step in made.done:
        say(network_rails.STEP_DONE(command=step.command))
    for step, outcome in made.reverted:
        say(OUTCOMES[outcome](command=step.command))
    say(network_rails.APPLIED(host=found.host, address=found.address, count=len(found.rails), path=record))


@network.command(epilog=epilog("network undo"))
def undo(record: RecordFile = changes.RECORD, as_json: AsJson = False) -> None:
    """Restore what was there before apply. What another program has changed since stays as it is, and is reported.

    End the rail agent and all jobs that use the host address first.

    [bold]understudy network undo[/bold]
    """
    with _errors_printed(), closing(Netlink()) as kernel:
        undone = changes.undo(kernel, record)
    if as_json:
        rows = [_row(step, str(outcome)) for step, outcome in undone.steps]
        print(json.dumps({"restarted": undone.restarted, "record": str(record), "steps": rows}, indent=1))
        return
    for step, outcome in undone.steps if not undone.restarted else ():
        say(OUTCOMES[outcome](command=step.command))
    say((network_rails.RESTARTED if undone.restarted else network_rails.UNDONE)(path=record))


@network.command(epilog=epilog("network rails"))
def rails(
    token_file: Annotated[
        Path,
        typer.Option("--token-file", help="File with a token that all hosts share, at least 16 characters. Probes are signed with it."),
    ],
    config: Config = None,
    host: Hosts = None,
    this: This = "",
    state: StateFile = rail_state.DEFAULT,
    metrics_file: Annotated[
        Path | None, typer.Option("--metrics", help="File for Prometheus' node exporter (textfile collector), such as rails.prom.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the rail agent: withdraw next hops that do not work, and restore them when they do. Run it on every host, after apply.

    It probes each peer on each rail, and watches the links. It prints every event, with --json one object per line.

    [bold]understudy network rails --config rails.toml --token-file token[/bold]
    """
    with _errors_printed(), closing(Netlink()) as kernel:
        codec = Codec(read_tokens(token_file))
        found = _network(kernel, config, host, this)
        agent = RailAgent(found, kernel, codec, _print_json if as_json else _print, _Publisher(state, metrics_file).publish)
        with closing(agent), _stopped_by_signals() as stop:
            agent.run(stop)


@network.command(epilog=epilog("network status"))
def status(state: StateFile = rail_state.DEFAULT, as_json: AsJson = False) -> None:
    """Show the rails of this host as its rail agent sees them: links, paths to each peer, round-trip times, losses, failovers.

    [bold]understudy network status[/bold]
    """
    now = time.time()
    try:
        found = rail_state.read(state)
    except rail_state.UnreadableState as error:
        say(str(error))
        raise typer.Exit(2) from error
    if as_json:
        print(json.dumps({"stale": found.is_stale(now), **_object(rail_state.as_values(found))}, indent=1))
    else:
        Console().print(rails_view(found, now))
    if found.is_stale(now):
        say(network_rails.STALE(host=found.host, pid=found.pid, seconds=now - found.written))
    if found.is_stale(now) or found.stalled or not all(path.up for path in found.paths):
        raise typer.Exit(1)


class _Publisher:
    """Writes the state; reports each file that cannot be written once, until it can."""

    def __init__(self, state: Path, metrics_file: Path | None) -> None:
        from understudy.network import metrics  # only here, because importing it takes time

        self._writers = {state: rail_state.write} | ({metrics_file: metrics.write} if metrics_file is not None else {})
        self._failed = set[Path]()

    def publish(self, state: rail_state.RailState) -> None:
        for path, write in self._writers.items():
            try:
                write(path, state)
            except OSError as error:
                if path not in self._failed:
                    say(network_rails.STATE_UNWRITTEN(path=path, reason=error.strerror))
                self._failed.add(path)
            else:
                self._failed.discard(path)


def _network(kernel: Netlink, config: Path | None, hosts: list[str] | None, this: str) -> Network:
    if (config is None) is not bool(hosts):
        raise BadNetwork(network_rails.HOSTS_NEEDED())
    configuration = read_file(config) if config is not None else of_options(hosts or [])
    return seen_from_here(configuration, kernel.addresses(), this)


def _row(step: AnyStep, outcome: str) -> dict[str, str]:
    return {"command": step.command, "outcome": outcome}


def _object(value: object) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value


def _print(event: events.Event) -> None:
    say(events.text(event))


def _print_json(event: events.Event) -> None:
    with suppress(OSError):  # a full disk or a closed pipe must not end the agent
        print(json.dumps(events.as_values(event, time.time())), flush=True)


@contextmanager
def _errors_printed() -> Iterator[None]:
    try:
        yield
    except (BadNetwork, KernelRefused) as error:
        for line in str(error).splitlines():
            say(line)
        raise typer.Exit(2 if isinstance(error, BadNetwork) else 1) from error


@contextmanager
def _stopped_by_signals() -> Iterator[int]:
    """Yield a descriptor that becomes readable with SIGTERM, SIGINT or SIGHUP."""
    stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: os.eventfd_write(stop, 1)) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(stop)
