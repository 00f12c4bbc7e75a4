"""Coverage: which losses a job survives, what its ranks share, and replicas that differ."""

from __future__ import annotations

from understudy.messages.base import Message

_ODD = "{entry} ({of}) of rank {rank} differs from that of {others} before transaction {transaction}"
_CORRUPT = "Memory, a processor or an accelerator changed bits, or the script computes something different on some ranks."

COVERED = Message(
    "US4710",
    "coverage: every rank has a replica, so the loss of any one rank is survived while spares last ({groups} hold the same "
    "state){together}",
    cause="All ranks have compared their state. If a node or a failure domain holds all replicas of something, it is named.",
    remedy="Spread the replicas over nodes if the job does not survive the loss of a node.",
)
UNCOVERED = Message(
    "US4711",
    "coverage: {who} state that no other rank has ({count} tensors, {megabytes:.1f} MB, for example {example}): the job CANNOT survive the "
    "loss of one of them. Add a replica dimension (for FSDP: a 2-D mesh, HSDP)",
    cause="The model is sharded without replicas. Understudy recovers large state from another rank that holds the same.",
    remedy="Add a replica dimension (for FSDP2 a 2-D mesh), or rely on checkpoints.",
)
ADOPTED = Message(
    "US4712",
    "coverage: adopted, though not registered: {names} (understudy status --state)",
    cause="The script changes these names between steps and has not registered them. They are handed over to newcomers nevertheless.",
    remedy="Register them or put them into job.state to be sure that they are kept.",
)
PARTED = Message(
    "US4713",
    "coverage: {entry} (one of {count}) has diverged on ranks that shared it: they are no longer replicas of each other for it",
    cause="Ranks held the same value at first, and now compute different ones. If that is not intended, they have diverged by mistake.",
    remedy="Find what makes these ranks differ if they should be replicas: a seed, data, an operation without synchronization.",
)
LAYOUTS_DIFFER = Message(
    "US4714",
    "before transaction {transaction}: {different}. It must be the same on all ranks that use it together",
    cause="A framework (DDP, FSDP2, a pipeline) is set up differently on ranks that use it together.",
    remedy="Construct it with the same arguments on all of these ranks.",
)
NO_LONGER_SAME = Message(
    "US4715",
    "rank {rank}: after the recovery, {entry} (of {count}) is no longer the same on ranks that shared it. The script depends on something "
    "that a newcomer does not receive: register it (an LR schedule, an average of weights, ...)",
    cause="After a newcomer took over a rank, replicas diverged. So the newcomer computes with different state than the others.",
    remedy="Register the missing state (job.register, job.state), verify with `understudy drill`, and start from a checkpoint.",
)
DISPUTED = Message(
    "US4716",
    "{entry} ({of}) differs between {ranks} before transaction {transaction}",
    cause=f"Replicas hold different bits, and no side has the majority. {_CORRUPT}",
    remedy="Find out which rank is right, and run `understudy resolve --keep-rank RANK`, or stop the job.",
)
ODD = Message(
    "US4717",
    _ODD,
    cause=f"The majority of the replicas differ from this rank. {_CORRUPT}",
    remedy="Check the node of this rank. The rank is replaced.",
)
ODD_BUT_ALONE = Message(
    "US4718",
    f"{_ODD}, and rank {{rank}} is in the minority; but it alone holds {{alone}}, so it cannot be replaced",
    cause=f"The majority of the replicas differ from this rank, but a part of its state has no other replica. {_CORRUPT}",
    remedy="Find out which rank is right, and run `understudy resolve --keep-rank RANK`, or stop the job and start from a checkpoint.",
)
MALFORMED = Message(
    "US4719",
    "malformed StateDigests of another worker: it refers to names that it does not contain",
    cause="A message of another worker is inconsistent: corrupt memory, another version of Understudy, or a bug.",
    remedy="Run the same version everywhere, and check the nodes. Report it if it repeats.",
)
