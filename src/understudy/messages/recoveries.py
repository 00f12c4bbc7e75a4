"""Recoveries and their ends: which spare takes over, why a job cannot continue, and how it ended."""

from __future__ import annotations

from understudy.messages.base import Message

_NO_SPARE = (
    "{reason}; the last step committed by every rank is {step}. No spare is left for {workers}. {missing} more would have saved the job: "
    "--spares {spares}{claims}"
)

TAKES_OVER = Message(
    "US4140",
    "spare {spare} on node {node} takes over rank {rank}",
    cause="A rank was lost, and this spare takes its place: it runs the setup of the script and receives the state of the rank.",
)
HOLDS_FOR_SPARE = Message(
    "US4141",
    "no spare is warm for {ranks}: the job waits for one",
    cause="More ranks were lost than spares are warm. Spares that are starting, or a node that was requested, can still take them over, so "
    "the job waits.",
    remedy="Wait. To avoid this wait, start the job with more spares (--spares).",
)
BECAME_RECOVERY = Message(
    "US4142",
    "began as a planned migration, turned into a recovery: {reason}",
    cause="While a rank was moving to another worker, a rank was lost or communication failed. The incident counts as unplanned from then "
    "on.",
)
BEGUN_BY_ANOTHER = Message(
    "US4143",
    "an orchestrator that was killed had begun generation {generation}, and the journal does not record why",
    cause="A rank stopped for a generation that this orchestrator does not know: the previous orchestrator was killed before it could "
    "write its decision to the journal. All ranks recover in place.",
)
MOVED_ON = Message(
    "US4144",
    "rank {rank} has moved: it does not return to {leaver}",
    cause="A rank was lost while this one moved to a newcomer. The other ranks had already passed the step boundary, so the newcomer was "
    "verified and keeps the rank.",
)
MOVED_BEFORE_KNOWN = Message(
    "US4145",
    "rank {rank} has moved from {leaver}, according to the other ranks, before it was known that {newcomer} was verified",
    cause="The positions of the other ranks show that the newcomer took part in a vote, although its own report was lost.",
)
STAYS = Message(
    "US4146",
    "rank {rank} stays on {worker}: {reason}",
    cause="A rank was lost while this one was moving, before any rank had passed the step boundary. So the rank stays where it was.",
    remedy="Request the migration again if it is still wanted.",
)
SECTION_SKIPPED = Message(
    "US4147",
    "rank {rank} (worker {worker}): {detail}. All ranks skip this section, and training continues",
    cause='A function with @job.section(on_error="report") raised an exception on this rank. Other ranks may have been waiting for it, so '
    "all of them returned to the beginning of the section. It returns None on every rank.",
    remedy="Read the traceback in the rank's output. The files that the section writes are missing or incomplete until it succeeds.",
)
INCIDENT_OVER = Message(
    "US4150",
    "incident {number} is over: {what}; transaction {transaction} {decision}; {seconds:.2f} s from {since} to the next commit; no step "
    "lost{grade}",
    cause="Every rank committed a step after the interruption. The message ends with the grade (proven, drilled or unproven) and its "
    "reason. `understudy report` has the details.",
)
FINISHED_BEFORE_OVER = Message(
    "US4151",
    "all ranks finished before the incident was over",
    cause="The script of every rank ended while an incident was still open, so there was no commit after it.",
)
ALL_FINISHED = Message(
    "US4152",
    "all {ranks} ranks finished, {incidents}",
    cause="The script ended successfully on every rank, and so did the job.",
)
NO_STATE_LEFT = Message(
    "US4160",
    "{reason}; no worker with good state is left, so nothing can be recovered from memory. Ranks on nodes that do not fail together would "
    "have saved the job; now only a checkpoint can",
    cause="All ranks were lost at once, or the last ones were lost before a newcomer had received its state. Understudy recovers from the "
    "memory of survivors.",
    remedy="Start again from a checkpoint. Spread ranks over nodes and failure domains that do not fail together.",
)
IMPOSSIBLE_POSITIONS = Message(
    "US4161",
    "the job cannot continue after this: {reason}. {error}. Please report this as a bug.",
    cause="The positions that the survivors reported contradict the protocol. If the job continued, its result could be wrong without "
    "notice.",
    remedy="Report it, with the run directory attached (the journal has all events). Start again from a checkpoint.",
)
NO_SPARE_LEFT = Message(
    "US4162",
    _NO_SPARE,
    cause="A rank was lost, and no spare is warm or starting, and none can be requested.",
    remedy="Start again from a checkpoint, with more spares (--spares) or with floating spares (--floating-spares).",
)
WAITED_FOR_SPARE = Message(
    "US4163",
    f"{_NO_SPARE} (waited {{seconds:g}} s for one to become warm)",
    cause="A rank was lost, and no spare became warm within --setup-limit.",
    remedy="Read the spares' output in the run directory to see why they do not start. Start again from a checkpoint, with more spares.",
)
LOST_AGAIN = Message(
    "US4164",
    "rank {rank} was lost {times} times at {where} (after step {step}): the script or its data, not the hardware, is the likely cause. "
    "Last reason: {reason}",
    cause="The same rank was lost at the same transaction, on several workers. Hardware does not fail that way; a step that always ends "
    "its process does.",
    remedy="Check what the script does in this step on this rank: its batch, its memory, its native code. Fix it, and start from a "
    "checkpoint.",
)
UNVERIFIED_AGAIN = Message(
    "US4165",
    "rank {rank} received state that failed verification {times} times at {where} (after step {step}): a donor's memory or the network "
    "cannot be trusted. Last reason: {reason}",
    cause="Several newcomers received state for this rank whose digests differ from those of the donors.",
    remedy="Check the nodes of the donors and the network (`understudy check-node`). Remove the bad node, and start from a checkpoint.",
)
UNLIKE_AGAIN = Message(
    "US4159",
    "{times} newcomers in a row did not reproduce the state of rank {rank} at {where} (after step {step}): the script or its data, not the "
    "hardware, is the likely cause, and another spare would fail in the same way. Last reason: {reason}",
    cause="Newcomers of this rank drew a different batch, or set up something different. What the script does there depends on something "
    "that they do not have: the process, the time, a generator that is not seeded, a file that has changed.",
    remedy="Follow the remedy in the reason, and verify with `understudy drill`. Start from a checkpoint.",
)
BREAKS_AGAIN = Message(
    "US4166",
    "communication failed {times} times at transaction {transaction} although no worker was lost. Last reason: {reason}",
    cause="All ranks recovered in place several times, and communication failed at the same transaction again. No worker was lost that "
    "would explain it.",
    remedy="Check the network between the nodes that are named, and check that all ranks issue the same collectives in this step.",
)
LOST_TOGETHER = Message(
    "US4167",
    "{reason}. {lost} were lost together, and with them the only copy of the rank-local state (random generators, data position, values "
    "that differ from rank to rank) of {uncovered}: each rank's copy is with a buddy rank. Buddies on nodes that do not fail together "
    "would have saved the job.",
    cause="Each rank sends a copy of its rank-local state to buddy ranks with every vote. The rank and all of its buddies were lost at "
    "once.",
    remedy="Start again from a checkpoint. Spread ranks over nodes or failure domains that do not fail together (--failure-domain).",
)
STATE_NOWHERE = Message(
    "US4168",
    "{reason}. No copy of the lost state exists: {detail}",
    cause="A survivor found that no other rank holds a part of a lost rank's state, and that there is no copy of it.",
    remedy="Start again from a checkpoint. Give every shard a replica (for FSDP2 a 2-D mesh), and check the coverage that is printed at "
    "the start.",
)
STATE_NOWHERE_ALONE = Message(
    "US4169",
    "No copy of the lost state exists: {detail}",
    cause="The same as US4168, but no loss is known that explains it.",
    remedy="Start again from a checkpoint. Give every shard a replica (for FSDP2 a 2-D mesh), and check the coverage that is printed at "
    "the start.",
)
