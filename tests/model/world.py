"""A small pure model of what is around the machine: workers, their data plane, agents and links.

A worker is where it stands in `understudy.worker`: every action here is one step of it that others could see. What a worker computes
is not modelled; that it is bitwise the same is for the tests with real processes. A transaction is a number, and the state of a rank is
how many it has applied: what a recovery must get right is who applies which one when, and who gets whose state.

Links deliver in order, at any later time. A command for a node that is not connected is lost; an agent repeats what it knows when it
connects again (`agent/worker.py`). The data plane between two nodes is there unless one of them is cut off.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from understudy.core import commands, events
from understudy.core.nouns import Copy, LossCause, Position, Stand

Order = tuple[Any, ...]  # a command on its way, without what nobody here looks at


class Mode(IntEnum):
    SPARE = 0  # warm, without a rank
    SETUP = 1  # a newcomer runs the script up to the job's place
    READY = 2  # ... is there, and waits for the decision
    IDLE = 3  # at the begin of transaction t
    RUN = 4  # in it, before its vote
    VOTING = 5  # has handed its copy over, and waits for those that it keeps
    AGREED = 6  # has them, and has told everybody
    APPLY = 7  # knows that all have: nothing can take the transaction back
    WAIT = 8  # has let go of a generation that is over, and waits for the decision
    PUBLISHED = 9  # at the next begin, in the store of the new generation
    CONNECTED = 10  # all members are; a donor has sent its state
    SHARE = 11  # every newcomer is verified; copies are handed over again
    DONE = 12  # the script has ended
    GONE = 13
    STARTING = 14


class Worker(NamedTuple):
    name: str
    node: int
    mode: Mode = Mode.SPARE
    rank: int = -1
    generation: int = -1  # attached to
    t: int = 0  # the current or next transaction
    applied: int = 0  # how many its state has seen
    stand: Stand = Stand.RUNNING  # while it waits
    pending: Order | None = None  # the decision that it is carrying out
    abort: int = -1  # the newest that it has heard of
    pause: int = -1  # the same, of a pause
    recover: Order | None = None  # the newest decision that it has heard of
    heard: int = -1  # the newest generation that any command named
    answered: int = -1  # the newest generation that it has said its position to
    answer: events.Quiesced | None = None  # what it said
    pause_agreed: int = -1
    reported: int = -1  # the newest generation in which a commit was reported
    newcomer: bool = False  # its state is not proven yet
    came: bool = False  # it took its rank in the middle of the job
    released: bool = False
    store: str = ""
    shelf: frozenset[tuple[int, int]] = frozenset()  # copies that it keeps: rank, transaction
    up: tuple[events.Event, ...] = ()
    down: tuple[Order, ...] = ()
    entered: int = -1  # the generation that the agent's memory of it is of
    said: tuple[events.Event, ...] = ()  # that memory
    lost: events.WorkerLost | None = None  # what its agent says of its end

    @property
    def alive(self) -> bool:
        return self.mode is not Mode.GONE


class World(NamedTuple):
    workers: tuple[Worker, ...]
    linked: tuple[bool, ...]  # each node's agent with the orchestrator
    cut: tuple[bool, ...]  # a node from everything else
    handed: frozenset[tuple[int, int, int, int]] = frozenset()  # generation, transaction, rank, node: the rank's copy is on its way
    agreed: frozenset[tuple[int, int, int, int, int]] = frozenset()  # the same, and the pause that the rank has heard of
    met: frozenset[tuple[str, int, int, int]] = frozenset()  # what members have told each other: which word, generation, member, its node
    passed: int = -1  # the highest transaction of which anybody has ever passed the vote
    decisions: frozenset[tuple[int, int]] = frozenset()  # every generation that was decided, and the transaction with which it starts

    def of(self, name: str) -> Worker:
        return next(worker for worker in self.workers if worker.name == name)

    def put(self, worker: Worker) -> World:
        return self._replace(workers=tuple(worker if w.name == worker.name else w for w in self.workers))


class Wrong(AssertionError):
    """Something that must never be."""


class Shape(NamedTuple):
    """What stays the same: ranks, transactions, whose buddies are whose."""

    ranks: int
    transactions: int
    keepers: tuple[tuple[int, ...], ...]  # of each rank's copy

    def wards(self, rank: int) -> list[int]:
        return [other for other in range(self.ranks) if rank in self.keepers[other]]


# -- commands arrive ------------------------------------------------------------------------------------------------------


def order(command: commands.Command) -> Order | None:
    """A command on its way to a worker; None if workers do not hear of it."""
    match command:
        case commands.StartWorker():
            return ("start",)
        case commands.KillWorker():
            return ("kill",)
        case commands.Assign():
            return ("assign", command.generation, command.rank, command.newcomer, command.planned, command.store)
        case commands.Abort():
            return ("abort", command.generation, command.store)
        case commands.Pause():
            return ("pause", command.generation, command.store)
        case commands.Recover(generation=g, start=start, newcomers=newcomers, holders=holders, leavers=leavers, store=store):
            return ("recover", g, start, newcomers, holders, leavers, store)
        case commands.Release():
            return ("release",)
        case _:
            return None


def obey(worker: Worker, message: Order, shape: Shape) -> Worker:
    """`Control._handle`, and the agent's part in front of it (`Agent._relay`, `_kill`)."""
    kind, *rest = message
    if kind == "kill":
        return dies(worker, "fenced")
    if kind == "release":
        return worker._replace(released=True)
    if kind == "start":  # a repeat: the agent says what it knows
        return worker._replace(up=worker.up + story(worker))
    generation: int = rest[0]
    if generation > worker.entered:  # the agent forgets what was said in older generations
        kept = tuple(event for event in worker.said if isinstance(event, events.Finished))
        worker = worker._replace(entered=generation, said=kept)
    if generation < worker.heard:
        return worker
    worker = worker._replace(heard=generation)
    if kind == "assign":
        _, rank, newcomer, *_ = rest
        if worker.mode is Mode.SPARE:
            mode = Mode.SETUP if newcomer else Mode.IDLE
            worker = worker._replace(mode=mode, rank=rank, newcomer=newcomer, came=newcomer)
            if not newcomer:
                shelf = frozenset((ward, -1) for ward in shape.wards(rank))  # its set-up is not modelled, and done
                worker = worker._replace(generation=generation, shelf=shelf)
        return worker
    if kind == "recover":
        return worker._replace(recover=message)
    decided = worker.recover is not None and worker.recover[1] >= generation
    if worker.answer is not None and worker.answer.generation == generation and not decided:  # asked again: the same answer
        return worker._replace(up=(*worker.up, worker.answer))
    return worker._replace(abort=generation) if kind == "abort" else worker._replace(pause=generation)


def dies(worker: Worker, detail: str) -> Worker:
    lost = events.WorkerLost(worker.name, LossCause.KILLED, detail, 0.0)
    silent = worker.released  # then its end is no loss
    return Worker(
        worker.name, worker.node, Mode.GONE, worker.rank, up=worker.up if silent else (*worker.up, lost), said=worker.said,
        lost=None if silent else lost,
    )  # fmt: skip


def story(worker: Worker) -> tuple[events.Event, ...]:
    """What its agent repeats when it connects."""
    if worker.lost is not None:
        return (*worker.said, worker.lost)
    if not worker.alive:
        return worker.said
    warm = () if worker.mode is Mode.STARTING else _warm(worker)
    return (events.WorkerStarted(worker.name, f"n{worker.node}", 1), *warm, *worker.said)


def _warm(worker: Worker) -> tuple[events.Event, ...]:
    return (events.WorkerWarm(worker.name, f"s-{worker.name}", worker.rank),)


# -- workers act ----------------------------------------------------------------------------------------------------------


def says(worker: Worker, event: events.Event) -> Worker:
    return worker._replace(up=(*worker.up, event), said=(*worker.said, event))


def acts(world: World, shape: Shape) -> list[tuple[str, World]]:
    """Everything that a worker can do by itself now, with what comes of it."""
    found: list[tuple[str, World]] = []
    for worker in world.workers:
        if worker.alive and worker.mode is not Mode.SPARE:
            found += [(f"{worker.name} {what}", after) for what, after in _acts_of(world, shape, worker)]
    return found


def _acts_of(world: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    if w.released and w.mode in (Mode.DONE, Mode.CONNECTED, Mode.WAIT, Mode.IDLE):
        return [("exits", world.put(dies(w, "released")))]
    found = []
    newest = max(w.generation, w.pending[1] if w.pending else -1)
    aborted = w.abort > newest
    if w.mode is Mode.STARTING:
        return [("is warm", world.put(w._replace(mode=Mode.SPARE, up=(*w.up, *_warm(w)))))]
    if w.mode is Mode.SETUP:
        return [("has set up", world.put(says(w._replace(mode=Mode.READY), events.NewcomerReady(w.name, w.heard))))]
    if w.mode is Mode.READY:
        return [("arrives", after) for after in _decided(world, shape, w, w.abort)]
    if w.mode is Mode.WAIT:
        if w.abort > w.answered:  # overtaken by the next generation
            return [("says again where it stands", world.put(_quiesce(w, w.abort, w.stand)))]
        return [("hears the decision", after) for after in _decided(world, shape, w, w.answered)]
    if w.mode in (Mode.IDLE, Mode.DONE):
        if aborted or (w.pause > newest and w.pause == w.pause_agreed):
            return [("quiesces", world.put(_quiesce(w, max(w.abort, w.pause if w.pause == w.pause_agreed else -1), Stand.IDLE)))]
        if w.pending is not None:
            return [("publishes its state", _publish(world, shape, w))] if _reaches(world, w, w.pending[-1]) else []
        if w.mode is Mode.DONE:
            return []
        if w.t == shape.transactions:
            return [("has finished", world.put(says(w._replace(mode=Mode.DONE), events.Finished(w.name, w.generation))))]
        return [("begins", world.put(w._replace(mode=Mode.RUN)))]
    if w.mode is Mode.APPLY:
        return [("commits", world.put(_commit(w)))]
    if aborted:
        found.append(("breaks off", world.put(_broken_off(w))))
    if w.mode is Mode.RUN and not aborted:
        found.append(("votes", _vote(world, w)))
    if w.mode is Mode.VOTING and _copies_come(world, shape, w, w.t):
        found.append(("agrees", _agree(world, shape, w)))
    if w.mode is Mode.AGREED:
        flags = {r: pause for g, t, r, node, pause in world.agreed if (g, t) == (w.generation, w.t) and _hears(world, w, node)}
        if len(flags) == shape.ranks:
            pause = flags[0] if len(set(flags.values())) == 1 and flags[0] > w.generation else w.pause_agreed
            found.append(("passes the vote", passes(world, w._replace(pause_agreed=pause))))
    if w.mode is Mode.PUBLISHED:
        assert w.pending is not None
        _, generation, _, _, _, leavers, store = w.pending
        members = range(shape.ranks + len(leavers))
        if all(_known(world, w, "published", generation, member) for member in members) and _reaches(world, w, store):
            connected = world.put(w._replace(mode=Mode.CONNECTED))
            found.append(("connects", _tell(connected, w, "connected", generation, _member(shape, w, leavers))))
    if w.mode is Mode.CONNECTED:
        found += _moves(world, shape, w)
    if w.mode is Mode.SHARE and _copies_come(world, shape, w, -1):
        shelf = w.shelf | {(ward, w.t - 1) for ward in shape.wards(w.rank)}
        found.append(("has shared", world.put(w._replace(mode=Mode.IDLE, shelf=_kept(shelf, w.t - 1)))))
    return found


def _reaches(world: World, w: Worker, store: str) -> bool:
    """Whether the worker that serves `store` lives and is not on the other side of a split."""
    host = world.of(store.removeprefix("s-"))
    return host.alive and _hears(world, w, host.node)


def _hears(world: World, w: Worker, node: int) -> bool:
    """Whether what was sent on `node` can reach it: also from a worker that has died since."""
    return w.node == node or not (world.cut[w.node] or world.cut[node])


def _copies_come(world: World, shape: Shape, w: Worker, t: int) -> bool:
    sent = {rank for g, when, rank, node in world.handed if (g, when) == (w.generation, t) and _hears(world, w, node)}
    return sent.issuperset(shape.wards(w.rank))


def _known(world: World, w: Worker, word: str, generation: int, member: int) -> bool:
    return any(said[:3] == (word, generation, member) and _hears(world, w, said[3]) for said in world.met)


def _tell(world: World, w: Worker, word: str, generation: int, member: int) -> World:
    return world._replace(met=world.met | {(word, generation, member, w.node)})


def _member(shape: Shape, w: Worker, leavers: tuple[int, ...]) -> int:
    """A leaver has a number behind the ranks, because its rank's newcomer has the rank."""
    return shape.ranks + leavers.index(w.rank) if w.rank in leavers and not w.newcomer else w.rank


def _quiesce(w: Worker, generation: int, stand: Stand) -> Worker:
    copies = tuple(Copy(rank, t) for rank, t in sorted(w.shelf))
    answer = events.Quiesced(w.name, generation, Position(w.t, stand), copies, w.applied)
    return says(w._replace(mode=Mode.WAIT, stand=stand, answered=generation, answer=answer, pending=None), answer)


def _broken_off(w: Worker) -> Worker:
    """What a failure in the middle leads to."""
    if w.newcomer and w.mode in (Mode.PUBLISHED, Mode.CONNECTED):  # not proven: it keeps its set-up, and is no survivor
        return w._replace(mode=Mode.READY, pending=None)
    stand = {Mode.RUN: Stand.RUNNING, Mode.VOTING: Stand.VOTED, Mode.AGREED: Stand.VOTED}.get(w.mode, Stand.IDLE)
    return _quiesce(w, w.abort, stand)


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
        return [_publish(world, shape, w._replace(pending=message))] if _reaches(world, w, message[-1]) else []
    if w.t == start:
        return [world.put(w._replace(mode=Mode.IDLE, pending=message, shelf=shelf))]
    if w.t == start - 1 and w.stand is Stand.VOTED:
        return [world.put(w._replace(mode=Mode.APPLY, pending=message, shelf=shelf))]
    raise Wrong(f"{w.name} stands in transaction {w.t} ({w.stand}) and is told to start at {start}")


def passes(world: World, w: Worker) -> World:
    """From now on it is certain that every rank can commit this transaction."""
    for generation, start in world.decisions:
        if generation > w.generation and start <= w.t:
            raise Wrong(f"{w.name} passes the vote of {w.t} in generation {w.generation}; generation {generation} has begun with {start}")
    return world.put(w._replace(mode=Mode.APPLY))._replace(passed=max(world.passed, w.t))


def decides(world: World, message: Order) -> World:
    """The machine has said with which transaction a generation starts."""
    if message[0] == "assign" and not message[3]:
        if any(w.generation >= message[1] for w in world.workers):
            return world  # a repeat
        # All start anew: nobody is left who has done anything, and nobody was told of it.
        if any(("kill",) not in w.down and (w.t > 0 or w.mode is Mode.APPLY) for w in world.workers if w.alive):
            raise Wrong("the ranks start anew, and somebody has done something already")
        return world._replace(passed=-1, decisions=frozenset())
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


def _agree(world: World, shape: Shape, w: Worker) -> World:
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
    if w.pending is None and w.reported != w.generation:
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
    """State goes to the newcomers; nobody goes on before all of them have said that it is right."""
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
    if not _reaches(world, w, store) or not all(_known(world, w, "verified", generation, rank) for rank in newcomers):
        return []
    after = w._replace(mode=Mode.SHARE if newcomers else Mode.IDLE, generation=generation, pending=None)
    return [("goes on", _share(world, after) if newcomers else world.put(after))]


def _share(world: World, w: Worker) -> World:
    return world.put(w)._replace(handed=world.handed | {(w.generation, -1, w.rank, w.node)})


# -- what cannot matter any more ---------------------------------------------------------------------------------------


def tidy(world: World, current: int, remembers: bool) -> World:
    """The same world without what nobody can ask for again: `current` is the machine's generation; without `remembers` no agent will
    ever have to repeat anything.
    """
    workers = tuple(_tidy(w, remembers) for w in world.workers)
    alive = {g for w in workers if w.alive for g in (w.generation, w.pending[1] if w.pending else -1, w.recover[1] if w.recover else -1)}
    alive |= {current, *(message[1] for w in workers for message in w.down if len(message) > 1)}
    first = {g: min((w.t for w in workers if w.alive and w.generation == g), default=99) for g in alive}
    return world._replace(
        workers=workers,
        handed=frozenset(x for x in world.handed if x[0] in alive and (x[1] < 0 or x[1] >= first[x[0]])),
        agreed=frozenset(x for x in world.agreed if x[0] in alive and x[1] >= first[x[0]]),
        met=frozenset(x for x in world.met if x[1] in alive),
    )


def _tidy(w: Worker, remembers: bool) -> Worker:
    if not w.alive:
        return w if remembers or not w.said else w._replace(said=())
    done = w.recover is not None and w.recover[1] <= w.generation
    waits = w.mode is Mode.WAIT
    return w._replace(
        recover=None if done else w.recover,
        stand=w.stand if waits else Stand.RUNNING,
        abort=w.abort if w.abort > w.generation else -1,
        pause=w.pause if w.pause > w.generation else -1,
        pause_agreed=w.pause_agreed if w.pause_agreed > w.generation else -1,
        answered=w.answered if waits else -1,
        answer=w.answer if waits else None,
        reported=w.reported if w.reported == w.generation else -1,
        said=w.said if remembers else (),
    )
