"""`understudy drill`: prove, before any failure, that a spare computes what a rank would."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from understudy.cli.client import Denied, NoAnswer, of_job
from understudy.cli.exit_codes import DONE, NO_VERDICT, NOT_REPRODUCIBLE, NOT_SURVIVABLE
from understudy.cli.job_commands import AsJson
from understudy.cli.show import drill_line
from understudy.cli.target import Certificate, JobName, OrchestratorUrl, RunDir, Target, TokenFile, target
from understudy.common.console import say
from understudy.messages import asking

LOOK = 0.5  # seconds between two polls
EXIT = {"same": DONE, "partly": DONE, "different": NOT_SURVIVABLE, "not reproducible": NOT_REPRODUCIBLE, "broken": NO_VERDICT}


def drill(
    rank: Annotated[int, typer.Option("--rank", min=-1, help="The rank. Default: the least recently drilled one.")] = -1,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the verdict, show it, and exit with its code.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Reason, recorded in the journal.")] = "",
    as_json: AsJson = False,
    run_dir: RunDir = None,
    orchestrator: OrchestratorUrl = "",
    job: JobName = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Check that a spare computes the same bits as a rank, while the job trains.

    A warm spare computes the rank's next step in parallel, twice, and everything is compared: the inputs of each collective, gradients,
    buffers, random streams, and all state after the step. If the spare's results differ, the job would not survive a loss of the rank. The
    verdict then names the first difference. The spare is used up; a new one is started in its place.

    [bold]understudy drill --rank 2 --wait[/bold]
    """
    about = target(run_dir, orchestrator, job, token_file, tls_cert)
    try:
        if about.server is None:
            raise NoAnswer(asking.ADDRESS_UNKNOWN())
        asked = about.server.call("POST", of_job(about.job, "drill"), {"rank": rank, "reason": reason})
        found = _verdict(about, asked["number"], as_json) if wait else None
    except (NoAnswer, Denied) as error:
        say(str(error))
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps(found if found is not None else asked, indent=1))
    elif found is not None:
        say(drill_line(found))
    else:
        say(asking.DRILL_BEGINS(number=asked["number"]))
    if found is not None:
        raise typer.Exit(EXIT.get(found["verdict"], NO_VERDICT))


def _verdict(about: Target, number: int, quiet: bool) -> dict[str, Any]:
    """Wait for a drill's verdict. Raises `NoAnswer` if the job ends before."""
    assert about.server is not None
    with Console(stderr=True, quiet=quiet).status("a spare goes through the script's setup, and computes a step") as shown:
        while True:
            status = about.server.call("GET", of_job(about.job, "status"))
            for found in status["drills"]:
                if found["number"] == number and found["verdict"]:
                    return dict(found)
            if status["exit_code"] is not None:
                raise NoAnswer(asking.JOB_ENDED(reason=status["message"]))
            shown.update(f"drill {number}: step {status['step']}")
            time.sleep(LOOK)
