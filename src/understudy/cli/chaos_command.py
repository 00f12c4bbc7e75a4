"""`understudy chaos`: inject the faults of a plan into a running job, and report their outcomes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from understudy.chaos import plan as plans
from understudy.chaos.base import Fault
from understudy.chaos.job import Away, WatchedJob
from understudy.chaos.plan import BadPlan
from understudy.chaos.points import POINTS
from understudy.chaos.registry import Registry, registry
from understudy.chaos.run import Record, Result, Runner
from understudy.chaos.schedule import Injection
from understudy.chaos.schedule import schedule as scheduled
from understudy.cli.client import Denied, NoAnswer, of_job
from understudy.cli.events_command import frames
from understudy.cli.job_commands import answer, from_journal
from understudy.cli.target import Certificate, JobName, OrchestratorUrl, RunDir, Target, TokenFile, target
from understudy.common.console import say
from understudy.messages import asking, tools


def chaos(
    plan: Annotated[
        Path | None, typer.Argument(metavar="PLAN.toml", help="Plan: which faults, where and when.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the random choices in the plan. Default: the plan's own.")] = None,
    show_faults: Annotated[bool, typer.Option("--list", help="List all faults and points.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the schedule for this job, and inject no fault.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    run_dir: RunDir = None,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    r"""Inject faults into a running job according to a plan, and compare the outcomes with the expected ones.

    [bold]understudy run --chaos --nproc-per-node 4 --spares 2 train.py[/bold]
      In one terminal. Faults inside workers need --chaos: segfault, a blocked lock, a clock that jumps, and any fault at a named
      point of a step, such as its vote. Signals and network faults do not need it.

    [bold]understudy chaos plan.toml --seed 7[/bold]
      In another terminal, on the machine of the job's workers. A plan is a TOML file such as:

          \[\[fault]]
          fault = "sigkill"         # understudy chaos --list shows all
          rank = 2                  # or "random"
          at_step = 20              # or after = 5.0 (seconds)

          [[fault]]
          fault = {segfault = 2, sigkill = 1}   # one of them each time, by weight
          rank = "random"
          after = 10
          every = 10
          count = 5
          point = \["vote", "apply"]

          \[\[fault]]
          fault = "orchestrator_kill"    # not in a worker: rank 1 waits at the point meanwhile
          point = "vote"
          at_rank = 1

    Between two faults the job recovers completely: all ranks train, and a spare is warm. The same plan and seed give the same schedule
    (--dry-run).
    """
    try:
        known = registry()
    except ValueError as error:
        _wrong(str(error))
    if show_faults:
        _print_faults(known, as_json)
        return
    if plan is None:
        _wrong(tools.PLAN_NEEDED())
    try:
        read = plans.read(plan, known)
    except BadPlan as error:
        _wrong(str(error))
    except OSError as error:
        _wrong(tools.PLAN_UNREADABLE(path=plan, reason=error.strerror))
    about = target(run_dir, orchestrator, job, token_file, tls_cert)
    try:
        status = answer("status", about)
        schedule = _schedule(read, known, status, about, seed)
        if dry_run:
            _print_schedule(schedule, as_json)
            return
        raise typer.Exit(_carry_out(schedule, known, about, as_json))
    except (NoAnswer, Denied, Away) as error:
        say(str(error))
        raise typer.Exit(1) from error


def _wrong(text: str) -> NoReturn:
    say(text)
    raise typer.Exit(2)


def _schedule(read: plans.Plan, known: Registry, status: dict[str, Any], about: Target, seed: int | None) -> list[Injection]:
    nodes = sorted({holder["node"] for holder in (*status["ranks"], *status["spares"])})
    ranks = len(status["ranks"]) or (about.run.job()["spec"]["world_size"] if about.run is not None else 0)
    if not ranks:
        say(tools.RANKS_UNKNOWN())
        raise typer.Exit(1)
    try:
        return scheduled(read, known, ranks, nodes, seed)
    except BadPlan as error:
        _wrong(str(error))


class Asked:
    """Ask a job's orchestrator, as a source for `understudy.chaos`."""

    def __init__(self, about: Target) -> None:
        self._about = about

    def status(self) -> dict[str, Any]:
        return self._call("status")

    def report(self) -> dict[str, Any]:
        return self._call("report")

    def _call(self, what: str) -> dict[str, Any]:
        try:
            if self._about.server is None:
                raise Away(asking.ADDRESS_UNKNOWN())
            found: dict[str, Any] = self._about.server.call("GET", of_job(self._about.job, what))
            return found
        except (NoAnswer, Denied) as error:
            raise Away(str(error)) from error

    def events(self, after: int) -> Iterator[dict[str, Any]]:
        if self._about.server is None:
            raise Away(asking.ADDRESS_UNKNOWN())
        try:
            yield from frames(self._about.server.stream(of_job(self._about.job, f"events?after={after}&follow=true")))
        except (NoAnswer, Denied) as error:
            raise Away(str(error)) from error

    def last(self) -> dict[str, Any] | None:
        if self._about.run is None:
            return None
        try:
            found: dict[str, Any] = from_journal(self._about.run, "status", Away())
        except NoAnswer:
            return None
        return found if found["exit_code"] is not None else None


def _carry_out(schedule: list[Injection], known: Registry, about: Target, as_json: bool) -> int:
    url = about.server.url if about.server is not None else ""
    watched = WatchedJob(Asked(about), url, about.run.path if about.run is not None else None)
    runner = Runner(watched, schedule, known, lambda record: None if as_json else say(line(record)))

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)  # as after Ctrl-C: faults that are in effect are undone
    try:
        result = runner.run()
    except KeyboardInterrupt:
        _print_result(Result(runner.records, [], ""), as_json)
        return 130
    finally:
        watched.close()
    _print_result(result, as_json)
    return 0 if result.met else 1


def line(record: Record) -> str:
    """Describe a record for people: a fault in progress, or its outcome."""
    injection = record.injection
    who = f" ({record.worker}, pid {record.pid})" if record.worker else f" (pid {record.pid})" if record.pid else ""
    about = {"number": injection.number, "fault": injection.fault}
    target, step = injection.target + who, f"{record.step}" + f", {record.point}" * bool(record.point)
    if not record.happened and not record.outcome:
        return tools.FAULT_WAITS(**about, target=target)
    if not record.outcome and not record.why:
        return tools.FAULT_HAPPENED(**about, target=target, step=step)
    target += f" at step {step}" if record.happened else ""
    incident = f", incident {', '.join(map(str, record.incidents))}" * bool(record.incidents)
    outcome = f"{record.outcome or 'no outcome'}{f' in {record.seconds:.2f} s' if record.seconds is not None else ''}{incident}"
    if record.met:
        return tools.FAULT_OVER(**about, target=target, outcome=outcome)
    return tools.FAULT_UNEXPECTED(**about, target=target, outcome=outcome, why=record.why)


def _print_result(result: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_values(result), indent=1))
        return
    table = _table("", "fault", "target", "step", "point", "outcome", "seconds", "incident", "")
    for record in result.records:
        injection = record.injection
        table.add_row(
            str(injection.number),
            injection.fault,
            injection.target,
            str(record.step) if record.happened else "",
            record.point,
            record.outcome or ("no outcome" if record.why else "under way"),
            f"{record.seconds:.2f}" if record.seconds is not None else "",
            ", ".join(map(str, record.incidents)),
            "" if record.met else "NOT AS EXPECTED",
        )
    Console().print(table)
    met = sum(record.met for record in result.records)
    say(tools.FAULTS_DONE(count=len(result.records), met=met))
    if result.unexplained:
        say(tools.FAULTS_UNEXPLAINED(incidents=", ".join(map(str, result.unexplained))))
    if result.message:
        say(tools.JOB_REPORTS(message=result.message))


def as_values(result: Result) -> dict[str, Any]:
    """Return a result as values for JSON."""
    faults = [{**asdict(record), "met": record.met} for record in result.records]
    return {"met": result.met, "faults": faults, "unexplained": result.unexplained, "message": result.message}


def _print_schedule(schedule: list[Injection], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(one) for one in schedule], indent=1))
        return
    table = _table("", "when", "fault", "target", "point", "expected", "parameters")
    for one in schedule:
        values = ", ".join(f"{name} {value}" for name, value in one.values.items())
        table.add_row(str(one.number), one.when, one.fault, one.target, one.point or "", one.expected, values)
    Console().print(table)


def _print_faults(known: Registry, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"faults": [_described(fault) for fault in known.all()], "points": POINTS}, indent=1))
        return
    for fault in known.all():
        inside = " Inside a worker: needs understudy run --chaos." if fault.outside is None else ""
        alone = f" ({fault.alone}, if the job has one node)" if fault.alone is not None else ""
        refused = f" Not here: {why}." if (why := fault.why_not()) else ""
        print(f"{fault.name:20} {fault.text}{inside} Expected: {fault.expected}{alone}.{refused}")
        for parameter in fault.parameters:
            print(f"{'':20}   {parameter.name} = {parameter.default}{f' {parameter.unit}' * bool(parameter.unit)}: {parameter.text}")
    print("\npoints of a worker whose job was started with --chaos:")
    for name, text in POINTS.items():
        print(f"{name:25} {text}")


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, padding=(0, 2, 0, 0))


def _described(fault: Fault) -> dict[str, Any]:
    return {
        "name": fault.name,
        "text": fault.text,
        "hits": fault.hits,
        "expected": fault.expected,
        "alone": fault.alone,
        "inside": fault.inside is not None,
        "outside": fault.outside is not None,
        "parameters": [asdict(parameter) for parameter in fault.parameters],
        "why_not": fault.why_not(),
    }
