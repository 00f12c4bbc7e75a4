"""Show status and report as tables for people. `--json` prints the same data as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from understudy.checks.base import Report, Verdict
from understudy.common.bounds import plain
from understudy.common.finding import LIMITED, MISSING, OK
from understudy.common.phases import PHASES
from understudy.core.drill import advice
from understudy.messages import asking

_COLORS = {"proven": "green", "drilled": "green", "unproven": "bold red"}  # grades of incidents
MOST_FIGURES = 8  # figures of one check that are shown; a node may have many CPUs


def seconds(value: float | None) -> str:
    if not value:
        return "-"
    return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value:.3f} s"


def size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def status_view(status: dict[str, Any]) -> RenderableType:
    parts = (part for key in ("state", "generation", "step", "incidents") for part in ((f"  {key} ", "dim"), str(status[key])))
    head = Text.assemble(("job ", "dim"), str(status["job"]), *parts, *_grades(status.get("grades") or {}))
    table = Table("rank", "worker", "pid", "node", "state", "step", "drilled at")
    for rank in status["ranks"]:
        where = f"{rank['node']}:{rank['device']}" if rank.get("device") else rank["node"]
        cells = {**rank, "node": where}
        table.add_row(*(_cell(cells.get(key)) for key in ("rank", "worker", "pid", "node", "state", "step", "proven")))
    for spare in status["spares"]:
        state = f"{spare['state']} for rank {spare['rank']}" if spare.get("rank") is not None else spare["state"]
        table.add_row("spare", *(_cell(spare.get(key)) for key in ("worker", "pid", "node")), state, "", "")
    ending = [Text(plain(status["message"]))] if status["message"] else []
    taints = [f"{node}: {why}" for node, why in status["taints"].items()]
    taints += [f"{one['device']} of {one['node']}: {one['reason']}" for one in status["tainted"] if one.get("device")]
    drains = map(drain_line, status["drains"])
    drills = map(drill_line, status["drills"])
    versions = (f"{torch}{_rejoined(names)}" for torch, names in status["torch"].items())
    lines = (
        *_lines("torch", versions),
        *_lines("floating", floating_lines(status["floating"])),
        *_lines("drill", drills),
        *_lines("tainted", taints),
        *_lines("drain", drains),
        *_lines("notice", status["notices"]),
    )
    return Group(head, table, *lines, *ending)


def _grades(found: dict[str, int]) -> Iterator[str | tuple[str, str]]:
    """Yield how many incidents have each grade."""
    parts = [(f"{count} {grade}", _COLORS.get(grade, "")) for grade, count in found.items()]
    for number, part in enumerate(parts):
        yield from (" (" if not number else ", ", part)
    if parts:
        yield ")"


def _rejoined(names: list[str]) -> str:
    if not names:
        return ", groups get new communicators after a loss"
    return f", groups of {', '.join(names)} are joined again in place after a loss"


def state_view(found: dict[str, Any]) -> RenderableType:
    if found["step"] is None:
        return Text(asking.STATE_UNKNOWN())
    head = Text.assemble(("job ", "dim"), str(found["job"]), ("  as of step ", "dim"), str(found["step"]))
    table = Table("name", "where", "what", "ranks", "bytes", "why")
    alike = {True: "same", False: "differ", None: ""}
    for one in found["entries"]:
        sizes = size(one["bytes"]) if one["bytes"] else ""
        table.add_row(*map(_cell, (one["name"], one["root"], one["kind"], alike[one["same"]], sizes, one["reason"])))
    more = [Text(f"and {found['left_out']} more")] if found["left_out"] else []
    return Group(head, table, *more)


def floating_lines(floating: dict[str, Any]) -> list[str]:
    """Describe the nodes that are claimed from the scheduler; empty for a job that claims nothing."""
    if not floating["most"]:
        return []
    last = f"; last message of the scheduler: {floating['said']}" if floating["said"] else ""
    lines = [f"{len(floating['claims'])} of {floating['most']} nodes are claimed, {floating['asked']} were asked for so far{last}"]
    for claim in floating["claims"]:
        ranks = f", with rank {', '.join(map(str, claim['ranks']))}" if claim["ranks"] else ""
        where = f"node {claim['node']}{ranks}" if claim["node"] else "no node has come yet"
        lines.append(f"claim {claim['claim']} for rank {claim['rank']}: {where} ({claim['reason']})")
    return lines


def drain_line(drain: dict[str, Any]) -> str:
    """Describe the progress of a drain."""
    node = drain["node"]
    if drain["stage"] == "drained":
        return asking.NODE_EMPTY(node=node)
    ranks = f"ranks there: {', '.join(map(str, drain['ranks']))}" if drain["ranks"] else "processes end"
    if drain["stage"] == "late":
        return asking.NODE_LATE(node=node, ranks=ranks)
    by = f"; by {time.strftime('%H:%M:%S', time.localtime(drain['deadline']))} ({drain['then']})" if drain["deadline"] else ""
    waits = f"; {drain['waits_for']}" if drain["waits_for"] else ""
    return asking.NODE_DRAINS(node=node, ranks=ranks, deadline=by, waits_for=waits)


def drill_line(drill: dict[str, Any]) -> str:
    """Describe the result of a drill."""
    rank, step, verdict = drill["rank"], drill["step"], drill["verdict"]
    if not verdict:
        return asking.DRILL_RUNS(rank=rank, worker=drill["worker"])
    to_do = advice(verdict, rank)
    more = (f": {drill['detail']}" if drill["detail"] else "") + (f". {to_do}" if to_do else "")
    figures = {name: drill[name] for name in ("compared", "collectives")}
    figures |= {"moved": size(drill["bytes_moved"]), "pause": seconds(drill["pause"])}
    match verdict:
        case "same":
            return asking.DRILL_PROVEN(rank=rank, step=step, detail=more, **figures)
        case "partly":
            return asking.DRILL_PROVEN_IN_PART(rank=rank, step=step, left_out=drill["left_out"], detail=more, **figures)
        case "different":
            return asking.DRILL_DIFFERS(rank=rank, step=step, detail=more)
        case "not reproducible":
            return asking.DRILL_IRREPRODUCIBLE(rank=rank, step=step, detail=more)
        case "broken":
            return asking.DRILL_BROKEN(rank=rank, detail=more)
    return asking.DRILL_OTHER(rank=rank, verdict=verdict, detail=more)


def report_view(report: dict[str, Any]) -> RenderableType:
    incidents = report["incidents"]
    head = Text.assemble(("job ", "dim"), str(report["job"]), ("  incidents ", "dim"), str(len(incidents)))
    drills = _lines("drill", map(drill_line, report["drills"]))
    drills = [*_lines("floating", floating_lines(report["floating"])), *drills]
    if not incidents:
        return Group(head, Text(asking.NOTHING_LOST()), *drills)
    shown: list[RenderableType] = [head]
    for incident in incidents:
        total = "open" if incident["seconds"] is None else seconds(incident["seconds"])
        cause = ("planned, " if incident["planned"] else "") + str(incident["cause"])
        lost = f"rank {_ranks(incident)}, {_workers(incident)}, after step {_shown(incident['step'])}"
        what = f"{cause}, {lost}: {incident['decision']}, {total}"
        phases = Table(*PHASES)
        phases.add_row(*(seconds(incident["phases"].get(phase)) for phase in PHASES))
        moved = (
            f"{size(incident['bytes_moved'])} moved, {incident['digests_verified']} digests verified, {incident['steps_lost']} steps lost"
        )
        if incident.get("without_copies"):
            moved += f", copies complete again after {seconds(incident['without_copies'])}"
        shown += [Text(f"incident {incident['number']}: {what}"), phases, Text(moved)]
        if grade := incident.get("grade"):
            shown.append(Text.assemble((grade.upper(), _COLORS.get(grade, "")), f": {plain(incident['why'])}"))
    notes = (f"incident {incident['number']}: {note}" for incident in incidents for note in incident["notes"])
    return Group(*shown, *_lines("note", notes), *drills)


def doctor_view(found: dict[str, Any]) -> RenderableType:
    """Show the findings of `understudy doctor`, the worst last, next to the prompt."""
    order = (OK, LIMITED, MISSING)
    colors = dict(zip(order, ("green", "yellow", "red"), strict=True))
    table = Table("", "what", "found", "what to do")
    for one in sorted(found["findings"], key=lambda one: order.index(one["status"])):
        status = Text(one["status"], style=colors[one["status"]])
        table.add_row(status, _cell(one["what"]), _cell(one["detail"]), Text(plain(one["to_do"])))
    return Group(*(Text(plain(line)) for line in _about(found)), table)


def checks_view(report: Report) -> RenderableType:
    """Show the results of `understudy check-node`, the worst last."""
    order = (Verdict.SKIPPED, Verdict.PASSED, Verdict.FAILED)
    colors = dict(zip(order, ("dim", "green", "red"), strict=True))
    table = Table("", "check", "found", "measured", "time")
    for one in sorted(report.results, key=lambda one: order.index(one.verdict)):
        figures = [f"{figure.name}: {figure.value:.4g} {figure.unit}" for figure in one.figures]
        if len(figures) > MOST_FIGURES:
            figures = [*figures[:MOST_FIGURES], f"and {len(figures) - MOST_FIGURES} more (--json)"]
        found = "\n".join([one.detail, *(f"note: {note}" for note in one.notes)])
        verdict = Text(str(one.verdict), style=colors[one.verdict])
        table.add_row(verdict, one.check, Text(plain(found)), Text(plain("\n".join(figures))), f"{one.seconds:.1f} s")
    return table


def _about(found: dict[str, Any]) -> Iterator[str]:
    """Yield what a bug report needs in addition to the findings; nothing if torch could not be examined."""
    if versions := found.get("versions"):
        yield "  ".join(f"{name} {version}" for name, version in versions.items())
    if system := found.get("system"):
        inside = [f"in {name}" for name in system["container"]] + ["under seccomp"] * system["seccomp"]
        kind = [system["kernel"], system["libc"], system["architecture"], f"{system['cpus']} CPUs", size(system["memory"]), *inside]
        yield ", ".join(filter(None, kind))
    if names := found.get("variables"):
        yield f"set: {', '.join(names)}"


def _ranks(incident: dict[str, Any]) -> str:
    """Return the ranks of an incident; "-" when communication broke and no rank was lost."""
    return ", ".join(dict.fromkeys(str(part["rank"]) for part in incident["ranks"])) or "-"


def _workers(incident: dict[str, Any]) -> str:
    moves = [f"{part['old_worker']} -> {part['new_worker'] or '?'}" for part in incident["ranks"]]
    return "\n".join(moves) or "-"


def _cell(value: object) -> Text:
    """Return a value as a `Text`. In a plain string rich would look for markup: a node may be called [/]."""
    return Text(_shown(value))


def _shown(value: object) -> str:
    return "-" if value in (None, "", -1) else plain(str(value))


def _lines(label: str, texts: Iterable[object]) -> list[Text]:
    return [Text.assemble((f"{label}: ", "yellow"), plain(str(text))) for text in texts]
