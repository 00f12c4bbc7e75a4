"""Show `understudy status --topology`: a line for each group of ranks, and one for each loss that would take ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from understudy.common.bounds import plain
from understudy.core.topology import numbers
from understudy.messages import asking

MOST_NAMED = 6  # nodes, domains or ranks that one cell names
KINDS = {"node": "node", "nvlink-domain": "NVLink domain", "failure-domain": "failure domain", "switch": "switch"}


def topology_view(found: dict[str, Any]) -> RenderableType:
    """Return the tables of groups and of losses."""
    kept = ", ".join(found["keep_together"]) or "-"
    parts: list[RenderableType] = [Text.assemble(("job ", "dim"), plain(str(found["job"])), ("  kept together ", "dim"), plain(kept))]
    parts.append(_groups(found["groups"]) if found["groups"] else Text(asking.GROUPS_UNKNOWN()))
    if found["losses"]:
        parts.append(_losses(found["losses"]))
    if found["left_out"]:
        parts.append(Text(f"and {found['left_out']} more nodes"))
    return Group(*parts)


def _groups(groups: list[dict[str, Any]]) -> Table:
    table = Table("group", "ranks", "NVLink domain", "failure domain", "switch", "nodes")
    for one in groups:
        name = Text(plain(one["group"]) + (", kept together" if one["kept_together"] else ""))
        domains = Text(_places(one["nvlink_domains"]) + (": SPLIT" if one["split"] else ""), style="red" if one["split"] else "")
        alone = one["failure_domains"] == one["nodes"]  # each node is its own failure domain
        rest = ({} if alone else one["failure_domains"], one["switches"], one["nodes"])
        table.add_row(name, Text(numbers(one["ranks"])), domains, *(Text(_places(places)) for places in rest))
    return table


def _losses(losses: list[dict[str, Any]]) -> Table:
    table = Table("if this is lost", "ranks", "who takes them over")
    for one in losses:
        taken = [_taken(move) for move in one["ranks"] if move["spare"] is not None]
        left = [move["rank"] for move in one["ranks"] if move["spare"] is None]
        if left:
            taken.append(f"{numbers(left)}: none at once" + (f", {one['spares_coming']} spares start" if one["spares_coming"] else ""))
        where = f"{KINDS[one['kind']]} {plain(one['name'])}"
        style = "red" if left and not one["spares_coming"] else "yellow" if left or any(move["splits"] for move in one["ranks"]) else ""
        table.add_row(Text(where), Text(numbers(move["rank"] for move in one["ranks"])), Text(_first(taken, "; "), style=style))
    return table


def _taken(move: Mapping[str, Any]) -> str:
    outside = " (its group is split)" if move["splits"] else ""
    return f"{move['rank']}: {plain(move['spare'])} on {plain(move['node'])}{outside}"


def _places(counted: Mapping[str, int]) -> str:
    """Return names, with the number of ranks in each where there are several; "-" if nothing is known."""
    known = {name: count for name, count in counted.items() if name}
    if len(known) < 2:
        return plain(next(iter(known), "-"))
    return _first([f"{plain(name)} ({count})" for name, count in known.items()], ", ")


def _first(names: Iterable[str], between: str) -> str:
    listed = list(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return between.join(listed[:MOST_NAMED]) + more
