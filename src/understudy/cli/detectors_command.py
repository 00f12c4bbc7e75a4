"""`understudy detectors`: list the detectors of this node, and try them out."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from understudy.cli.job_commands import AsJson
from understudy.common.bounds import plain
from understudy.common.console import say
from understudy.detectors.base import LEFT_OUT, Evidence, Severity, Subject
from understudy.detectors.choice import Choice, choose, read_file
from understudy.messages import tools

MOST = 100  # pieces of evidence that are shown per detector, as many as an agent accepts


def detectors(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="TOML file for detectors. Default: the built-in detectors and those of installed packages.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run each detector once, and show its findings.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the detectors of this node: which are disabled and why, how often they run, and which package they come from.

    [bold]understudy detectors --once detectors.toml[/bold]
      detectors.toml could be this file. A complete example is in docs/operate/detectors-and-policy.md.

      off = \\["nvml"]  # disabled
      \\[\\[command]]  # repeatable
      name = "disk"
      argv = \\["/usr/local/bin/check-disk"]  # exit code 0: healthy, 1: not
      every = 60  # seconds

    Then [bold]understudy run --detectors detectors.toml[/bold], or, for a service, [bold]understudy agent --detectors[/bold].
    """
    try:
        choices = choose(read_file(file) if file is not None else "", str(file), [socket.gethostname()], since=time.time())
    except ValueError as error:
        for line in str(error).splitlines():
            say(line)
        raise typer.Exit(2) from error
    rows = [_row(choice, once) for choice in choices]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        _show(rows, once)
    if any(found["severity"] == Severity.SUSPECT for row in rows for found in row["found"]):
        raise typer.Exit(1)


def _row(choice: Choice, once: bool) -> dict[str, Any]:
    why_not: str
    why_not, found = tools.DETECTOR_OFF() if choice.off else "", list[Evidence]()
    try:
        why_not = why_not or choice.missing()
        if once and not why_not:
            found = _look(choice)
    except Exception as error:  # whatever it raises counts against the detector only
        why_not = f"{type(error).__name__}: {error}"
    return {
        "name": choice.name,
        "looks": not why_not,
        "why_not": why_not,
        "every": choice.every,
        "origin": choice.origin,
        "found": [{key: value for key, value in asdict(one).items() if key != "name"} for one in found],
    }


def _look(choice: Choice) -> list[Evidence]:
    detector = choice.make()
    try:
        found = list(islice(detector.look(), MOST + 1))
    finally:
        detector.close()
    if len(found) > MOST:
        detail = tools.DETECTOR_FLOODS(most=MOST)
        return [Evidence(choice.name, Subject.NODE, "", Severity.NOTE, detail, time.time(), LEFT_OUT)]
    return found


def _show(rows: list[dict[str, Any]], once: bool) -> None:
    table = Table("detector", "looks", "from")
    for row in rows:
        looks = f"every {row['every']:g} s" if row["looks"] else f"no: {row['why_not']}"
        table.add_row(*(Text(plain(cell)) for cell in (row["name"], looks, row["origin"])))
    Console().print(table)
    for row in rows if once else ():
        for found in row["found"]:
            about = f"{found['part']}: " if found["part"] else ""
            print(plain(f"{found['severity']}: {about}{found['detail']} ({found['detector']}, {found['kind']})"))
    if once and not any(row["found"] for row in rows):
        print(tools.NOTHING_FOUND())
