"""`understudy drain` and `undrain`: empty nodes under their running jobs, to patch them or switch them off, and use them again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from understudy.cli.client import Denied, NoAnswer, Patience, Server, of_job
from understudy.cli.exit_codes import FAILED, LATE, REFUSED
from understudy.cli.job_commands import from_journal
from understudy.cli.run_directory import RunDirectory
from understudy.cli.target import Certificate, JobName, OrchestratorUrl, RunDir, TokenFile, service, target
from understudy.common.console import say
from understudy.links.messages import ONLY
from understudy.messages import asking
from understudy.policy.rules import LONGEST, seconds

LOOK = 0.5  # seconds between two polls

Names = Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Nodes, as understudy status or nodes names them.")]
Domain = Annotated[str, typer.Option("--domain", "--failure-domain", help="All nodes of this failure domain, such as a rack.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class Then(StrEnum):
    KEEP = "keep"
    LOSE = "lose"


def drain(
    nodes: Names = None,
    domain: Domain = "",
    deadline: Annotated[
        str, typer.Option("--deadline", help="Time from now within which the nodes must be empty: 90s, 10m, 2h. Default: none.")
    ] = "",
    then: Annotated[
        Then,
        typer.Option(
            "--then", help="Action for ranks that are still there at the deadline: they stay, or are given up and recovered elsewhere."
        ),
    ] = Then.KEEP,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown in status, events and report.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no job has ranks, spares or processes there.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Drain even if some ranks have no worker to move to.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how many spares and pauses the drain needs, and change nothing.")
    ] = False,
    as_json: AsJson = False,
    run_dir: RunDir = None,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Empty nodes while their jobs run: their ranks move to spares on other nodes at a step boundary, without losing a step.

    Ranks that have a warm spare move together, in one pause. The others move when there are more spares. Spares on these nodes are
    then ended, and no new ones start there until [bold]understudy undrain[/bold]. With --orchestrator this applies to all current and
    future jobs of the service; with --job, to one of them.

    [bold]understudy drain node3 --deadline 10m --then lose --reason "new kernel" --wait && ssh node3 reboot[/bold]

    [bold]understudy drain --domain rack3 --dry-run[/bold]
    """
    limit = _duration(deadline)
    place = _place(nodes, domain, run_dir, orchestrator, job, token_file, tls_cert)
    wish = {"reason": reason, "deadline": limit, "then": then.value, "force": force, "also": place.nodes[1:], "dry_run": dry_run}
    found = place.ask("drain", wish)
    if dry_run:
        _show_plans(place, found["plans"], as_json=as_json)
        return
    jobs = place.jobs(found)
    about = {"node": place.nodes[0], "nodes": place.nodes, "jobs": jobs}
    if not wait:
        if as_json:
            print(json.dumps({**about, "stage": "draining"}))
        else:
            say(asking.DRAIN_BEGINS(node=place.shown, jobs=_of(jobs)))
        return
    try:
        last = _watch(place, quiet=as_json)
    except KeyboardInterrupt:
        say(asking.DRAIN_CONTINUES(node=place.shown))
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({**about, "stage": last.stage, "ranks": last.ranks, "waits_for": last.waits_for}))
    elif last.stage == "late":
        say(asking.DRAIN_LATE(node=place.shown, ranks=_ranks(last)))
    else:
        say(asking.DRAINED(node=place.shown))
    if last.stage == "late":
        raise typer.Exit(LATE)


def _show_plans(place: _Place, plans: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"nodes": place.nodes, "plans": plans}))
    elif not plans:
        say(asking.NO_JOB_THERE(node=place.shown))
    for plan in plans if not as_json else ():
        job = "this one" if plan["job"] == ONLY else plan["job"]
        if plan["refused"]:
            say(asking.DRAIN_PLAN_REFUSED(job=job, reason=plan["refused"]))
            continue
        waiting = f", and up to {plan['waiting']} more for ranks that wait for a spare" if plan["waiting"] else ""
        ranks = f"rank{'' if len(plan['ranks']) == 1 else 's'} {', '.join(map(str, plan['ranks']))}" if plan["ranks"] else "no rank"
        say(asking.DRAIN_PLAN(job=job, ranks=ranks, warm=plan["warm"], coming=plan["coming"], pauses=plan["pauses"], waiting=waiting))
    if any(plan["refused"] for plan in plans):
        raise typer.Exit(REFUSED)


def undrain(
    nodes: Names = None,
    domain: Domain = "",
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Trust the nodes at once, without understudy check-node, regardless of the jobs' policies.")
    ] = False,
    as_json: AsJson = False,
    run_dir: RunDir = None,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Use drained nodes again: spares start there. If the policy sets return_home, ranks that have left return."""
    place = _place(nodes, domain, run_dir, orchestrator, job, token_file, tls_cert)
    jobs: dict[str, None] = {}
    for node in place.nodes:
        one = replace(place, nodes=(node,))
        jobs |= dict.fromkeys(one.jobs(one.ask("undrain", {"check": not no_check})))
    if as_json:
        print(json.dumps({"node": place.nodes[0], "nodes": place.nodes, "jobs": list(jobs)}))
    else:
        say(asking.UNDRAINED(node=place.shown, jobs=_of(list(jobs))))


@dataclass
class _Left:
    """What is left on the nodes, over all jobs that were queried."""

    stage: str = ""
    ranks: dict[str, list[int]] = field(default_factory=dict)  # by job
    workers: int = 0  # processes
    waits_for: str = ""


@dataclass(frozen=True)
class _Place:
    """Nodes, and the orchestrator to ask about them."""

    nodes: tuple[str, ...]
    server: Server
    job: str  # "": all of them
    run: RunDirectory | None = None

    @property
    def shown(self) -> str:
        """Return the options that name these nodes, as the command takes them."""
        return " ".join(self.nodes)

    def ask(self, what: str, wish: dict[str, Any]) -> dict[str, Any]:
        """Send a request. Ends the command if it is refused."""
        path = of_job(self.job, what) if self.job else f"/v1/nodes/{quote(self.nodes[0], safe='')}/{what}"
        with self._answered():
            found: dict[str, Any] = self.server.call("POST", path, wish | ({"node": self.nodes[0]} if self.job else {}), limit=30.0)
        return found

    def jobs(self, found: dict[str, Any]) -> list[str]:
        return [self.job] if self.job else list(found["jobs"])

    def of_domain(self, domain: str) -> list[str]:
        """Return the nodes of a domain. Ends the command if there are none."""
        with self._answered():
            if self.job:
                lines = self.server.call("GET", of_job(self.job, "topology"))["nodes"]
                domains = {line["node"]: line["failure_domain"] for line in lines if not line["lost"]}
            else:
                domains = {line["node"]: line["domain"] or line["node"] for line in self.server.call("GET", "/v1/nodes")}
        found = [node for node, its in domains.items() if its == domain]
        if not found:
            say(asking.NO_SUCH_DOMAIN(domain=domain, known=", ".join(sorted(set(domains.values()))) or "none"))
            raise typer.Exit(2)
        return found

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except NoAnswer as error:
            say(str(error))
            raise typer.Exit(FAILED) from error
        except Denied as error:
            say(asking.ABOUT_NODE(node=self.shown, reason=str(error)))
            raise typer.Exit(REFUSED) from error

    def look(self) -> _Left:
        """Return the work that is left on the nodes. Raises `NoAnswer` or `Denied`."""
        stages = dict.fromkeys(self.nodes, "")
        if not self.job:
            lines = {line["node"]: line["drain"] for line in self.server.call("GET", "/v1/nodes")}
            stages = {node: lines.get(node, "drained") for node in self.nodes}
        left = _Left()
        for job in [self.job] if self.job else self._jobs():
            try:
                status = self.server.call("GET", of_job(job, "status"))
            except NoAnswer as error:
                if self.run is None or (status := from_journal(self.run, "status", error))["exit_code"] is None:
                    raise
            for mine in [one for one in status["drains"] if one["node"] in self.nodes]:
                left.workers += len(mine["workers"])
                left.waits_for = left.waits_for or mine["waits_for"]
                if mine["ranks"]:
                    left.ranks[status["job"]] = sorted([*left.ranks.get(status["job"], []), *mine["ranks"]])
                if self.job:
                    stages[mine["node"]] = mine["stage"]
        left.stage = next((stage for stage in ("draining", "late") if stage in stages.values()), min(stages.values()))
        return left

    def _jobs(self) -> list[str]:
        return [
            line["job"] for line in self.server.call("GET", "/v1/jobs") if line["state"] not in ("finished", "failed", "waiting", "aside")
        ]


def _place(
    nodes: list[str] | None, domain: str, run_dir: Path | None, url: str, job: str, token_file: Path | None, certificate: Path | None
) -> _Place:
    """Return the nodes that the options name. Ends the command if there is none, or no orchestrator to ask."""
    if not nodes and not domain:
        say(asking.DRAIN_WHAT())
        raise typer.Exit(2)
    named = tuple(dict.fromkeys(nodes or ()))
    if run_dir is None and url and not job:
        place = _Place(named, service(url, token_file, certificate), "")
    else:
        about = target(run_dir, url, job, token_file, certificate)
        if about.server is None:
            say(asking.NOT_RUNNING(path=about.run.path if about.run else "", reason=asking.ADDRESS_UNKNOWN()))
            raise typer.Exit(FAILED)
        place = _Place(named, about.server, about.job, about.run)
    return replace(place, nodes=tuple(dict.fromkeys([*named, *place.of_domain(domain)]))) if domain else place


def _watch(place: _Place, *, quiet: bool) -> _Left:
    """Follow the drain until the nodes are empty or the deadline has passed."""
    bar = Progress(
        TextColumn("draining {task.fields[node]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("ranks moved"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[waits]}"),
        console=Console(stderr=True),
        disable=quiet or not sys.stderr.isatty(),
        transient=True,
    )
    most, printed = 0, ""
    with bar:
        task = bar.add_task("", total=None, node=place.shown, waits="")
        for left in _looks(place):
            there = sum(map(len, left.ranks.values()))
            most = max(most, there)
            bar.update(task, total=most, completed=most - there, waits=left.waits_for)
            if left.stage != "draining":
                return left
            here, waits = f"{_ranks(left)} there still" if there else "processes end", f": {left.waits_for}" if left.waits_for else ""
            line = asking.DRAIN_PROGRESS(node=place.shown, left=here, waits_for=waits)
            if line != printed and bar.disable and not quiet:
                printed = line
                say(line)
    raise AssertionError("it is looked at until then")


def _looks(place: _Place) -> Iterator[_Left]:
    patience = Patience()
    while True:
        try:
            yield place.look()
            patience.answered()
        except NoAnswer as error:
            if patience.over():
                say(asking.ABOUT_NODE(node=place.shown, reason=str(error)))
                raise typer.Exit(FAILED) from error
        except Denied as error:
            say(asking.ABOUT_NODE(node=place.shown, reason=str(error)))
            raise typer.Exit(REFUSED) from error
        time.sleep(LOOK)


def _ranks(left: _Left) -> str:
    several = len(left.ranks) > 1
    named = [f"{f'{job} ' if several else ''}{', '.join(map(str, ranks))}" for job, ranks in left.ranks.items()]
    one = sum(map(len, left.ranks.values())) == 1
    return f"rank{'' if one else 's'} {'; '.join(named)} {'is' if one else 'are'}"


def _of(jobs: list[str]) -> str:
    """Name `jobs` as an orchestrator does; the job of a run directory has no name there."""
    return "this one" if jobs == [ONLY] else ", ".join(jobs) or "none"


def _duration(text: str) -> float | None:
    """Return a duration in seconds. Ends the command if the text is not a duration."""
    if not text:
        return None
    try:
        found = seconds(text)
    except ValueError as error:
        say(asking.DEADLINE_FORM(value=text, reason=str(error)))
        raise typer.Exit(2) from error
    if not isinstance(found, float) or not 0 < found <= LONGEST:
        say(asking.DEADLINE_RANGE(value=text))
        raise typer.Exit(2)
    return found
