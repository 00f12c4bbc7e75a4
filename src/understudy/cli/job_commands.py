"""`understudy status`, `report`, `migrate`, `resolve`, `taint`, `stop`: queries and requests to a running job, or to its journal.

The orchestrator answers while the job runs. When it does not, status and report come from the journal in the run directory, through
the same functions that the orchestrator uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console, RenderableType

from understudy.cli.client import Denied, NoAnswer, of_job
from understudy.cli.errors import errors_printed
from understudy.cli.run_directory import RunDirectory
from understudy.cli.show import report_view, state_view, status_view
from understudy.cli.show_topology import topology_view
from understudy.cli.target import Certificate, JobName, OrchestratorUrl, RunDir, Target, TokenFile, service, target
from understudy.common.console import say
from understudy.messages import asking

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def status(
    run_dir: RunDir = None,
    as_json: AsJson = False,
    state: Annotated[bool, typer.Option("--state", help="List registered state, and unregistered state that the script changes.")] = False,
    topology: Annotated[
        bool, typer.Option("--topology", help="Show where each group of ranks is in the network, and what a loss would change.")
    ] = False,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Show which worker holds which rank, the spares, and the last step that every rank committed.

    Works while the job runs and after it (then it shows how the job ended).

    [bold]understudy status --state[/bold]
      Registered state, and unregistered state that the script changes: what a newcomer
      receives, what restarts from its initial value on a newcomer, and why.

    [bold]understudy status --topology[/bold]
      The NVLink domains, switches and nodes of each group of ranks, and the spare that would take over each rank if a node,
      or all nodes of an NVLink domain, a failure domain or a switch, were lost now.
    """
    if state and topology:
        say(asking.STATE_AND_TOPOLOGY())
        raise typer.Exit(2)
    what, view = ("topology", topology_view) if topology else ("state", state_view) if state else ("status", status_view)
    _print(what, target(run_dir, orchestrator, job, token_file, tls_cert), as_json, view)


def report(
    run_dir: RunDir = None,
    as_json: AsJson = False,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Show every incident: what was lost or moved, how long each phase took, what was transferred and verified.

    Works while the job runs and after it.
    """
    _print("report", target(run_dir, orchestrator, job, token_file, tls_cert), as_json, report_view)


def migrate(
    rank: Annotated[int, typer.Option("--rank", help="The rank to move.")],
    run_dir: RunDir = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown in the report.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="NODE[:DEVICE]", help="Target node or device. Default: the best spare.")] = "",
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Move a healthy rank to a spare at a step boundary, without losing a step.

    [bold]understudy migrate --rank 2 --reason "fan of GPU 2"[/bold]

    [bold]understudy migrate --rank 2 --to node3:gpu1[/bold]
    """
    node, _, device = to.partition(":")
    wish = {"rank": rank, "reason": reason, "to": node, "device": device}
    _ask("migrate", target(run_dir, orchestrator, job, token_file, tls_cert), wish)
    say(asking.MIGRATES(rank=rank))


def resolve(
    rank: Annotated[
        int, typer.Option("--keep-rank", "--rank", help="The rank whose state is right. If all ranks have the same state: any rank.")
    ],
    run_dir: RunDir = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown in the report.")] = "",
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Continue a job that is paused because state or results differ: name the rank whose state is right.

    Replicas with different state are replaced by spares, which get their state from this rank and those equal to it. If the job is
    paused because a redo differs from the interrupted step, or because an incident is unproven (--unproven pause), all ranks have the same
    state: name any rank. No rank is replaced, and all continue with the state that they have.

    [bold]understudy resolve --keep-rank 2 --reason "its digest is that of the checkpoint"[/bold]
    """
    _ask("believe", target(run_dir, orchestrator, job, token_file, tls_cert), {"rank": rank, "reason": reason})
    say(asking.BELIEVED(rank=rank))


def taint(
    node: Annotated[str, typer.Option("--node", help="The node, as understudy status names it.")],
    run_dir: RunDir = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown in status and report.")] = "requested",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the taint.")] = False,
    device: Annotated[str, typer.Option("--device", help="Only this device of the node: index (gpu1), UUID or PCI address.")] = "",
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Taint a node, or one device of it, so that it gets no new ranks or spares, or remove the taint.

    Ranks that are there stay: understudy migrate moves them. With --orchestrator, the taint applies to all current and
    future jobs of the service; with --job, to one of them.

    [bold]understudy taint --node node3 --device gpu1 --reason "ECC errors"[/bold]
    """
    wish = {"node": node, "device": device, "reason": "" if remove else reason or "asked for"}
    if run_dir is None and orchestrator and not job:
        if device:
            say(asking.DEVICE_OF_WHICH_JOB(device=device))
            raise typer.Exit(2)
        with errors_printed():
            path = f"/v1/nodes/{quote(node, safe='')}/taint"
            service(orchestrator, token_file, tls_cert).call("POST", path, {"reason": wish["reason"]})
    else:
        _ask("taint", target(run_dir, orchestrator, job, token_file, tls_cert), wish)
    what = f"{device} of node {node}" if device else f"node {node}"
    say(asking.TRUSTED(what=what) if remove else asking.TAINTED(what=what))


def stop(
    run_dir: RunDir = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, recorded in the journal.")] = "understudy stop",
    exit_code: Annotated[int, typer.Option("--exit-code", help="Exit code of `understudy run`.")] = 143,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """End a running job on all its nodes."""
    _ask("stop", target(run_dir, orchestrator, job, token_file, tls_cert), {"reason": reason, "exit_code": exit_code})
    say(asking.JOB_STOPS())


def _ask(what: str, about: Target, body: dict[str, Any]) -> None:
    try:
        if about.server is None:
            raise NoAnswer(asking.ADDRESS_UNKNOWN())
        about.server.call("POST", of_job(about.job, what), body)
    except NoAnswer as error:
        say(asking.NOT_RUNNING(path=about.run.path, reason=str(error)) if about.run is not None else str(error))
        raise typer.Exit(1) from error
    except Denied as error:
        say(str(error))
        raise typer.Exit(1) from error


def _print(what: str, about: Target, as_json: bool, view: Callable[[dict[str, Any]], RenderableType]) -> None:
    with errors_printed():
        found = answer(what, about)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        Console().print(view(found))


def answer(what: str, about: Target) -> Any:
    """Return a view (status, state, topology or report) from the orchestrator, else from the journal. Raises `NoAnswer` or `Denied`."""
    try:
        if about.server is None:
            raise NoAnswer(asking.ADDRESS_UNKNOWN())
        return about.server.call("GET", of_job(about.job, what))
    except NoAnswer as error:
        if about.run is None:
            raise
        return from_journal(about.run, what, error)


def from_journal(run: RunDirectory, what: str, why: Exception) -> Any:
    """Return a view, or the events, from the journal. `why`: the error of the orchestrator that did not answer. Raises `NoAnswer`."""
    if not run.journal_file.exists():
        raise NoAnswer(asking.NO_JOURNAL(path=run.path, reason=str(why))) from why
    # Imported here, because they import SQLAlchemy, which the other commands do without.
    from understudy.orchestrator import journal, migrations, state_view, topology_view, views

    answers: dict[str, Callable[[Path], Any]] = {
        "status": views.offline_status,
        "state": state_view.offline_state_table,
        "topology": topology_view.offline_topology_table,
        "report": views.offline_report,
        "events": views.offline_events,
    }
    try:
        return answers[what](run.path)
    except (migrations.NewerJournal, views.NoJournal, journal.Unreadable, journal.Damaged) as error:
        raise NoAnswer(asking.JOURNAL_UNUSABLE(path=run.journal_file, reason=str(error))) from error
