"""events.md: the events of `understudy.core.events`, from their docstrings and the comments of their fields."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from scripts.reference.markdown import code, paragraphs

from understudy.cli.events_command import Lines
from understudy.cli.target import Target
from understudy.core import events
from understudy.core.model import LossCause
from understudy.links.messages import encode
from understudy.orchestrator.journal import Numbered
from understudy.orchestrator.stream import frame

COMMON = {  # fields that mean the same in all events that have them without a comment
    "worker": "name of the worker, such as `w3`",
    "generation": "how often the assignment of ranks to workers had changed",
    "node": "name of the node",
    "rank": "number of the rank",
    "transaction": "number of the transaction, from 0; -1: the setup of the script",
    "step": "committed steps",
    "detail": "details, for people",
    "reason": "reason that was given",
    "happened": "unix time of the fault or finding, in seconds",
    "cause": "`killed`, `crashed`, `exited`, `hung`, `node`, `digest`, `device`, `corrupt`, `drained` or `migrated`, as in "
    "[the report](json.md#rankreport)",
    "verdict": "`same`, `partly`, `different`, `not reproducible` or `broken`, as in [status](json.md#drillstatus)",
    "grade": "`proven`, `drilled` or `unproven`, as in [the report](json.md#incidentreport)",
}
BEGUN = 1767225600.0  # unix time of the example
EXAMPLE = (
    Numbered("train", 41, BEGUN, encode(events.WorkerStarted("w2", "node0", 4711))),
    Numbered("train", 97, BEGUN + 61.125, encode(events.WorkerLost("w2", LossCause.KILLED, "SIGKILL", BEGUN + 61))),
)
ABOUT = """
The journal of a job records every event: what joined, what was lost, every phase of a recovery, and every request. This page lists
their types. `understudy events` prints a line for each event: its number, local time, type, the rank, worker and node as far as they are
known, and the other fields. Long values are cut.
"""
AS_JSON = """
With `--json` each line is an object with `number`, `time` (unix, in seconds), `type`, and the fields below.
[`GET /v1/jobs/{job}/events`](http.md#get-v1jobsjobevents) returns the same objects as server-sent events:
"""
NUMBERS = """
Numbers count from 1 without gaps. They stay the same when an orchestrator is restarted or another one leads. Later versions may add
types and fields, so ignore those that you do not know.
"""


def pages() -> dict[str, str]:
    os.environ["TZ"] = "UTC"
    time.tzset()
    show = Lines(Target("train", None))
    shown = [show(one.shown()) for one in EXAMPLE]
    sent = frame(EXAMPLE[-1]).decode().strip().splitlines()
    lines = ["# Events", "", *paragraphs(ABOUT), "", "```", *shown, "```", "", *paragraphs(AS_JSON), "", "```", *sent, "```", ""]
    lines += [*paragraphs(NUMBERS), "", "## Common fields", "", "These fields mean the same in all events that have them:", ""]
    lines += [*(f"- {code(name)}: {text}" for name, text in COMMON.items()), "", "## Types"]
    tree = ast.parse(_source())
    names = {kind.__name__ for kind in get_args(events.Event)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in names:
            lines += ["", *_event(node)]
    return {"events.md": "\n".join(lines)}


def _event(node: ast.ClassDef) -> Iterator[str]:
    text = ast.get_docstring(node)
    if not text:
        raise ValueError(f"{node.name} has no docstring")
    yield from (f"### {node.name}", "", *paragraphs(text), "")
    comments = {}
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            comments[ast.unparse(field.target)] = _comment(_source().splitlines()[(field.end_lineno or 0) - 1 :])
    for name, comment in comments.items():
        if not comment and name not in COMMON:
            raise ValueError(f"{node.name}.{name} has no comment, and is not among the common fields")
        if comment:
            yield f"- {code(name)}: {comment}"
    plain = [code(name) for name, comment in comments.items() if not comment]
    if plain:
        yield f"- [common](#common-fields): {', '.join(plain)}"


def _comment(lines: list[str]) -> str:
    """Return the comment at the end of the first line, with the lines of comments that follow it."""
    text = lines[0].partition("  # ")[2]
    for line in lines[1:] if text else ():
        if not line.lstrip().startswith("# "):
            break
        text += f" {line.strip()[2:]}"
    return text


def _source() -> str:
    return Path(events.__file__).read_text()
