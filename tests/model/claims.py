"""The scheduler, from which the job claims nodes (`understudy.core.floating`): its actions, and the invariants of every claim.

It gives nodes at any time; that it cannot, or takes a node away again, is a fault (`faults.py`). A node that serves a claim is one
of the last in `World`, and there is one for each claim that there may be at a time.

Invariants of one state alone are in `tests.core.test_machine.check_floating`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.bounds import Bounds
from tests.model.world import Mode, Worker, World, Wrong, flagged
from understudy.core import commands, events, floating
from understudy.core.machine import Machine
from understudy.core.state import JobState
from understudy.messages import recoveries
from understudy.messages.base import code_of


def joins(bounds: Bounds, host: int, claim: int, workers: tuple[str, ...] = ()) -> events.NodeJoined:
    size = bounds.ranks // bounds.nodes
    return events.NodeJoined(f"n{host}", f"10.0.0.{host}", host, spares=size, workers=workers, claim=claim)


def free_host(bounds: Bounds, world: World) -> int | None:
    """One of those that serve nothing: they are alike."""
    busy = {host for _, host in world.claims}
    return next((host for host in range(bounds.own_nodes, bounds.own_nodes + bounds.floating) if host not in busy), None)


def served(world: World, host: int) -> int:
    """The claim that it serves; -1: none."""
    return next((number for number, node in world.claims if node == host), -1)


def granted(world: World, claim: int, host: int) -> World:
    return world._replace(claims=world.claims - {(claim, -1)} | {(claim, host)}, linked=flagged(world.linked, host, True))


def over(world: World, claim: int) -> World:
    """Whatever serves it ends, and says nothing any more."""
    known = next((one for one in world.claims if one[0] == claim), None)
    if known is None:
        return world
    world = world._replace(claims=world.claims - {known})
    _, host = known
    if host < 0:
        return world
    workers = tuple(Worker(w.name, host, Mode.GONE) if w.node == host else w for w in world.workers)
    return world._replace(workers=workers, linked=flagged(world.linked, host, False))


def carried_out(world: World, command: commands.ClaimNode | commands.GiveBackNode) -> World:
    if isinstance(command, commands.GiveBackNode):
        return over(world, command.claim)
    if any(number == command.claim for number, _ in world.claims):
        return world
    return world._replace(claims=world.claims | {(command.claim, -1)})


NO_SPARE = (recoveries.NO_SPARE_LEFT.code, recoveries.WAITED_FOR_SPARE.code)


def look(world: World, machine: Machine) -> None:
    if machine.state.ended is not None and world.claims:
        raise Wrong("the job has ended, and something is claimed")


def follow(before: JobState, event: events.Event, after: JobState, answer: Iterable[commands.Command]) -> None:
    """Raises `Wrong`. `before` and `after` the event, which was answered like this."""
    told = list(answer)
    asked = [command.claim for command in told if isinstance(command, commands.ClaimNode)]
    if asked != list(range(after.claimed - len(asked), after.claimed)):
        raise Wrong(f"claims {asked} are asked for, and the next one is {after.claimed}")
    for command in told:
        if isinstance(command, commands.KillWorker) and command.reason == floating.GIVEN_BACK and after.workers[command.worker].rank >= 0:
            raise Wrong(f"the node of {command.worker} is given back, which has a rank")
    ends = before.ended is None and after.ended is not None and code_of(after.ended.message) in NO_SPARE
    if ends and event != events.Expired("hold") and any(not claim.node for claim in before.claims.values()):
        raise Wrong("the job ends for want of a spare, and a node is claimed")
    if isinstance(event, events.NodeJoined) and event.claim >= 0 and event.claim not in before.claims:
        known = after.nodes.get(event.node)
        if known is not None and not known.lost:
            raise Wrong(f"{event.node} is taken in, and claim {event.claim} is over")
