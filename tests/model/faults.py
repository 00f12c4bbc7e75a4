"""What may go wrong, or be asked for, at any moment: the one table of faults. `Bounds.faults` says how many of each there are.

Each gives the steps that are possible in a state. `spent` is that state with one fault less, and what comes of a step is made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.model import claims
from tests.model.messages import dies, says
from tests.model.state import State, Steps, always
from tests.model.world import Mode, Worker, World, flagged
from understudy.core import events
from understudy.core.model import LossCause
from understudy.core.transitions import WorkerState

if TYPE_CHECKING:
    from tests.model.moves import Moves

_EXCHANGING = (Mode.RUN, Mode.VOTING, Mode.AGREED, Mode.PUBLISHED, Mode.CONNECTED, Mode.SHARE)
SCRIPTS_CODE = 7  # with which a script that raises ends
Fault = Callable[["Moves", State, State], Steps]


def _kill(moves: Moves, state: State, spent: State) -> Steps:
    """A worker or spare dies, at any point of a step or of a recovery, and its agent sees it."""
    for w in state.world.workers:
        if w.alive and not w.released:
            yield f"{w.name} is killed", always(spent._replace(world=state.world.put(dies(w, "signal 9"))))


def _dumps(moves: Moves, state: State, spent: State) -> Steps:
    """A worker aborts: the library below cannot handle its input."""
    for w in state.world.workers:
        if w.alive and not w.released and w.rank >= 0:
            aborted = dies(w, "signal 6", LossCause.CRASHED)
            yield f"{w.name} aborts", always(spent._replace(world=state.world.put(aborted)))


def _snap(moves: Moves, state: State, spent: State) -> Steps:
    """A worker dies, and a peer notices that the connection broke: it says so, before or after the agent has seen the end."""
    for w in state.world.workers:
        for peer in state.world.workers:
            if w.alive and not w.released and w.rank >= 0 and peer is not w and _exchanges(peer):
                noticed = says(peer._replace(broken=True), events.CommunicationBroken(peer.name, peer.newest, "reset"))
                after = state.world.put(dies(w, "signal 9")).put(noticed)
                yield f"{w.name} is killed, and {peer.name} notices", always(spent._replace(world=after))


def _raises(moves: Moves, state: State, spent: State) -> Steps:
    """The script raises in a spare's set-up, because the rank's own is running at the same time."""
    for w in state.world.workers:
        if w.mode is Mode.PREPARING:
            said = events.ScriptFailed(w.name, w.prepared, 1, "it is locked", "")
            failed = dies(w._replace(up=(*w.up, said)), "exit 1", LossCause.EXITED)
            yield f"the set-up of {w.name} raises", always(spent._replace(world=state.world.put(failed)))


def _fails(moves: Moves, state: State, spent: State) -> Steps:
    """The script raises, in its set-up or later: a bug in it, which a spare would run into as well."""
    for w in state.world.workers:
        if w.mode in (Mode.SETUP, Mode.IDLE, Mode.RUN) and w.rank >= 0 and w.prepared < 0 and not w.broken:
            said = events.ScriptFailed(w.name, w.rank, max(0, w.applied), "a bug", "", SCRIPTS_CODE)
            failed = dies(w._replace(up=(*w.up, said)), f"exit {SCRIPTS_CODE}", LossCause.EXITED)
            yield f"the script of {w.name} raises", always(spent._replace(world=state.world.put(failed)))


def _device(moves: Moves, state: State, spent: State) -> Steps:
    """The device of a worker fails, wherever it is: it says so and leaves. A second one is the same error, so it may be the script's."""
    for w in state.world.workers:
        rank = w.rank if w.rank >= 0 else w.prepared
        if w.alive and not w.released and rank >= 0:
            place = w.t if w.mode is not Mode.SETUP else -1
            said = events.DeviceFailed(w.name, rank, place, max(0, w.applied), "ECC", True, True, "", 0.0, "failed", "")
            gone = dies(w._replace(up=(*w.up, said), said=(*w.said, said)), "exit 71", LossCause.EXITED)
            yield f"the device of {w.name} fails", always(spent._replace(world=state.world.put(gone)))


def _lacks(moves: Moves, state: State, spent: State) -> Steps:
    """A survivor finds that state of a lost rank is nowhere."""
    for w in state.world.workers:
        if w.mode is Mode.PUBLISHED and not w.newcomer and not w.broken and w.pending is not None and w.pending[3]:
            found = says(w._replace(broken=True), events.Uncovered(w.name, w.pending[1], "an entry that rank 0 alone had"))
            yield f"{w.name} finds that state is nowhere", always(spent._replace(world=state.world.put(found)))


def _stop(moves: Moves, state: State, spent: State) -> Steps:
    yield "somebody asks to stop", partial(moves.submit, spent, events.StopAsked("enough", 3))


def _taint(moves: Moves, state: State, spent: State) -> Steps:
    """A node is not trusted any more, or again."""
    for node in state.machine.state.nodes.values():
        reason = "" if node.taint else "loud"
        yield (
            f"{node.name} is {'trusted' if node.taint else 'tainted'}",
            partial(moves.submit, spent, events.NodeTainted(node.name, reason)),
        )


def _leave(moves: Moves, state: State, spent: State) -> Steps:
    """A node is to be left, because something has been seen of a part of it."""
    for node in state.machine.state.nodes.values():
        if not any(taint.leave for taint in node.taints.values()):
            seen = events.NodeTainted(node.name, "it is about to fail", "detector", "gpu0", leave=True)
            yield f"{node.name} is to be left", partial(moves.submit, spent, seen)


def _device_to_leave(moves: Moves, state: State, spent: State) -> Steps:
    """There is evidence against the device of a rank: that rank leaves it, and no other on the node does."""
    for known in state.machine.state.members():
        place = f"gpu{known.local_rank}"
        if not known.device:
            yield f"{known.name} computes on {place}", partial(moves.submit, state, events.UsesDevice(known.name, place))
        else:
            seen = events.NodeTainted(known.node, "it is about to fail", "detector", known.device, leave=True)
            yield f"{known.device} of {known.node} is to be left", partial(moves.submit, spent, seen)


def _shared_device_to_leave(moves: Moves, state: State, spent: State) -> Steps:
    """The same of a device on which all ranks but the last compute."""
    sharing = state.machine.state.members()[:-1]
    silent = next((known for known in sharing if not known.device), None)
    if silent is not None:
        yield f"{silent.name} computes on gpu0", partial(moves.submit, state, events.UsesDevice(silent.name, "gpu0"))
    elif sharing:
        seen = events.NodeTainted(sharing[0].node, "it is about to fail", "detector", "gpu0", leave=True)
        yield "gpu0 is to be left", partial(moves.submit, spent, seen)


def _wears(moves: Moves, state: State, spent: State) -> Steps:
    """The evidence against it is over."""
    for node in state.machine.state.nodes.values():
        if ("detector", "gpu0") in node.taints:
            over = events.NodeTainted(node.name, "", "detector", "gpu0")
            yield f"what was seen of {node.name} is over", partial(moves.submit, spent, over)


def _drain(moves: Moves, state: State, spent: State) -> Steps:
    """Somebody wants a node empty, at once or by a time, or does not any more."""
    for node in state.machine.state.nodes.values():
        if node.drain is not None:
            yield f"{node.name} is not drained any more", partial(moves.submit, spent, events.NodeTainted(node.name, "", "drain"))
            continue
        asked = events.NodeTainted(node.name, "a new kernel", "drain", leave=True)
        yield f"{node.name} is drained", partial(moves.submit, spent, asked)
        for lose, what in ((True, "given up"), (False, "left")):
            late = replace(asked, deadline=1.0, lose=lose)
            yield f"{node.name} is drained, and what is late is {what}", partial(moves.submit, spent, late)


def _checked(moves: Moves, state: State, spent: State) -> Steps:
    """A node's agent says how its check went, whether or not it was asked."""
    for node in state.machine.state.nodes.values():
        for passed in (True, False):
            said = events.NodeChecked(node.name, passed, "" if passed else "a bit is wrong")
            yield f"{node.name} has {'' if passed else 'not '}passed its check", partial(moves.submit, spent, said)


def _hung(moves: Moves, state: State, spent: State) -> Steps:
    """It is taken for hung, and goes on all the same until it is ended."""
    for known in state.machine.state.workers.values():
        if known.state not in (WorkerState.LOST, WorkerState.RELEASED) and known.rank >= 0:
            lost = events.WorkerLost(known.name, LossCause.HUNG, "stands still", 0.0)
            yield f"{known.name} is taken for hung", partial(moves.submit, spent, lost)


def _cut(moves: Moves, state: State, spent: State) -> Steps:
    """Neither a node's agent nor its workers can send or receive. Messages on the way to it are lost."""
    world = state.world
    for node, cut in enumerate(world.cut):
        if not cut and not world.away[node]:
            after = world.put_all(node, down=())
            after = after._replace(cut=flagged(world.cut, node, True), linked=flagged(world.linked, node, False))
            yield f"n{node} is cut off", always(spent._replace(world=after))


def _agent(moves: Moves, state: State, spent: State) -> Steps:
    """A node ends, with its agent and workers, without any notice. It is restarted, before or after it counts as lost."""
    world = state.world
    for node, away in enumerate(world.away):
        if not away and not world.cut[node]:
            workers = tuple(Worker(w.name, node, Mode.GONE, forgotten=True) if w.node == node else w for w in world.workers)
            after = world._replace(workers=workers, away=flagged(world.away, node, True), linked=flagged(world.linked, node, False))
            yield f"n{node} ends", always(spent._replace(world=after))


def _crash(moves: Moves, state: State, spent: State) -> Steps:
    """The orchestrator is killed, with or without its last events in the journal, and is started again."""
    dark = _unlinked(state.world)
    yield "the orchestrator is killed", always(spent._replace(world=dark))
    if state.before is not None and state.before is not state.interned:
        forgot = spent._replace(world=dark, interned=state.before, before=state.before)
        yield "the orchestrator is killed, and its last events are not in the journal", always(forgot)


def _takeover(moves: Moves, state: State, spent: State) -> Steps:
    """Another orchestrator leads, with the journal; messages of the one before still arrive, at any time until an agent
    connects to the new one.
    """
    dark = state.world._replace(linked=(False,) * len(state.world.linked))
    yield "another orchestrator takes over", always(spent._replace(world=dark))
    if state.before is not None and state.before is not state.interned:
        forgot = spent._replace(world=dark, interned=state.before, before=state.before)
        yield "another orchestrator takes over, and does not know the last events", always(forgot)


def _migrate(moves: Moves, state: State, spent: State) -> Steps:
    for rank in range(moves.bounds.ranks):
        if not state.machine.migration_refusal(rank):
            yield f"rank {rank} is to migrate", partial(moves.submit, spent, events.MigrationAsked(rank, "asked"))


def _drill(moves: Moves, state: State, spent: State) -> Steps:
    """Somebody asks for a drill, or one is due."""
    for rank in range(moves.bounds.ranks):
        if not state.machine.drill_refusal(rank):
            yield f"rank {rank} is to be drilled", partial(moves.submit, spent, events.DrillAsked(rank, "asked"))


def _early(moves: Moves, state: State, spent: State) -> Steps:
    """A timer runs out before the event that it waits for: something is slow, and nothing is broken."""
    for timer in sorted(state.machine.state.timers):
        yield f"the timer {timer} runs out early", partial(moves.submit, spent, events.Expired(timer))


def _repeat(moves: Moves, state: State, spent: State) -> Steps:
    """A worker's message arrives once more, at any later time."""
    for w in state.world.workers:
        for index, said in enumerate(w.said):
            if said not in w.up:
                again = state.world.put(w._replace(up=(*w.up, said)))
                yield f"{type(said).__name__} {index} of {w.name} comes again", always(spent._replace(world=again))


def _overtake(moves: Moves, state: State, spent: State) -> Steps:
    """A later message of a worker arrives first."""
    for w in state.world.workers:
        for index in range(1, len(w.up)):
            first = state.world.put(w._replace(up=(w.up[index], *w.up[:index], *w.up[index + 1 :])))
            yield f"{type(w.up[index]).__name__} {index} of {w.name} overtakes", always(spent._replace(world=first))


def _echo(moves: Moves, state: State, spent: State) -> Steps:
    """A command comes twice."""
    for w in state.world.workers:
        if w.alive and w.down:
            twice = state.world.put(w._replace(down=(w.down[0], *w.down)))
            yield f"{w.name} hears {w.down[0][0]} {w.down[0][1:2]} twice", always(spent._replace(world=twice))


def _break(moves: Moves, state: State, spent: State) -> Steps:
    """A connection between workers breaks, and no worker has died: the one that notices reports it, and waits for a command."""
    for w in state.world.workers:
        if _exchanges(w):
            broken = says(w._replace(broken=True), events.CommunicationBroken(w.name, w.newest, "reset"))
            yield f"a connection of {w.name} breaks", always(spent._replace(world=state.world.put(broken)))


def _differs(moves: Moves, state: State, spent: State) -> Steps:
    """A newcomer's state does not agree with its donors': it says so, and waits to be ended."""
    for w in state.world.workers:
        if w.mode is Mode.CONNECTED and w.newcomer and w.pending is not None and not w.broken:
            found = says(w._replace(broken=True), events.VerifyFailed(w.name, w.pending[1], "differs"))
            yield f"the state of {w.name} differs", always(spent._replace(world=state.world.put(found)))


def _refuse(moves: Moves, state: State, spent: State) -> Steps:
    """An agent has no room for the worker that it is to start."""
    for w in state.world.workers:
        if w.mode is Mode.STARTING:
            said = events.StartRefused(w.name, f"n{w.node}", "no room")
            refused = Worker(w.name, w.node, Mode.GONE, up=(*w.up, said), refused=True)
            yield f"{w.name} is refused", always(spent._replace(world=state.world.put(refused)))


def _odd(moves: Moves, state: State, spent: State) -> Steps:
    """Replicas differ, and most of them speak against one."""
    for w in state.world.workers:
        for rank in range(moves.bounds.ranks):
            if _exchanges(w) and not w.newcomer and rank != w.rank:
                after = state.world.put(_differ(w, (rank,), ()))
                yield f"{w.name} finds that rank {rank} is odd", always(spent._replace(world=after))


def _torn(moves: Moves, state: State, spent: State) -> Steps:
    """Replicas differ, and it is unknown which is right: the job pauses until an operator chooses."""
    sides = tuple((rank,) for rank in range(moves.bounds.ranks))
    for w in state.world.workers:
        if _exchanges(w) and not w.newcomer:  # it takes the agreement of the others
            yield f"{w.name} finds that all differ", always(spent._replace(world=state.world.put(_differ(w, (), sides))))


def _redo(moves: Moves, state: State, spent: State) -> Steps:
    """A redo differs from this rank's first result: found when it receives that all have voted. The others may pass that vote here,
    which is more than they would. The job pauses until an operator lets it go on.
    """
    world = state.world
    for w in world.workers:
        redone = (w.generation, w.t) in world.decisions
        voted = {rank for generation, t, rank, *_ in world.agreed if (generation, t) == (w.generation, w.t)}
        if w.mode is Mode.AGREED and redone and not w.came and _exchanges(w) and len(voted) == moves.bounds.ranks:
            said = says(w._replace(broken=True), events.RedoDiffers(w.name, w.generation, w.t, w.applied, "differs"))
            yield f"the redo of {w.name} differs", always(spent._replace(world=world.put(said)))


def _ended(moves: Moves, state: State, spent: State) -> Steps:
    """The scheduler cannot give a claimed node, or takes it away again."""
    for number, host in sorted(state.world.claims):
        after = spent._replace(world=claims.over(state.world, number))
        what = "taken away" if host >= 0 else "not to be had"
        yield f"claim {number} is {what}", partial(moves.submit, after, events.ClaimEnded(number, what))


def _late(moves: Moves, state: State, spent: State) -> Steps:
    """A node joins for a claim that is over: it was given when that was reported."""
    host, known = claims.free_host(moves.bounds, state.world), state.machine.state
    for number in range(known.claimed):
        if number not in known.claims and host is not None:
            yield f"n{host} joins for claim {number}, which is over", partial(moves.submit, spent, claims.joins(moves.bounds, host, number))


def _exchanges(w: Worker) -> bool:
    return w.mode in _EXCHANGING and not w.broken and not w.aborted and not w.released


def _differ(w: Worker, odd: tuple[int, ...], sides: tuple[tuple[int, ...], ...]) -> Worker:
    """It says so, and waits to hear what to do. The others find out as well; here they go on until then, which is more than they would."""
    return says(w._replace(broken=True), events.ReplicasDiffer(w.name, w.newest, odd, sides, "differs"))


def _unlinked(world: World) -> World:
    return world._replace(linked=(False,) * len(world.linked), workers=tuple(w._replace(down=()) for w in world.workers))


FAULTS: dict[str, Fault] = {
    "kill": _kill,
    "dumps": _dumps,
    "snap": _snap,
    "raises": _raises,
    "fails": _fails,
    "device": _device,
    "lacks": _lacks,
    "stop": _stop,
    "taint": _taint,
    "leave": _leave,
    "leave device": _device_to_leave,
    "wears": _wears,
    "drain": _drain,
    "checked": _checked,
    "hung": _hung,
    "cut": _cut,
    "agent": _agent,
    "crash": _crash,
    "takeover": _takeover,
    "migrate": _migrate,
    "leave shared device": _shared_device_to_leave,
    "drill": _drill,
    "early": _early,
    "repeat": _repeat,
    "overtake": _overtake,
    "echo": _echo,
    "break": _break,
    "differs": _differs,
    "refuse": _refuse,
    "odd": _odd,
    "torn": _torn,
    "redo": _redo,
    "ended": _ended,
    "late": _late,
}

FATAL = frozenset(
    {"kill", "dumps", "snap", "raises", "fails", "device", "agent", "refuse", "ended"}
)  # a worker may end without the machine knowing
RECONNECTING = frozenset({"cut", "agent", "crash", "takeover", "repeat"})  # with these, messages that were sent once may be sent again
