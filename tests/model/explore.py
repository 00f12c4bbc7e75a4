"""Every interleaving, within bounds: the machine that ships, in the world of `world.py`, with faults at any moment.

A state is a world, a machine, and how many faults are left. Its successors are all that can happen next: a worker acts, a message
arrives, a fault happens. Timers are for workers that hang: a timer that runs out is a fault like the others, and a state in which only a
timer could help is wrong. States that differ only in what cannot matter any more (texts, times, what dead workers were) are one state.
"""

from __future__ import annotations

import gc
import pickle
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tests.model.bounds import FAULTS, Bounds
from tests.model.machines import Interned, machine_key
from tests.model.world import Mode, Shape, Worker, World, Wrong, acts, decides, dies, obey, order, story, tidy
from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.nouns import JobSpec, LossCause, Timeouts
from understudy.core.state import Phase, WorkerState


class State(NamedTuple):
    world: World
    interned: Interned
    left: tuple[int, ...]  # faults, in the order of FAULTS
    total: int  # of all kinds together
    before: Interned | None = None  # as it is in the journal, which is written behind; None: nobody will ask

    @property
    def machine(self) -> Machine:
        return self.interned.machine


@dataclass
class Found:
    """What came of an exploration. `trace`: the way to what is wrong, if anything is."""

    states: int = 0
    transitions: int = 0
    deepest: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    wrong: str = ""
    trace: list[str] = field(default_factory=list)
    events: list[events.Event] = field(default_factory=list)
    complete: bool = True


class Explorer:
    writes_ahead = True  # a decision is not sent before it is written

    def __init__(self, bounds: Bounds, check: Callable[[Machine], None] = lambda machine: None) -> None:
        """`check` is asked after every event that the machine has handled."""
        self.bounds = bounds
        self._check = check
        ranks = bounds.ranks
        count = min(bounds.keepers, ranks - 1)
        self.shape = Shape(ranks, bounds.transactions, tuple(tuple((r + 1 + n) % ranks for n in range(count)) for r in range(ranks)))
        self.log: list[events.Event] | None = None  # if there is a list: every event that is handled is put into it
        self._known: dict[Any, Interned] = {}  # machines by their keys
        self._answers: dict[tuple[Any, events.Event], tuple[Interned, list[commands.Command]]] = {}

    # -- the beginning ------------------------------------------------------------------------------------------------

    def start(self) -> State:
        """All ranks have taken their place and done their set-up; spares are warm."""
        b = self.bounds
        spec = JobSpec("job", b.ranks, b.ranks // b.nodes, b.nodes, b.spares, b.replenish, max_losses_per_transaction=99)
        machine = Machine(spec, Timeouts())
        self.opening: list[events.Event] = []

        def handle(event: events.Event) -> list[commands.Command]:
            self.opening.append(event)
            return machine.handle(event, 0.0)

        for node in range(b.nodes):
            handle(events.NodeJoined(f"n{node}", f"10.0.0.{node}", node))
        workers = []
        for known in list(machine.state.workers.values()):
            handle(events.WorkerStarted(known.name, known.node, 1))
        given = [c for known in list(machine.state.workers.values()) for c in handle(events.WorkerWarm(known.name, f"s-{known.name}"))]
        ranks = {command.worker: command.rank for command in given if isinstance(command, commands.Assign)}
        for known in machine.state.workers.values():
            rank = ranks.get(known.name, -1)
            w = Worker(known.name, int(known.node[1:]), rank=rank)
            if rank >= 0:
                shelf = frozenset((ward, -1) for ward in self.shape.wards(rank))
                w = w._replace(mode=Mode.IDLE, generation=0, heard=0, entered=0, shelf=shelf)
            workers.append(w)
        left = tuple(b.faults.get(kind, 0) for kind in FAULTS)
        interned = self._intern(machine)
        world = World(tuple(workers), (True,) * b.nodes, (False,) * b.nodes)
        return State(world, interned, left, b.together, interned if b.faults.get("crash") else None)

    # -- the search ---------------------------------------------------------------------------------------------------

    def explore(self, limit: int = 10_000_000) -> Found:
        """Breadth first, so that what is wrong is shown on the shortest way to it."""
        gc.disable()  # nothing here is a cycle worth looking for, and there is much of it
        try:
            return self._explore(limit)
        finally:
            gc.enable()

    def _explore(self, limit: int) -> Found:
        found = Found()
        first = self.start()
        parents: dict[int, tuple[int, str]] = {}
        root = self.key(first)
        parents[root] = (0, "")
        queue = deque([(root, first, 0)])
        while queue:
            name, state, depth = queue.popleft()
            found.states += 1
            found.deepest = depth
            if found.states > limit:
                found.complete = False
                break
            step = "looks at what can happen"
            try:
                following = list(self.after(state))
            except Wrong as error:
                return self._show(found, parents, name, step, str(error))
            if not following:
                why = self._end(state)
                if why.startswith("WRONG"):
                    return self._show(found, parents, name, "nothing more happens", why)
                found.ends[why] = found.ends.get(why, 0) + 1
            for step, make in following:
                found.transitions += 1
                try:
                    after = self.tidied(make())
                except (Wrong, AssertionError, KeyError) as error:
                    return self._show(found, parents, name, step, f"{type(error).__name__}: {error}")
                key = self.key(after)
                if key not in parents:
                    parents[key] = (name, step)
                    queue.append((key, after, depth + 1))
        return found

    def _show(self, found: Found, parents: dict[int, tuple[int, str]], name: int, step: str, why: str) -> Found:
        steps = [step]
        while parents[name][1]:
            name, step = parents[name]
            steps.append(step)
        found.trace = steps[::-1]
        found.wrong = why
        found.events = self.replayed(found.trace)
        return found

    def replayed(self, trace: list[str]) -> list[events.Event]:
        """The events that the machine handles on this way, from the very start."""
        state = self.start()
        handled = list(self.opening)
        self.log = handled
        for step in trace:
            try:
                make = dict(self.after(state)).get(step)
                state = self.tidied(make()) if make is not None else state
            except (Wrong, AssertionError, KeyError):
                break
        self.log = None
        return handled

    def tidied(self, state: State) -> State:
        left = dict(zip(FAULTS, state.left, strict=True))
        if not (state.total and left["crash"]):
            state = state._replace(before=None)
        split = not all(state.world.linked)
        remembers = split or (state.total > 0 and any(left[kind] for kind in ("cut", "crash", "repeat")))
        world = state.world
        for w in world.workers:
            while w.up and world.linked[w.node] and self._is_dead(state.interned, w.up[0]):
                w = w._replace(up=w.up[1:])
                world = world.put(w)
            while w.down and len(w.down[0]) > 1 and w.down[0][1] < w.heard:
                w = w._replace(down=w.down[1:])
                world = world.put(w)
        return state._replace(world=tidy(world, state.machine.state.generation, remembers))

    def _is_dead(self, interned: Interned, event: events.Event) -> bool:
        """Whether this machine, and every later one, ignores the event: then it does not matter when it comes. That this one does is
        looked at.
        """
        s = interned.machine.state
        worker = s.workers.get(getattr(event, "worker", ""))
        if worker is None:
            return False
        match event:
            case events.WorkerWarm():
                unknown = event.rank >= 0 > worker.rank  # its rank, which is news
                dead = worker.state is not WorkerState.STARTING and not (worker.state is WorkerState.WARM and unknown)
            case events.WorkerStarted():
                dead = False
            case events.Committed() | events.Quiesced() | events.VerifyFailed():
                dead = event.generation < s.generation
            case events.NewcomerReady():
                dead = event.generation < s.promised or (s.migration is None and not self.bounds.faults.get("migrate"))
            case _:
                dead = False
        dead = dead or (worker.state is WorkerState.LOST and not isinstance(event, events.WorkerStarted))
        if dead:
            after, answer = self._ask(interned, event) if (interned.key, event) not in self._answers else self._answers[interned.key, event]
            self._answers[interned.key, event] = after, answer
            heard = machine_key(interned.machine, heard=False) == machine_key(after.machine, heard=False)
            if answer or not heard:
                raise Wrong(f"{event} changes something although it is over")
        return dead

    # -- what can happen ----------------------------------------------------------------------------------------------

    def after(self, state: State) -> Iterable[tuple[str, Callable[[], State]]]:
        if state.machine.state.ended is not None:
            return  # every agent ends what it has
        normal = list(self._normal(state))
        yield from normal
        yield from self._faults(state)

    def _normal(self, state: State) -> Iterable[tuple[str, Callable[[], State]]]:
        world = state.world
        for what, after in acts(world, self.shape):
            yield what, _always(state._replace(world=after))
        for w in world.workers:
            if world.linked[w.node] and w.up:
                yield f"{type(w.up[0]).__name__} of {w.name} arrives", partial(self._heard, state, w)
            if world.linked[w.node] and w.down and w.alive:
                yield f"{w.name} is told to {w.down[0][0]} {w.down[0][1:2]}", partial(self._told, state, w)
        if state.before is not None and state.before is not state.interned:
            yield "the journal is written", _always(state._replace(before=state.interned))
        for node in range(self.bounds.nodes):
            if not world.linked[node] and not world.cut[node]:
                yield f"n{node} connects", partial(self._connect, state, node)
            if world.cut[node]:
                yield f"the network to n{node} heals", partial(self._heal, state, node)
                if not state.machine.state.nodes[f"n{node}"].lost:
                    yield f"n{node} is taken for lost", partial(self.submit, state, events.NodeLost(f"n{node}", "silent"))

    def _timers(self, state: State, early: str) -> Iterable[tuple[str, Callable[[], State]]]:
        for timer in sorted(state.machine.state.timers):
            yield f"the timer {timer} runs out{early}", partial(self.submit, state, events.Expired(timer))

    def _faults(self, state: State) -> Iterable[tuple[str, Callable[[], State]]]:
        if state.total == 0 or state.machine.state.phase is Phase.ENDED:
            return
        for number, kind in enumerate(FAULTS):
            if state.left[number] == 0:
                continue
            rest = tuple(count - (n == number) for n, count in enumerate(state.left))
            yield from self._faults_of(kind, state, state._replace(left=rest, total=state.total - 1))

    def _faults_of(self, kind: str, state: State, spent: State) -> Iterable[tuple[str, Callable[[], State]]]:
        world = state.world
        match kind:
            case "kill":
                for w in world.workers:
                    if w.alive and not w.released:
                        yield f"{w.name} is killed", _always(spent._replace(world=world.put(dies(w, "signal 9"))))
            case "hung":
                for known in state.machine.state.workers.values():
                    if known.state not in (WorkerState.LOST, WorkerState.RELEASED) and known.rank >= 0:
                        lost = events.WorkerLost(known.name, LossCause.HUNG, "stands still", 0.0)
                        yield f"{known.name} is taken for hung", partial(self.submit, spent, lost)
            case "cut":
                for node in range(self.bounds.nodes):
                    if not world.cut[node]:
                        yield f"n{node} is cut off", _always(spent._replace(world=_cut(world, node)))
            case "crash":
                yield "the orchestrator is killed", _always(spent._replace(world=_unlinked(world)))
                if state.before is not None and state.before is not state.interned:
                    forgot = spent._replace(world=_unlinked(world), interned=state.before, before=state.before)
                    yield "the orchestrator is killed, and its last events are not in the journal", _always(forgot)
            case "migrate":
                for rank in range(self.bounds.ranks):
                    if not state.machine.migration_refusal(rank):
                        yield f"rank {rank} is to migrate", partial(self.submit, spent, events.MigrationAsked(rank, "asked"))
            case "early":
                yield from self._timers(spent, " early")
            case "repeat":
                for w in world.workers:
                    for index, said in enumerate(w.said):
                        if said not in w.up:
                            again = spent._replace(world=world.put(w._replace(up=(*w.up, said))))
                            yield f"{type(said).__name__} {index} of {w.name} comes again", _always(again)

    # -- what happens -------------------------------------------------------------------------------------------------

    def submit(self, state: State, event: events.Event) -> State:
        """The machine handles it. The same event in the same state has the same answer, so each is asked for once."""
        if self.log is not None:
            self.log.append(event)
        question = (state.interned.key, event)
        if question not in self._answers:
            self._answers[question] = self._ask(state.interned, event)
        interned, answer = self._answers[question]
        world = state.world
        for command in answer:
            world = self._route(world, interned.machine, command)
        self._look_for_survivors(world, interned.machine)
        decided = self.writes_ahead and any(isinstance(command, commands.Recover) for command in answer)
        before = interned if state.before is not None and decided else state.before
        return state._replace(interned=interned, world=world, before=before)

    @staticmethod
    def _look_for_survivors(world: World, machine: Machine) -> None:
        """A worker that is lost is told to end at once, or as soon as its agent speaks of it."""
        for w in world.workers:
            known = machine.state.workers.get(w.name)
            lost = known is not None and known.state is WorkerState.LOST and machine.state.ended is None
            told = ("kill",) in w.down or any(isinstance(event, events.WorkerStarted) for event in w.up)
            if lost and w.alive and world.linked[w.node] and not told:
                raise Wrong(f"{w.name} is lost, and nobody ends it")

    def _ask(self, before: Interned, event: events.Event) -> tuple[Interned, list[commands.Command]]:
        machine = Machine.__new__(Machine)
        machine.state = pickle.loads(pickle.dumps(before.machine.state, -1))
        speaker = machine.state.workers.get(getattr(event, "worker", ""))
        fenced = speaker is not None and speaker.state is WorkerState.LOST
        answer = machine.handle(event, 0.0)
        self._check(machine)
        after = self._intern(machine)
        if fenced and after.key != before.key:
            raise Wrong(f"{type(event).__name__} of {speaker.name if speaker else ''}, which is fenced, has changed something")
        return after, answer

    def _intern(self, machine: Machine) -> Interned:
        key = machine_key(machine)
        return self._known.setdefault(key, Interned(key, machine))

    def _route(self, world: World, machine: Machine, command: commands.Command) -> World:
        message = order(command)
        if message is None:
            return world
        world = decides(world, message)
        name: str = command.worker  # type: ignore[union-attr]
        node = int(machine.state.workers[name].node[1:])
        if not world.linked[node]:
            return world
        if message == ("start",) and all(w.name != name for w in world.workers):
            fresh = Worker(name, node, Mode.STARTING)
            return world._replace(workers=(*world.workers, fresh))
        w = world.of(name)
        return world.put(w._replace(down=(*w.down, message))) if w.alive else world

    def _heard(self, state: State, w: Worker) -> State:
        world = state.world.put(w._replace(up=w.up[1:]))
        return self.submit(state._replace(world=world), w.up[0])

    def _told(self, state: State, w: Worker) -> State:
        return state._replace(world=state.world.put(obey(w._replace(down=w.down[1:]), w.down[0], self.shape)))

    def _heal(self, state: State, node: int) -> State:
        cut = tuple(was and n != node for n, was in enumerate(state.world.cut))
        return state._replace(world=state.world._replace(cut=cut))

    def _connect(self, state: State, node: int) -> State:
        """The agent introduces itself and repeats what it knows; what it had kept and does not repeat comes behind."""
        workers = []
        for w in state.world.workers:
            if w.node == node:
                again = story(w)
                w = w._replace(up=(*again, *(event for event in w.up if event not in again)), down=())
            workers.append(w)
        linked = tuple(was or n == node for n, was in enumerate(state.world.linked))
        world = state.world._replace(workers=tuple(workers), linked=linked)
        return self.submit(state._replace(world=world), events.NodeJoined(f"n{node}", f"10.0.0.{node}", node))

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self, state: State) -> str:
        """What a state in which nothing more happens stands for."""
        machine = state.machine
        ended = machine.state.ended
        if ended is None:
            timers = f", or until the timer {min(machine.state.timers)} runs out" if machine.state.timers else ""
            return f"WRONG: everybody waits, in phase {machine.state.phase}, for ever{timers}"
        if not ended.message:
            return "WRONG: it ended and does not say why"
        if ended.exit_code == 0:
            holders = [state.world.of(name) for name in machine.state.ranks.values()]
            short = [w.name for w in holders if w.alive and w.applied != self.bounds.transactions]
            return f"WRONG: it ended well, and {short} have not done everything" if short else "finished"
        return f"held: {_words(ended.message)}"

    # -- when two states are one --------------------------------------------------------------------------------------

    def key(self, state: State) -> int:
        return hash((state.world, id(state.interned), state.left, state.total, id(state.before)))


def _always(state: State) -> Callable[[], State]:
    return lambda: state


def _cut(world: World, node: int) -> World:
    """Neither its agent nor its workers reach anybody, or are reached. What was on its way to it is lost."""
    cut = tuple(was or n == node for n, was in enumerate(world.cut))
    linked = tuple(was and n != node for n, was in enumerate(world.linked))
    workers = tuple(w._replace(down=()) if w.node == node else w for w in world.workers)
    return world._replace(cut=cut, linked=linked, workers=workers)


def _unlinked(world: World) -> World:
    return world._replace(linked=(False,) * len(world.linked), workers=tuple(w._replace(down=()) for w in world.workers))


def _words(message: str) -> str:
    """A reason without its numbers."""
    return "".join(character for character in message if not character.isdigit())[:60]
