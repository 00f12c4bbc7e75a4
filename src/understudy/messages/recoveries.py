"""Recoveries and their ends: who takes over, why a job cannot go on, and how it has ended."""

from __future__ import annotations

from understudy.messages.base import Message

_NO_SPARE = (
    "{reason}; the last step committed by every rank is {step}. No spare is left for {workers}. {missing} more would have saved the job: "
    "--spares {spares}{claims}"
)

TAKES_OVER = Message(
    "US4140",
    "spare {spare} on node {node} takes over rank {rank}",
    cause="A rank was lost, and this spare has taken its place: it sets up, and receives the state of the rank.",
)
HOLDS_FOR_SPARE = Message(
    "US4141",
    "no spare is warm for {ranks}: the job holds until one is",
    cause="More ranks were lost than spares are warm. Spares that start, or a node that was asked for, can still take them, so the job "
    "waits.",
    remedy="Wait. With more spares (--spares) the job would not have to.",
)
BECAME_RECOVERY = Message(
    "US4142",
    "began as a planned migration, turned into a recovery: {reason}",
    cause="While a rank was moved to another worker, a rank was lost or communication broke. The incident counts as unplanned from then "
    "on.",
)
BEGUN_BY_ANOTHER = Message(
    "US4143",
    "an orchestrator that was killed had begun generation {generation}, and the journal does not say why",
    cause="A rank has stopped for a generation that this orchestrator does not know: the one before it was killed before it could write "
    "its decision down. All ranks recover in place.",
)
MOVED_ON = Message(
    "US4144",
    "rank {rank} has moved on: it does not go back to {leaver}",
    cause="A loss came while the rank moved to a newcomer. The other ranks have gone past the boundary, so the newcomer was verified and "
    "has the rank.",
)
MOVED_BEFORE_KNOWN = Message(
    "US4145",
    "rank {rank} has moved on from {leaver}, by what the others say, before it was known that {newcomer} was verified",
    cause="The positions of the other ranks show that the newcomer had taken part in a vote, although its own report was lost.",
)
STAYS = Message(
    "US4146",
    "rank {rank} stays on {worker}: {reason}",
    cause="A loss came while the rank moved, before any rank had gone past the boundary. So the rank stays where it was.",
    remedy="Ask for the migration again if it is still wanted.",
)
SECTION_SKIPPED = Message(
    "US4147",
    "rank {rank} (worker {worker}): {detail}. All ranks skip this section, and training goes on",
    cause='A function with @job.section(on_error="report") has raised on this rank. Other ranks may have waited for it, so all of them '
    "went back to the section's begin. It returns None on every rank.",
    remedy="The traceback is in the rank's output. What the section writes is missing or incomplete until it succeeds.",
)
INCIDENT_OVER = Message(
    "US4150",
    "incident {number} is over: {what}; transaction {transaction} {decision}; {seconds:.2f} s from {since} to the next commit; no step "
    "lost{grade}",
    cause="Every rank committed a step after the interruption. The line ends with the grade (proven, drilled or unproven) and its reason. "
    "`understudy report` has the details.",
)
FINISHED_BEFORE_OVER = Message(
    "US4151",
    "all ranks finished before it was over",
    cause="The script of every rank ended while an incident was still open, so there was no commit after it.",
)
ALL_FINISHED = Message(
    "US4152",
    "all {ranks} ranks finished, {incidents}",
    cause="The script has ended well on every rank, and so has the job.",
)
NO_STATE_LEFT = Message(
    "US4160",
    "{reason}; no worker is left whose state is good, so nothing can be recovered from memory. Ranks on nodes that do not fail together "
    "would have saved the job; now only a checkpoint can",
    cause="All ranks were lost at once, or the last ones before a newcomer had its state. Understudy recovers from the memory of "
    "survivors.",
    remedy="Start again from a checkpoint. Spread ranks over nodes and failure domains that do not fail together.",
)
IMPOSSIBLE_POSITIONS = Message(
    "US4161",
    "the job cannot go on after this: {reason}. {error}. Please report this as a bug.",
    cause="The positions that the survivors report contradict the protocol. Going on could compute something wrong without a word.",
    remedy="Report it with the run directory (the journal has all events). Start again from a checkpoint.",
)
NO_SPARE_LEFT = Message(
    "US4162",
    _NO_SPARE,
    cause="A rank was lost, and no spare is warm, starts, or can be asked for.",
    remedy="Start again from a checkpoint, with more spares (--spares) or with floating spares (--floating-spares).",
)
WAITED_FOR_SPARE = Message(
    "US4163",
    f"{_NO_SPARE} (waited {{seconds:g}} s for one to warm)",
    cause="A rank was lost, and no spare became warm within --setup-limit.",
    remedy="Read what the spares have printed, in the run directory, to see why they do not start. Start again from a checkpoint, with "
    "more spares.",
)
LOST_AGAIN = Message(
    "US4164",
    "rank {rank} was lost {times} times at {where} (after step {step}): the script or its data, not the hardware, is the likely cause. The "
    "last time: {reason}",
    cause="The same rank was lost at the same transaction, on several workers. Hardware does not fail that way; a step that always ends "
    "its process does.",
    remedy="Look at what the script does in this step on this rank: its batch, its memory, its native code. Mend it, and start from a "
    "checkpoint.",
)
UNVERIFIED_AGAIN = Message(
    "US4165",
    "rank {rank} got state that did not verify {times} times at {where} (after step {step}): a donor's memory or the network cannot be "
    "trusted. The last time: {reason}",
    cause="Several newcomers have received state for this rank whose digests are not those of the donors.",
    remedy="Check the nodes of the donors and the network (`understudy check-node`). Leave the bad node out, and start from a checkpoint.",
)
UNLIKE_AGAIN = Message(
    "US4159",
    "{times} newcomers in a row did not come to what rank {rank} had at {where} (after step {step}): the script or its data, not the "
    "hardware, is the likely cause, and another spare would fare no better. The last time: {reason}",
    cause="Newcomers of this rank have drawn another batch than it, or have set up something else. What the script does there depends on "
    "something that they do not have: the process, the time, a generator that is not seeded, a file that has changed.",
    remedy="Do what the reason says, and prove it with `understudy drill`. Start from a checkpoint.",
)
BREAKS_AGAIN = Message(
    "US4166",
    "communication broke {times} times at transaction {transaction} although no worker was lost. The last time: {reason}",
    cause="All ranks recovered in place several times, and communication broke at the same transaction again. No worker was lost that "
    "would explain it.",
    remedy="Check the network between the nodes that are named, and whether all ranks issue the same collectives in this step.",
)
LOST_TOGETHER = Message(
    "US4167",
    "{reason}. {lost} were lost together, and with them the only copy of the own state (random generators, data position, values that "
    "differ from rank to rank) of {uncovered}: each rank's copy is with a buddy rank. Buddies on nodes that do not fail together would "
    "have saved the job.",
    cause="Each rank hands a copy of its own state to buddy ranks with every vote. The rank and all of its buddies were lost at once.",
    remedy="Start again from a checkpoint. Spread ranks over nodes or failure domains that do not fail together (--failure-domain).",
)
STATE_NOWHERE = Message(
    "US4168",
    "{reason}. The lost state is nowhere: {detail}",
    cause="A survivor has found that no other rank holds a part of a lost rank's state, and that there is no copy of it.",
    remedy="Start again from a checkpoint. Give every shard a replica (for FSDP2 a 2-D mesh), and see the coverage that is printed at the "
    "start.",
)
STATE_NOWHERE_ALONE = Message(
    "US4169",
    "The lost state is nowhere: {detail}",
    cause="As US4168, without a loss that is known here.",
    remedy="Start again from a checkpoint. Give every shard a replica (for FSDP2 a 2-D mesh), and see the coverage that is printed at the "
    "start.",
)
