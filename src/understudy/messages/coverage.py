"""Coverage: which losses a job survives, what its ranks share, and replicas that differ."""

from __future__ import annotations

from understudy.messages.base import Message

_ODD = "{entry} ({of}) of rank {rank} is not what {others} hold before transaction {transaction}"
_CORRUPT = "Memory, a processor or an accelerator has changed bits, or the script computes something else on some ranks."

COVERED = Message(
    "US4710",
    "coverage: every rank has a replica, so the loss of any one rank is survived while spares last ({groups} hold the same "
    "state){together}",
    cause="All ranks have compared their state. Where a node or a failure domain holds all replicas of something, that is named.",
    remedy="If the loss of a node is not survived, spread the replicas over nodes.",
)
UNCOVERED = Message(
    "US4711",
    "coverage: {who} state that no other rank has ({count} tensors, {megabytes:.1f} MB, {example} for one): a loss of one of them CANNOT "
    "be survived. Add a replica dimension (for FSDP: a 2-D mesh, HSDP)",
    cause="The model is sharded without replicas. Understudy recovers large state from another rank that holds the same.",
    remedy="Add a replica dimension (for FSDP2 a 2-D mesh), or rely on checkpoints.",
)
ADOPTED = Message(
    "US4712",
    "coverage: adopted, though not registered: {names} (understudy status --state)",
    cause="The script changes these names between steps and has not registered them. They are handed over to newcomers all the same.",
    remedy="To be sure of them, register them or put them into job.state.",
)
PARTED = Message(
    "US4713",
    "coverage: {entry} (one of {count}) has become different on ranks that shared it: they no longer replace each other in it",
    cause="Ranks held the same at first, and compute different things with it. If that was not intended, they have diverged.",
    remedy="If these ranks should be replicas, find what makes them differ: a seed, data, an operation without synchronization.",
)
LAYOUTS_DIFFER = Message(
    "US4714",
    "before transaction {transaction}: {different}. Ranks that use it together need it alike",
    cause="A framework (DDP, FSDP2, a pipeline) is set up differently on ranks that use it together.",
    remedy="Construct it with the same arguments on all of these ranks.",
)
NO_LONGER_SAME = Message(
    "US4715",
    "rank {rank}: after the recovery, {entry} (of {count}) is no longer the same on ranks that shared it. The script computes with "
    "something that a newcomer does not get: register it (an LR schedule, an average of weights, ...)",
    cause="After a newcomer has taken a rank, replicas have diverged. So it computes with something else than the others.",
    remedy="Register what the newcomer lacks (job.register, job.state), prove it with `understudy drill`, and start from a checkpoint.",
)
DISPUTED = Message(
    "US4716",
    "{entry} ({of}) is not the same on {ranks} before transaction {transaction}",
    cause=f"Replicas hold different bits, and no side has the majority. {_CORRUPT}",
    remedy="Find out which rank is right, and run `understudy believe --rank RANK`, or stop the job.",
)
ODD = Message(
    "US4717",
    _ODD,
    cause=f"Most replicas speak against this rank. {_CORRUPT}",
    remedy="Check the node of this rank. The rank is replaced.",
)
ODD_BUT_ALONE = Message(
    "US4718",
    f"{_ODD}, and most speak against rank {{rank}}; but it alone holds {{alone}}, so it cannot be replaced",
    cause=f"Most replicas speak against this rank, but a part of its state has no other replica. {_CORRUPT}",
    remedy="Find out which rank is right, and run `understudy believe --rank RANK`, or stop the job and start from a checkpoint.",
)
MALFORMED = Message(
    "US4719",
    "malformed StateDigests of another worker: numbers of names that it does not have",
    cause="What another worker has sent does not fit together: corrupt memory, another version of Understudy, or a bug.",
    remedy="Run the same version everywhere, and check the nodes. Report it if it repeats.",
)
