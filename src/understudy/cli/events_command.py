"""`understudy events`: print a job's events, one line each, from its orchestrator or from the journal in its run directory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from understudy.cli.client import Denied, NoAnswer, Patience, of_job
from understudy.cli.errors import errors_printed
from understudy.cli.job_commands import answer, from_journal
from understudy.cli.target import Certificate, JobName, OrchestratorUrl, RunDir, Target, TokenFile, target
from understudy.common.bounds import plain
from understudy.messages import asking

Event = dict[str, Any]
TRY = 0.5  # seconds between two attempts to reach the orchestrator again
WIDTH = 100  # characters of a field in a line
_PLACES = ("worker", "rank", "node", "number", "time", "type")  # where and when it happened: printed first
_OF_RANKS = ("Committed", "WorkerLost", "Quiesced", "NewcomerReady", "Verified")  # whose worker may have got its rank later


def events(
    run_dir: RunDir = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Only events with a greater number.")] = 0,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Show the events of a job: workers that joined or were lost, every step of a recovery, and requests.

    Works while the job runs and after it. One line per event: number, time, type, rank, worker and node as far as they are known, and the
    other fields. With --follow it waits while the orchestrator does not respond.
    """
    about = target(run_dir, orchestrator, job, token_file, tls_cert)
    try:
        with errors_printed():
            _show(about, after, follow, _as_json if as_json else Lines(about))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _show(about: Target, last: int, follow: bool, show: Callable[[Event], str]) -> None:
    """Print the events; with `follow` until the job has ended, even if the orchestrator is away in between. Raises `NoAnswer` or
    `Denied`.
    """
    patience = Patience()
    while True:
        why = NoAnswer(asking.ADDRESS_UNKNOWN())
        try:
            if about.server is None:
                raise why
            query = f"events?after={last}&follow={str(follow).lower()}"
            blocks = about.server.stream(of_job(about.job, query))
            next(blocks)
            patience.answered()
            for event in frames(blocks):
                if "number" not in event:
                    return  # the end of the job
                print(show(event), flush=True)
                last = event["number"]
            if not follow:
                return
        except NoAnswer as error:
            why = error
        if about.run is not None and (about.run.journal_file.exists() or not follow):
            found, ended = from_journal(about.run, "events", why)
            for event in found[last:]:
                print(show(event), flush=True)
            last = max(last, len(found))
            if ended or not follow:
                return
        elif not follow:
            raise why
        if patience.over():
            raise why
        time.sleep(TRY)


def frames(blocks: Iterable[bytes]) -> Iterator[Event]:
    """Yield the data of server-sent events, as `GET /v1/jobs/{job}/events` sends them: each in one line, because the orchestrator's JSON
    has no line breaks.
    """
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def _as_json(event: Event) -> str:
    return json.dumps(event)


class Lines:
    """A line for people of each event: number, time, type, rank, worker and node as far as they are known, and the rest."""

    def __init__(self, about: Target) -> None:
        self._about = about
        self._nodes: dict[str, str] = {}  # nodes of workers, from the events of their start
        self._ranks: dict[str, int] | None = None  # ranks of workers; a worker keeps its rank

    def __call__(self, event: Event) -> str:
        worker = event.get("worker", "")
        if worker and (self._ranks is None or (worker not in self._ranks and event["type"] in _OF_RANKS)):
            self._ranks = _ranks(self._about)
        rank = event.get("rank", (self._ranks or {}).get(worker, -1))
        node = event.get("node") or self._nodes.get(worker, "")
        if worker and node:
            self._nodes[worker] = node
        where = [f"rank {rank}"] * (rank >= 0) + [worker] * bool(worker) + [f"on {node}" if worker else f"node {node}"] * bool(node)
        rest = (
            f"{name.replace('_', ' ')} {_short(value)}" for name, value in event.items() if name not in _PLACES and value not in ("", [])
        )
        at = datetime.fromtimestamp(event["time"]).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        return f"{event['number']:>6}  {at}  {event['type']:<19}  {plain(' '.join(where))}: {', '.join(rest)}".rstrip(": ")


def _ranks(about: Target) -> dict[str, int]:
    """Return the rank of each worker that has one, or had one before it was lost or moved. Empty if it is not known."""
    try:
        status, report = answer("status", about), answer("report", about)
    except (NoAnswer, Denied):
        return {}
    known = {
        part[who]: part["rank"] for incident in report["incidents"] for part in incident["ranks"] for who in ("old_worker", "new_worker")
    }
    return {**known, **{holder["worker"]: holder["rank"] for holder in status["ranks"]}}


def _short(value: object) -> str:
    if isinstance(value, dict):
        value = " ".join(map(_short, value.values()))
    elif isinstance(value, list):
        value = "; ".join(map(_short, value))
    elif isinstance(value, float):
        value = f"{value:.3f}"
    text = plain(" ".join(str(value).split()))
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
