"""All that can happen next: the machine that ships, in the world of `world.py`, with faults at any time.

A state is a world, a machine, and how many faults are left. Its successors are all that can happen next: a worker acts, a message arrives,
a fault happens. A timer that runs out is a fault like the others, and a state in which only a timer could help is wrong; except for timers
for connections that break although no worker has died.

States that cannot be distinguished are one (`forget.py`, `machines.py`), and steps that need not be tried in every order are not
(`reduction.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.model import claims, drills, steps
from tests.model.bounds import Bounds
from tests.model.faults import FAULTS, RECONNECTING, SCRIPTS_CODE
from tests.model.forget import Keys, tidy
from tests.model.machines import Machines, machine_key
from tests.model.messages import obey, order, story
from tests.model.reduction import Reduction
from tests.model.state import State, Step, Steps, always
from tests.model.world import Mode, Shape, Worker, World, Wrong, flagged
from understudy.core import commands, drain, events, floating, home
from understudy.core.buddies import Place, buddies
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.core.transitions import Phase, WorkerState

_DRILLS = list(FAULTS).index("drill")
_FORGETFUL = [list(FAULTS).index(kind) for kind in ("crash", "takeover")]


_SET_BY_PEOPLE = frozenset({drain.TIMER, home.TIMER, floating.TIMER})  # timers that run out in the course of things


class Moves:
    writes_ahead = True  # a decision is not sent before it is written

    def __init__(self, bounds: Bounds, check: Callable[[Machine], None] = lambda machine: None, reduced: bool = True) -> None:
        """`check` is asked after every event that the machine has handled. Without `reduced`, every order is tried of everything."""
        self.bounds = bounds
        ranks = bounds.ranks
        places = [Place(f"n{node}", f"n{node}") for node in (rank * bounds.nodes // ranks for rank in range(ranks))]
        keepers = tuple(buddies(places, bounds.keepers))
        self.shape = Shape(ranks, bounds.transactions, keepers, bounds.begin != "training")
        self.log: list[events.Event] | None = None  # if there is a list: every event that is handled is put into it
        self.machines = Machines(check, reconnects=not RECONNECTING.isdisjoint(bounds.faults))
        self.reduction = Reduction(bounds, self.shape)
        self._reduced = reduced
        self._keys = Keys()
        self._dead: dict[tuple[int, events.Event], bool] = {}

    # -- the beginning ------------------------------------------------------------------------------------------------

    def start(self) -> State:
        """As far as `Bounds.begin` says; spares are warm when the workers are."""
        b = self.bounds
        spec = JobSpec("job", b.ranks, b.ranks // b.nodes, b.nodes, b.spares, b.replenish, b.restarts, b.losses, b.prepared)
        spec = replace(spec, admission=b.admission, home_after=b.home_after, floating=b.floating)
        spec = replace(spec, spares=b.spares + b.spare_nodes * (b.ranks // b.nodes), spare_nodes=b.spare_nodes)
        machine = Machine(spec, Timeouts())
        self.opening: list[events.Event] = [events.NodeJoined(f"n{node}", f"10.0.0.{node}", node) for node in range(b.own_nodes)]
        interned, answer = self.machines.begin(machine, list(self.opening))
        no = (False,) * (b.own_nodes + b.floating)
        world = World((), (True,) * b.own_nodes + (False,) * b.floating, no, no)
        for command in answer:
            world = self._route(world, machine, command)
        left = tuple(b.faults.get(kind, 0) for kind in FAULTS)
        state = State(world, interned, left, b.together, interned if b.faults.get("crash") or b.faults.get("takeover") else None)
        if b.begin == "forming":
            return self.tidied(state)
        for w in world.workers:
            state = self._says(state, events.WorkerStarted(w.name, f"n{w.node}", 1))
        for w in world.workers:
            state = state._replace(world=state.world.put(state.world.of(w.name)._replace(mode=Mode.SPARE)))
        for w in world.workers:
            state = self._says(state, events.WorkerWarm(w.name, f"s-{w.name}"))
        while told := [w for w in state.world.workers if w.down]:
            state = self._told(state, told[0])
        return self.tidied(state._replace(before=state.before and state.interned))

    def _says(self, state: State, event: events.Event) -> State:
        self.opening.append(event)
        return self.submit(state, event)

    def tidied(self, state: State) -> State:
        """The same state without what cannot matter any more."""
        if not (state.total and any(state.left[number] for number in _FORGETFUL)):
            state = state._replace(before=None)
        remembers = self.reduction.remembers(state)
        world = state.world
        workers = []
        for w in world.workers:
            while w.up and world.linked[w.node] and self._is_dead(state, w.up[0]):
                w = w._replace(up=w.up[1:])
            while w.down and len(w.down[0]) > 1 and w.down[0][1] < w.heard:
                w = w._replace(down=w.down[1:])
            if w.drill and w.rank >= 0 and self._forgets_drill(state, w.drill):
                w = w._replace(drill=0, broken_off=0)
            workers.append(self._keys.kept(w, remembers))
        world = world._replace(workers=tuple(workers))
        if state.before is None and not _sets_up(state.machine):
            world = world._replace(records=frozenset())
        return state._replace(world=tidy(world, state.machine.state.generation))

    def _forgets_drill(self, state: State, number: int) -> bool:
        """Return whether the result of a drill can never be needed again."""
        drill = state.machine.state.drill
        more = state.total > 0 and state.left[_DRILLS] > 0
        return state.before is None and not more and (drill is None or drill.number != number)

    def _is_dead(self, state: State, event: events.Event) -> bool:
        """Whether this machine, and every later one, ignores the event: then it does not matter when it comes. That this one does is
        looked at.
        """
        interned = state.interned
        if isinstance(event, drills.WORDS) and interned.machine.state.drill is None and not self._forgets_drill(state, event.drill):
            return False  # it must not be taken for a word about the next one
        known = self._dead.get((id(interned), event))
        if known is None:
            known = self._dead[id(interned), event] = _is_over(interned.machine, event)
            if known:
                after, answer = self.machines.ask(interned, event)
                if answer or machine_key(interned.machine, heard=False) != machine_key(after.machine, heard=False):
                    raise Wrong(f"{event} changes something although it is over")
        return known

    def key(self, state: State) -> int:
        return self._keys.of(state)

    # -- what can happen ----------------------------------------------------------------------------------------------

    def after(self, state: State) -> list[Step]:
        """Return every step, or one that represents all; none once the job has ended: then every agent ends its workers."""
        if state.machine.state.ended is not None:
            return []
        one = self.reduction.one(state) if self._reduced else None
        if one is None:
            normal = list(self._normal(state))
            if normal and drills.waits(state.world, state.machine, [step for step, _ in normal]):
                raise Wrong("the job waits for a drill")
            return [*normal, *self._faults(state)]
        name, what = one
        if what == "told":
            return [self._telling(state, state.world.of(name))]
        if what == "acts":
            return self._acting(state, state.world.of(name))
        return list(self._normal(state))[:1]

    def _normal(self, state: State) -> Steps:
        world = state.world
        for w in world.workers:
            if w.alive:
                yield from self._acting(state, w)
            if world.linked[w.node] and w.up:
                yield f"{type(w.up[0]).__name__} of {w.name} arrives", partial(self._heard, state, w)
            if w.down and w.alive:  # of an orchestrator that leads no more, if there is no link to the one that does
                yield self._telling(state, w)
        if state.before is not None and state.before is not state.interned:
            yield "the journal is written", always(state._replace(before=state.interned))
        if any(w.broken and w.alive for w in world.workers):
            yield from self._patience(state)
        for timer in sorted(_SET_BY_PEOPLE & state.machine.state.timers):
            yield f"the time of {timer} is over", partial(self.submit, state, events.Expired(timer))
        for rank in range(self.bounds.ranks):
            if not state.machine.belief_refusal(rank):
                yield f"rank {rank} is believed", partial(self.submit, state, events.Believed(rank, "asked"))
        for node in range(self.bounds.own_nodes):
            yield from self._of_node(state, node)
        yield from self._together(state)
        if self.bounds.floating:
            yield from self._scheduler(state)

    def _scheduler(self, state: State) -> Steps:
        """It gives requested nodes; agents there connect again; and a service that has taken over synchronizes with it."""
        world, known = state.world, state.machine.state
        host = claims.free_host(self.bounds, world)
        for number, node in sorted(world.claims):
            if number not in known.claims:
                yield f"claim {number} is cancelled", always(state._replace(world=claims.over(world, number)))
            elif node < 0 and host is not None:
                given = state._replace(world=claims.granted(world, number, host))
                yield f"n{host} joins for claim {number}", partial(self.submit, given, claims.joins(self.bounds, host, number))
            elif node >= 0 and not world.linked[node]:
                yield f"n{node} connects", partial(self._connect, state, node)
        for claim in floating.open_claims(known):
            if any(number == claim.number for number, _ in world.claims):
                continue
            if claim.node:
                lost = events.NodesLost((events.LostNode(claim.node, "silent"),))
                yield f"{claim.node} is taken for lost", partial(self.submit, state, lost)
            else:
                again = world._replace(claims=world.claims | {(claim.number, -1)})
                yield f"claim {claim.number} is asked for again", always(state._replace(world=again))

    def _acting(self, state: State, w: Worker) -> list[Step]:
        return [(f"{w.name} {what}", always(state._replace(world=after))) for what, after in steps.acts_of(state.world, self.shape, w)]

    def _telling(self, state: State, w: Worker) -> Step:
        return f"{w.name} is told to {w.down[0][0]} {w.down[0][1:2]}", partial(self._told, state, w)

    def _patience(self, state: State) -> Steps:
        """Timers for a connection that breaks although no worker has died."""
        s = state.machine.state
        if s.broken and "communication" in s.timers:
            yield "no loss explains it in time", partial(self.submit, state, events.Expired("communication"))
        if s.recovery is not None and s.recovery.planned and "quiesce" in s.timers:
            yield "no boundary is reached in time", partial(self.submit, state, events.Expired("quiesce"))

    def _of_node(self, state: State, node: int) -> Steps:
        world, name = state.world, f"n{node}"
        known = state.machine.state.nodes.get(name)
        if not (world.linked[node] or world.cut[node] or world.away[node]):
            yield f"{name} connects", partial(self._connect, state, node)
        if world.cut[node]:
            healed = world._replace(cut=flagged(world.cut, node, False))
            yield f"the network to {name} heals", always(state._replace(world=healed))
        if (world.cut[node] or world.away[node]) and known is not None:
            if not known.lost:
                yield f"{name} is taken for lost", partial(self.submit, state, events.NodesLost((events.LostNode(name, "silent"),)))
            if world.away[node]:
                yield f"{name} is started anew", partial(self._connect, state, node)

    def _together(self, state: State) -> Steps:
        """Several nodes that are taken for lost in one look."""
        world, known = state.world, state.machine.state.nodes
        silent = [name for n in range(self.bounds.own_nodes) if (world.cut[n] or world.away[n]) and (name := f"n{n}") in known]
        silent = [name for name in silent if not known[name].lost]
        if len(silent) > 1:
            lost = events.NodesLost(tuple(events.LostNode(name, "silent") for name in silent))
            yield f"{', '.join(silent)} are taken for lost", partial(self.submit, state, lost)

    def _faults(self, state: State) -> Steps:
        if state.total == 0 or state.machine.state.phase is Phase.ENDED:
            return
        for number, fault in enumerate(FAULTS.values()):
            if state.left[number]:
                rest = tuple(count - (n == number) for n, count in enumerate(state.left))
                yield from fault(self, state, state._replace(left=rest, total=state.total - 1))

    # -- what happens -------------------------------------------------------------------------------------------------

    def submit(self, state: State, event: events.Event) -> State:
        """The machine handles it."""
        if self.log is not None:
            self.log.append(event)
        fails = _is_script_failure(state.machine, event)
        interned, answer = self.machines.ask(state.interned, event)
        ended = interned.machine.state.ended
        if fails and (ended is None or ended.exit_code != SCRIPTS_CODE):
            raise Wrong(f"{event} does not end the job with its exit code")
        if isinstance(event, events.DeviceFailed) and ended is None:
            worker = interned.machine.state.workers[event.worker]
            if worker.state not in (WorkerState.LOST, WorkerState.RELEASED):
                raise Wrong(f"{event.worker} has no device any more, and is {worker.state}")
            if _is_the_scripts(state.machine, event):
                raise Wrong(f"{event} is the second of its kind, and burns another spare")
        world = state.world
        for command in answer:
            world = self._route(world, interned.machine, command)
        _look_for_survivors(world, interned.machine)
        claims.look(world, interned.machine)
        decided = self.writes_ahead and (isinstance(event, events.Believed) or any(map(is_decision, answer)))
        before = interned if state.before is not None and decided else state.before
        return state._replace(interned=interned, world=world, before=before)

    def _route(self, world: World, machine: Machine, command: commands.Command) -> World:
        if isinstance(command, commands.ClaimNode | commands.GiveBackNode):
            return claims.carried_out(world, command)
        message = order(command)
        if message is None:
            return world
        world = steps.decides(world, message)
        name: str = command.worker  # type: ignore[union-attr]
        known = next((w for w in world.workers if w.name == name), None)
        node = known.node if known else int(machine.state.workers[name].node[1:])
        if not world.linked[node]:
            return world
        if known is None or (known.refused and message == ("start",)):
            fresh = Worker(name, node, Mode.STARTING, up=known.up if known else ())
            if message != ("start",):
                return world  # its start was lost with a connection, and now it is not wanted any more
            return world.put(fresh) if known else world._replace(workers=(*world.workers, fresh))
        return world.put(known._replace(down=(*known.down, message))) if known.alive else world

    def _heard(self, state: State, w: Worker) -> State:
        world = state.world.put(w._replace(up=w.up[1:]))
        return self.submit(state._replace(world=world), w.up[0])

    def _told(self, state: State, w: Worker) -> State:
        world = state.world.put(obey(w._replace(down=w.down[1:]), w.down[0], self.shape))
        return state._replace(world=steps.published(world, w, w.down[0]))

    def _connect(self, state: State, node: int) -> State:
        """The agent introduces itself and repeats what it knows; messages that it had kept and does not repeat come after that."""
        workers = []
        for w in state.world.workers:
            if w.node == node:
                again = story(w)
                w = w._replace(up=(*again, *(event for event in w.up if event not in again)), down=())
            workers.append(w)
        linked, away = flagged(state.world.linked, node, True), flagged(state.world.away, node, False)
        world = state.world._replace(workers=tuple(workers), linked=linked, away=away)
        known = tuple(w.name for w in workers if w.node == node and not w.forgotten)
        joined = events.NodeJoined(f"n{node}", f"10.0.0.{node}", node, workers=known)
        if node >= self.bounds.own_nodes:
            joined = claims.joins(self.bounds, node, claims.served(world, node), known)
        return self.submit(state._replace(world=world), joined)


def _sets_up(machine: Machine) -> bool:
    """Return whether any worker reads a record of a set-up, or may be told to before others are published."""
    s = machine.state
    if s.phase is Phase.QUIESCING or s.migration is not None or s.unverified or (s.drill is not None and not s.drill.running):
        return True
    return any(worker.prepare is not None and not worker.ready for worker in s.unassigned.values())


def is_decision(command: commands.Command) -> bool:
    """Return whether a command is not sent before it is written, as in `understudy.orchestrator.service`."""
    first = isinstance(command, commands.Assign) and not command.newcomer
    return first or isinstance(command, commands.Recover | commands.Prepare | commands.Drill | commands.ClaimNode)


def _is_script_failure(machine: Machine, event: events.Event) -> bool:
    """Of a worker that holds a rank, or is about to."""
    if not isinstance(event, events.ScriptFailed) or event.exit_code != SCRIPTS_CODE or machine.state.phase is Phase.ENDED:
        return False
    worker = machine.state.workers.get(event.worker)
    return worker is not None and worker.state in (WorkerState.MEMBER, WorkerState.NEWCOMER, WorkerState.LEAVING)


def _is_the_scripts(machine: Machine, event: events.DeviceFailed) -> bool:
    """Return whether another worker has reported the same about the same rank and transaction."""
    worker = machine.state.workers[event.worker]
    if worker.state not in (WorkerState.MEMBER, WorkerState.NEWCOMER, WorkerState.LEAVING):
        return False
    here = (event.rank, event.transaction, event.error)
    return any((one.rank, one.transaction, one.error) == here and one.worker != worker.name for one in machine.state.failed_devices)


def _is_over(machine: Machine, event: events.Event) -> bool:
    s = machine.state
    worker = s.workers.get(getattr(event, "worker", ""))
    if worker is None or isinstance(event, events.WorkerStarted):
        return False
    if worker.state is WorkerState.LOST:
        return True
    match event:
        case events.WorkerWarm():
            return worker.state is not WorkerState.STARTING and event.rank in (-1, worker.rank)
        case events.Drilled() | events.DrillBroken():
            return s.drill is None or s.drill.number != event.drill
        case events.Prepared() if worker.state is WorkerState.DRILLING:
            return worker.ready
        case events.Prepared():
            return worker.state not in (WorkerState.STARTING, WorkerState.WARM)
        case events.Committed() | events.Quiesced() | events.VerifyFailed() | events.CommunicationBroken():
            return event.generation < s.generation
        case events.NewcomerReady():
            may = worker.state in (WorkerState.STARTING, WorkerState.WARM) or (s.migration and s.migration.to(worker.name))
            return event.generation < s.highest_announced_generation or not may
        case _:
            return False


def _look_for_survivors(world: World, machine: Machine) -> None:
    """A worker that is lost is told to end at once, or as soon as its agent mentions it."""
    for w in world.workers:
        known = machine.state.workers.get(w.name)
        lost = known is not None and known.state is WorkerState.LOST and machine.state.ended is None
        told = ("kill",) in w.down or any(isinstance(event, events.WorkerStarted) for event in w.up)
        if lost and w.alive and world.linked[w.node] and not told:
            raise Wrong(f"{w.name} is lost, and nobody ends it")
