"""Commands arrive at workers, and what workers and agents say: the model's words for the vocabulary of `core`."""

from __future__ import annotations

from tests.model.world import Mode, Order, Shape, Worker, Wrong
from understudy.core import commands, events
from understudy.core.model import LossCause

WAITING = (Mode.SPARE, Mode.PREPARING, Mode.PREPARED)  # for a rank


def order(command: commands.Command) -> Order | None:
    """A command on its way to a worker; None if workers do not hear of it."""
    match command:
        case commands.StartWorker():
            return ("start",)
        case commands.KillWorker():
            return ("kill",)
        case commands.Assign():
            return ("assign", command.generation, command.rank, command.newcomer, command.planned, command.store)
        case commands.Prepare():
            return ("prepare", command.generation, command.rank, command.store)
        case commands.Drill():
            return ("drill", command.generation, command.number, command.rank)
        case commands.Abort():
            return ("abort", command.generation, command.lost, command.store)
        case commands.Publish():
            return ("publish", command.generation, command.ranks, command.store)
        case commands.Pause():
            return ("pause", command.generation, command.store)
        case commands.Recover(generation=g, start=start, newcomers=newcomers, holders=holders, leavers=leavers, store=store):
            return ("recover", g, start, newcomers, holders, leavers, store)
        case commands.Release():
            return ("release",)
        case _:
            return None


def obey(worker: Worker, message: Order, shape: Shape) -> Worker:
    """Do as `Control._handle`, and as the agent before it (`Agent._relay`, `_kill`)."""
    kind, *rest = message
    if kind == "kill":
        return dies(worker, "fenced")
    if kind == "release":
        return worker._replace(released=True)
    if kind == "start":  # a repeat: the agent reports what it knows
        return worker._replace(up=worker.up + story(worker))
    if kind == "publish":
        return worker  # `records`
    generation: int = rest[0]
    if generation > worker.entered:  # the agent forgets messages of older generations
        kept = tuple(event for event in worker.said if isinstance(event, events.Finished | events.Prepared | events.Drilled))
        worker = worker._replace(entered=generation, said=kept)
    if generation < worker.heard:
        return worker
    if kind == "drill":
        return _drills(worker, rest[1], rest[2])
    worker = worker._replace(heard=generation)
    if worker.mode in (Mode.REHEARSING, Mode.DRILLED):
        raise Wrong(f"{worker.name}, which was told to compute a step, is told to {kind}: whoever says so does not know of it")
    if kind in ("assign", "prepare") and worker.prepared not in (-1, rest[1]):
        return dies(worker, "prepared for another rank")
    if kind == "prepare":
        return worker._replace(mode=Mode.PREPARING, prepared=rest[1]) if worker.mode is Mode.SPARE else worker
    if kind == "assign":
        return _takes(worker, rest[1], generation, rest[2], shape) if worker.mode in WAITING else worker
    if kind == "recover":
        return worker._replace(recover=message)
    decided = worker.recover is not None and worker.recover[1] >= generation
    if worker.answer is not None and worker.answer.generation == generation and not decided:  # asked again: the same answer
        return worker._replace(up=(*worker.up, worker.answer))
    return worker._replace(abort=generation, called=message) if kind == "abort" else worker._replace(pause=generation)


def _drills(worker: Worker, number: int, rank: int) -> Worker:
    """The spare begins; the rank does at its next step, and may break it off at any moment."""
    if number <= worker.drill:
        return worker  # sent again
    if worker.rank < 0 and (worker.mode is not Mode.PREPARED or worker.prepared != rank):
        raise Wrong(f"{worker.name} has not been through the set-up of rank {rank}, and is told to compute a step of it")
    if worker.rank >= 0 and worker.rank != rank:
        raise Wrong(f"{worker.name} is rank {worker.rank}, and is told of a drill of rank {rank}")
    return worker._replace(drill=number, mode=Mode.REHEARSING if worker.rank < 0 else worker.mode)


def records(worker: Worker, message: Order | None) -> frozenset[tuple[int, str, int]]:
    """Return the records of the set-up that a worker publishes when it receives this, and again when it has stopped (`Answers.publish`),
    each by generation, store and rank: those of ranks of which it keeps copies, because the record comes with the first of them.
    """
    if message is None or message[0] not in ("abort", "publish") or message[1] < worker.heard:
        return frozenset()
    _, generation, ranks, store = message
    return frozenset((generation, store, rank) for rank, _ in worker.shelf if rank in ranks)


def _takes(worker: Worker, rank: int, generation: int, newcomer: bool, shape: Shape) -> Worker:
    """A warm worker gets a rank."""
    worker = worker._replace(rank=rank, newcomer=newcomer, came=newcomer)
    if newcomer:
        return worker._replace(mode=Mode.SETUP)
    if shape.setup:  # as far as anybody else can see, the set-up is a transaction like the others
        return worker._replace(mode=Mode.RUN, generation=generation, t=-1, applied=-1)
    shelf = frozenset((ward, -1) for ward in shape.wards(rank))
    return worker._replace(mode=Mode.IDLE, generation=generation, shelf=shelf)


def dies(worker: Worker, detail: str, cause: LossCause = LossCause.KILLED) -> Worker:
    """End its process, which its agent reports; if it was told to end, that is no loss."""
    if worker.released:
        return Worker(worker.name, worker.node, Mode.GONE, up=worker.up, said=worker.said)
    lost = events.WorkerLost(worker.name, cause, detail, 0.0)
    return Worker(worker.name, worker.node, Mode.GONE, up=(*worker.up, lost), said=worker.said, lost=lost)


def says(worker: Worker, event: events.Event) -> Worker:
    """Its agent remembers it, in case that it has to repeat it."""
    return worker._replace(up=(*worker.up, event), said=(*worker.said, event))


def warm(worker: Worker) -> tuple[events.Event, ...]:
    return (events.WorkerWarm(worker.name, f"s-{worker.name}", worker.rank),)


def story(worker: Worker) -> tuple[events.Event, ...]:
    """Return the events that its agent repeats when it connects."""
    if worker.lost is not None:
        return (*worker.said, worker.lost)
    if not worker.alive:
        return worker.said
    known = () if worker.mode is Mode.STARTING else warm(worker)
    return (events.WorkerStarted(worker.name, f"n{worker.node}", 1), *known, *worker.said)
