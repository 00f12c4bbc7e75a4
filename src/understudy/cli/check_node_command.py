"""`understudy check-node`: test whether a node may serve (again), by trying what it must be able to do; also the peer of its network check.

No other command needs numpy, which the checks import; so the module that runs them is imported where it is needed.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from understudy.checks.base import Report, Verdict
from understudy.checks.options import NAMES, Options, address
from understudy.cli.job_commands import AsJson
from understudy.cli.options import takes
from understudy.cli.show import checks_view
from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.detectors.configuration import read
from understudy.messages import tools
from understudy.orchestrator.security import SHORTEST, read_secrets

DEFAULT = Options()
LIST = ", ".join(NAMES)
HOW_MUCH, NETWORK, OTHER_SIDE = "Extent of the checks", "Network", "The other side of the network check"


def _option(panel: str, *names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class Flags:
    """The command line as it was typed, in the order of `--help`."""

    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help=f"Run only this check. Repeatable: {LIST}.")] = None
    skip: Annotated[list[str] | None, typer.Option("--skip", metavar="NAME", help="Skip this check. Repeatable.")] = None
    folder: Annotated[Path, typer.Option("--folder", help="Folder on the disk to test. Default: the current one.")] = Path()
    as_json: AsJson = False
    passes: Annotated[int, _option(HOW_MUCH, "--passes", help="How often each CPU repeats the known computation.")] = DEFAULT.compute_passes
    memory_share: Annotated[float, _option(HOW_MUCH, "--memory-share", help="Share of the free memory to test, up to 0.9.")] = (
        DEFAULT.memory_share
    )
    memory_most: Annotated[int, _option(HOW_MUCH, "--memory-most", help="Test at most this many MiB.")] = DEFAULT.memory_most
    disk_size: Annotated[int, _option(HOW_MUCH, "--disk-size", help="MiB to write and read back.")] = DEFAULT.disk_size
    min_free: Annotated[float, _option(HOW_MUCH, "--min-free", help="GiB that must be free on that disk.")] = DEFAULT.min_free
    device: Annotated[
        list[str] | None, _option(HOW_MUCH, "--device", metavar="GPU", help="Test only this GPU: gpu1, or its UUID. Repeatable.")
    ] = None
    gpu_share: Annotated[float, _option(HOW_MUCH, "--gpu-share", help="Share of each GPU's free memory to test, up to 0.9.")] = (
        DEFAULT.gpu_share
    )
    gpu_repeats: Annotated[int, _option(HOW_MUCH, "--gpu-repeats", help="How often each GPU repeats the same computation.")] = (
        DEFAULT.gpu_repeats
    )
    peer: Annotated[
        list[str] | None,
        _option(NETWORK, "--peer", metavar="HOST:PORT", help="Measure the network to this node, where --serve is running. Repeatable."),
    ] = None
    seconds: Annotated[float, _option(NETWORK, "--seconds", help="Duration for each peer, in each direction.")] = DEFAULT.network_seconds
    min_gbits: Annotated[float, _option(NETWORK, "--min-gbits", help="Gbit/s that each direction must carry.")] = DEFAULT.min_gbits
    token_file: Annotated[
        Path | None,
        _option(NETWORK, "--token-file", help="File with the secret of both sides (or UNDERSTUDY_TOKEN). It is never sent."),
    ] = None
    serve: Annotated[bool, _option(OTHER_SIDE, "--serve", help="Check nothing: act as the peer of other nodes.")] = False
    host: Annotated[str, _option(OTHER_SIDE, "--host", help="Address to listen on. Any but loopback needs a token.")] = "127.0.0.1"
    port: Annotated[int, _option(OTHER_SIDE, "--port", min=0, max=65535, help="Port to listen on; 0: any.")] = 29410
    serve_for: Annotated[float, _option(OTHER_SIDE, "--serve-for", min=0.1, max=604800, help="Seconds after which --serve ends.")] = 3600.0


@takes(Flags)
def check_node(flags: Flags) -> None:
    """Test this node before its first use, or before it is used again after a suspected fault, a drain or a patch.

    detectors: no detector suspects the node. (Detectors read the kernel log and query NVIDIA's library, for example.) compute: every CPU
    computes a known result. memory: written data is read back. disk: there is free space, and written data is read back. gpu: all GPUs
    compute the same result, and written data is read back from their memory. network: data arrives unchanged at the required rate, in both
    directions; only with --peer.

    It takes about 10 seconds, and 4 more for each peer. It uses free resources and cleans up after itself, but slows down a job on the same
    node. It is short: hardware that fails only when it is hot, or once a day, passes.

    [bold]understudy check-node[/bold]

    [bold]understudy check-node --serve --host 10.0.0.5 --token-file secret[/bold]
      On one node; then, on another one, with the same secret:

    [bold]understudy check-node --peer 10.0.0.5:29410 --min-gbits 80 --token-file secret[/bold]

    [bold]understudy check-node --only memory --memory-share 0.8 --memory-most 1000000[/bold]
      Most of the memory, which takes longer.

    [bold]understudy check-node --only gpu --device gpu1[/bold]
      One GPU, while ranks train on the others.
    """
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        secrets = _secrets(flags)
        if flags.serve:
            _serve(flags, secrets)
            raise typer.Exit(0)
        options = _options(flags)
    except (ValueError, OSError) as error:
        say(str(error) if isinstance(error, ValueError) else _unusable(error, flags.host))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    try:
        report = _run(options, secrets[0] if secrets else "")
    except KeyboardInterrupt:
        say(tools.CHECK_CALLED_OFF())
        raise typer.Exit(130) from None
    if flags.as_json:
        print(report.model_dump_json(indent=1))
    else:
        Console().print(checks_view(report))
        say(verdict(report))
    raise typer.Exit(0 if report.passed else 1)


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt  # as after Ctrl-C: no process is left running


def _unusable(error: OSError, host: str) -> str:
    return tools.PLACE_UNUSABLE(place=error.filename or host, reason=error.strerror or str(error))


def verdict(report: Report) -> str:
    failed = [result.check for result in report.results if result.verdict is Verdict.FAILED]
    if failed:
        return tools.NODE_FAILS(checks=", ".join(failed))
    return tools.NODE_PASSES() if report.passed else tools.NODE_UNTRIED()


def _options(flags: Flags) -> Options:
    """Return the checks' options. Raises `ValueError`."""
    named = {"compute_passes": "passes", "peers": "peer", "network_seconds": "seconds", "devices": "device"}
    given = {name: getattr(flags, named.get(name, name)) for name in Options.model_fields}
    return read(
        Options, {**given, **{name: given[name] or () for name in ("only", "skip", "peers", "devices")}, "folder": str(flags.folder)}
    )


def _secrets(flags: Flags) -> list[str]:
    """Return the accepted secrets. Raises `OSError`, and `ValueError` if one is needed or could be guessed."""
    secrets = read_secrets(flags.token_file, os.environ.get(TOKEN_VARIABLE, ""))
    others = [flags.host] if flags.serve else [address(peer)[0] for peer in flags.peer or ()]
    for host in others:
        if _is_loopback(host):
            continue
        if not secrets:
            raise ValueError(tools.HOST_NEEDS_SECRET(host=host))
        if any(len(secret) < SHORTEST for secret in secrets):
            raise ValueError(tools.SECRET_TOO_SHORT(least=SHORTEST))
    return secrets


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: it may be that of any host
        return False


def _serve(flags: Flags, secrets: list[str]) -> None:
    """Serve network checks as a peer. Raises `OSError`."""
    from understudy.checks.serving import AT_ONCE, Serving

    family = socket.AF_INET6 if ":" in flags.host else socket.AF_INET
    with socket.create_server((flags.host, flags.port), family=family) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{host}:{port}"
        say(tools.PEER_LISTENS(address=shown, seconds=flags.serve_for, most=AT_ONCE))
        Serving(listener, secrets, say).run(flags.serve_for)


def _run(options: Options, token: str) -> Report:
    from understudy.checks.runner import run_all

    names = list[str](options.chosen())
    with Console(stderr=True).status("") as shown:
        return run_all(options, token, lambda name: shown.update(f"{name} ({names.index(name) + 1} of {len(names)})"))
