"""Workers act: every action here is one step of `understudy.worker` that others could see."""

from __future__ import annotations

from tests.model.drills import BREAKS_OFF, COMPUTES
from tests.model.messages import dies, records, says, warm
from tests.model.world import Mode, Order, Shape, Worker, World, Wrong
from understudy.core import events
from understudy.core.model import BuddyCopyRef, DrillVerdict, Position, VotePhase


def acts(world: World, shape: Shape) -> list[tuple[str, World]]:
    """Everything that a worker can do by itself now, with what comes of it."""
    found: list[tuple[str, World]] = []
    for worker in world.workers:
        if worker.alive and worker.mode is not Mode.SPARE:
            found += [(f"{worker.name} {what}", after) for what, after in acts_of(world, shape, worker)]
    return found


def acts_of(world: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    found = _acts_of(world, shape, w)
    if w.rank >= 0 and w.drill > w.broken_off:  # in parallel with everything else, and nothing waits for it
        broken = says(w._replace(broken_off=w.drill), events.DrillBroken(w.name, w.drill, "the spare did not come"))
        found.append((BREAKS_OFF, world.put(broken)))
    return found


def _acts_of(world: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    if w.released and w.mode in (Mode.DONE, Mode.CONNECTED, Mode.WAIT, Mode.IDLE):
        return [("exits", world.put(dies(w, "released")))]
    found = []
    newest, aborted = w.newest, w.aborted
    if w.mode is Mode.STARTING:
        return [("is warm", world.put(w._replace(mode=Mode.SPARE, up=(*w.up, *warm(w)))))]
    if w.mode in (Mode.PREPARING, Mode.SETUP) and not _has_record(world, w):
        return []
    if w.mode is Mode.PREPARING:
        return [("is prepared", world.put(says(w._replace(mode=Mode.PREPARED), events.Prepared(w.name, w.prepared))))]
    if w.mode is Mode.REHEARSING:
        verdict = events.Drilled(w.name, w.drill, w.prepared, DrillVerdict.SAME, 0, "")
        return [(COMPUTES, world.put(says(w._replace(mode=Mode.DRILLED), verdict)))]
    if w.mode is Mode.DRILLED:
        return []
    if w.mode is Mode.SETUP:
        return [("has set up", world.put(says(w._replace(mode=Mode.READY), events.NewcomerReady(w.name, w.heard))))]
    if w.mode is Mode.READY:
        return [("arrives", after) for after in _decided(world, shape, w, w.abort)]
    if w.mode is Mode.WAIT:
        if w.abort > w.answered:  # overtaken by the next generation
            return [("says again where it stands", _rests(world, quiesce(w, w.abort, w.stand)))]
        return [("hears the decision", after) for after in _decided(world, shape, w, w.answered)]
    if w.mode in (Mode.IDLE, Mode.DONE):
        if aborted or (w.pause > newest and w.pause == w.pause_agreed):
            newest = max(w.abort, w.pause if w.pause == w.pause_agreed else -1)
            return [("quiesces", _rests(world, quiesce(w, newest, VotePhase.IDLE)))]
        if w.pending is not None:
            return [("publishes its state", _publish(world, shape, w))] if reaches(world, w, w.pending[-1]) else []
        if w.mode is Mode.DONE:
            return []
        if w.t == shape.transactions:
            return [("has finished", world.put(says(w._replace(mode=Mode.DONE), events.Finished(w.name, w.generation))))]
        return [("begins", world.put(_begins(shape, w)))]
    if w.mode is Mode.APPLY:
        return [("commits", world.put(_commit(w)))]
    if aborted:
        found.append(("breaks off", _rests(world, _broken_off(w))))
    if w.broken:
        return found  # a connection broke: it hears why before it does anything else
    if w.mode is Mode.RUN and not aborted:
        found.append(("votes", _vote(world, w)))
    if w.mode is Mode.VOTING and _copies_come(world, shape, w, w.t):
        found.append(("agrees", agree(world, shape, w)))
    if w.mode is Mode.AGREED:
        flags = {r: pause for g, t, r, node, pause in world.agreed if (g, t) == (w.generation, w.t) and _hears(world, w, node)}
        if len(flags) == shape.ranks:
            pause = flags[0] if len(set(flags.values())) == 1 and flags[0] > w.generation else w.pause_agreed
            found.append(("passes the vote", passes(world, w._replace(pause_agreed=pause))))
    if w.mode is Mode.PUBLISHED:
        assert w.pending is not None
        _, generation, _, _, _, leavers, store = w.pending
        members = range(shape.ranks + len(leavers))
        if all(_known(world, w, "published", generation, member) for member in members) and reaches(world, w, store):
            connected = world.put(w._replace(mode=Mode.CONNECTED))
            found.append(("connects", _tell(connected, w, "connected", generation, _member(shape, w, leavers))))
    if w.mode is Mode.CONNECTED:
        found += _moves(world, shape, w)
    if w.mode is Mode.SHARE and _copies_come(world, shape, w, -1):
        found.append(("has shared", world.put(w._replace(mode=Mode.IDLE, shelf=_kept(w.shelf | _renewed(shape, w), w.t - 1)))))
    return found


def _begins(shape: Shape, w: Worker) -> Worker:
    """Begin a transaction. Raises `Wrong` if copies of the one before are missing that this rank should have of others. Without
    those of the set-up the job can restart.
    """
    if w.t > 0 and (missing := {(ward, w.t - 1) for ward in shape.wards(w.rank)} - w.shelf):
        raise Wrong(f"{w.name} begins transaction {w.t} without the copies {sorted(missing)}")
    return w._replace(mode=Mode.RUN)


def _renewed(shape: Shape, w: Worker) -> set[tuple[int, int]]:
    """The copies that it has of others as soon as a recovery is over."""
    return {(ward, w.t - 1) for ward in shape.wards(w.rank)}


def _rests(world: World, w: Worker) -> World:
    """It has let go of its generation. A record that came to it while it was called is published now."""
    return published(world.put(w), w, w.called if w.mode is Mode.WAIT else None)


def published(world: World, w: Worker, message: Order | None) -> World:
    """With the records that it publishes because of this message."""
    return world._replace(records=world.records | {record for record in records(w, message) if reaches(world, w, record[1])})


def _has_record(world: World, w: Worker) -> bool:
    """Return whether the record of its rank's set-up is where it looks for it: in the newest generation that it knows."""
    rank = w.rank if w.mode is Mode.SETUP else w.prepared
    return any(r == rank and g == w.heard and reaches(world, w, store) for g, store, r in world.records)


def reaches(world: World, w: Worker, store: str) -> bool:
    """Whether the worker that serves `store` lives and is not on the other side of a split."""
    host = world.of(store.removeprefix("s-"))
    return host.alive and _hears(world, w, host.node)


def _hears(world: World, w: Worker, node: int) -> bool:
    """Return whether messages that were sent on `node` can reach it: also from a worker that has died since."""
    return w.node == node or not (world.cut[w.node] or world.cut[node])


def _copies_come(world: World, shape: Shape, w: Worker, t: int) -> bool:
    sent = {rank for g, when, rank, node in world.handed if (g, when) == (w.generation, t) and _hears(world, w, node)}
    return sent.issuperset(shape.wards(w.rank))


def _known(world: World, w: Worker, word: str, generation: int, member: int) -> bool:
    return any(said[:3] == (word, generation, member) and _hears(world, w, said[3]) for said in world.met)


def _tell(world: World, w: Worker, word: str, generation: int, member: int) -> World:
    return world._replace(met=world.met | {(word, generation, member, w.node)})


def _member(shape: Shape, w: Worker, leavers: tuple[int, ...]) -> int:
    """A leaver has a number after the ranks, because its rank's newcomer has the rank."""
    return shape.ranks + leavers.index(w.rank) if w.rank in leavers and not w.newcomer else w.rank


def quiesce(w: Worker, generation: int, stand: VotePhase) -> Worker:
    copies = tuple(BuddyCopyRef(rank, t) for rank, t in sorted(w.shelf))
    answer = events.Quiesced(w.name, generation, Position(w.t, stand), copies, max(0, w.applied))
    return says(w._replace(mode=Mode.WAIT, stand=stand, answered=generation, answer=answer, pending=None, broken=False), answer)


def _broken_off(w: Worker) -> Worker:
    """Return the worker after a failure in the middle."""
    if w.newcomer and w.mode in (Mode.PUBLISHED, Mode.CONNECTED):  # not proven: it keeps its set-up, and is no survivor
        return w._replace(mode=Mode.READY, pending=None, broken=False)
    stand = {Mode.RUN: VotePhase.RUNNING, Mode.VOTING: VotePhase.VOTED, Mode.AGREED: VotePhase.VOTED}.get(w.mode, VotePhase.IDLE)
    return quiesce(w, w.abort, stand)


def _decided(world: World, shape: Shape, w: Worker, generation: int) -> list[World]:
    """The decision of the generation that is waited for, if it is there."""
    message = w.recover
    if message is None or message[1] < generation or w.abort > message[1]:
        return []
    _, g, start, newcomers, *_ = message
    shelf = frozenset(copy for copy in w.shelf if copy[1] < start)
    if w.newcomer:
        if w.rank not in newcomers:
            raise Wrong(f"{w.name} is a newcomer, and generation {g} does not know it as one")
        return [_publish(world, shape, w._replace(pending=message))] if reaches(world, w, message[-1]) else []
    if w.t == start:
        return [world.put(w._replace(mode=Mode.IDLE, pending=message, shelf=shelf))]
    if w.t == start - 1 and w.stand is VotePhase.VOTED:
        return [world.put(w._replace(mode=Mode.APPLY, pending=message, shelf=shelf))]
    raise Wrong(f"{w.name} stands in transaction {w.t} ({w.stand}) and is told to start at {start}")


def passes(world: World, w: Worker) -> World:
    """From now on it is certain that every rank can commit this transaction."""
    if w.generation < world.anew:
        return world.put(w._replace(mode=Mode.APPLY))
    for generation, start in world.decisions:
        if generation > w.generation and start <= w.t:
            raise Wrong(f"{w.name} passes the vote of {w.t} in generation {w.generation}; generation {generation} has begun with {start}")
    return world.put(w._replace(mode=Mode.APPLY))._replace(passed=max(world.passed, w.t))


def decides(world: World, message: Order) -> World:
    """Record the machine's decision with which transaction a generation starts."""
    if message[0] == "assign" and not message[3]:
        if any(w.generation >= message[1] for w in world.workers):
            return world  # a repeat
        # All restart: no worker is left that has done anything, and none was informed of it.
        if any(("kill",) not in w.down and (w.t > 0 or (w.mode is Mode.APPLY and w.t == 0)) for w in world.workers if w.alive):
            raise Wrong("the ranks start anew, and somebody has done something already")
        return world._replace(passed=-1, decisions=frozenset(), anew=message[1])
    if message[0] != "recover":
        return world
    generation, start = message[1:3]
    if (generation, start) in world.decisions:
        return world  # a repeat
    if any(generation == known for known, _ in world.decisions):
        raise Wrong(f"generation {generation} is decided twice, and differently")
    if start <= world.passed:
        raise Wrong(f"transaction {world.passed} has passed its vote, and generation {generation} starts at {start}: it is undone")
    return world._replace(decisions=world.decisions | {(generation, start)})


def _vote(world: World, w: Worker) -> World:
    return world.put(w._replace(mode=Mode.VOTING))._replace(handed=world.handed | {(w.generation, w.t, w.rank, w.node)})


def agree(world: World, shape: Shape, w: Worker) -> World:
    shelf = _kept(w.shelf | {(ward, w.t) for ward in shape.wards(w.rank)}, w.t)
    pausing = w.pause if w.pause > w.abort else -1
    after = world.put(w._replace(mode=Mode.AGREED, shelf=shelf))
    return after._replace(agreed=world.agreed | {(w.generation, w.t, w.rank, w.node, pausing)})


def _kept(shelf: frozenset[tuple[int, int]], t: int) -> frozenset[tuple[int, int]]:
    """A shelf has the copies of two transactions."""
    return frozenset(copy for copy in shelf if copy[1] >= t - 1)


def _commit(w: Worker) -> Worker:
    if w.applied != w.t:
        raise Wrong(f"{w.name} applies transaction {w.t} to a state that has seen {w.applied}")
    w = w._replace(mode=Mode.IDLE, t=w.t + 1, applied=w.applied + 1)
    if w.pending is None and w.reported != w.generation and w.t > 0:
        w = says(w._replace(reported=w.generation), events.Committed(w.name, w.generation, w.t - 1, w.t))
    return w


def _publish(world: World, shape: Shape, w: Worker) -> World:
    """At the next begin: into the store of the new generation."""
    assert w.pending is not None
    _, generation, start, newcomers, holders, leavers, _ = w.pending
    if w.rank in newcomers and w.rank not in leavers and not w.newcomer:
        if not w.came:
            raise Wrong(f"{w.name} has held rank {w.rank} all the time, and generation {generation} takes it for a newcomer")
        w = w._replace(newcomer=True)  # a loss overtook the news that its state was proven
    if not w.newcomer:
        if (w.t, w.applied) != (start, start):
            raise Wrong(
                f"{w.name} gives a state that has seen {w.applied} transactions to generation {generation}, which starts at {start}"
            )
        for rank, holder in zip(newcomers, holders, strict=True):
            if holder == w.rank and rank not in leavers and (rank, start - 1) not in w.shelf:
                raise Wrong(f"{w.name} has no copy of rank {rank} at {start - 1}, which generation {generation} counts on")
    member = _member(shape, w, leavers)
    if any(said[:3] == ("published", generation, member) for said in world.met):
        raise Wrong(f"two workers are member {member} of generation {generation}, {w.name} for one")
    return _tell(world.put(w._replace(mode=Mode.PUBLISHED)), w, "published", generation, member)


def _moves(world: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    """State goes to the newcomers; no rank goes on before all of them have reported that it is right."""
    assert w.pending is not None
    _, generation, start, newcomers, _, leavers, store = w.pending
    if w.newcomer:
        donors = [*(rank for rank in range(shape.ranks) if rank not in newcomers), *(shape.ranks + n for n in range(len(leavers)))]
        if not all(_known(world, w, "connected", generation, donor) for donor in donors):
            return []
        after = w._replace(mode=Mode.SHARE, t=start, applied=start, generation=generation, pending=None, newcomer=False)
        after = says(after, events.Verified(w.name, generation, 1))
        return [("is verified", _tell(_share(world, after), w, "verified", generation, w.rank))]
    if w.rank in leavers:
        return []  # waits until it is released, or the generation is over
    if not reaches(world, w, store) or not all(_known(world, w, "verified", generation, rank) for rank in newcomers):
        return []
    return [("goes on", _share(world, w._replace(mode=Mode.SHARE, generation=generation, pending=None)))]


def _share(world: World, w: Worker) -> World:
    return world.put(w)._replace(handed=world.handed | {(w.generation, -1, w.rank, w.node)})
