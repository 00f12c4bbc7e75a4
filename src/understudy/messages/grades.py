"""The grade of an incident: the evidence that its result is bitwise that of an undisturbed run, or why there is none."""

from __future__ import annotations

from understudy.messages.base import Message

_COMPARE = "Run `understudy drill` for this rank: a passing drill shows that a newcomer computes the same result."
_CHECKPOINT = "If the state matters, restart from a checkpoint taken before this incident."

STARTED_OVER = Message(
    "US4170",
    "no transaction had been committed, and all ranks started from the beginning",
    cause="The loss came before anything had been computed, so there is nothing that could be wrong.",
)
NOT_PROTECTED = Message(
    "US4192",
    "the script makes its own process group, so all ranks restarted from its beginning",
    cause="US1003 has reported that the script is not protected. Its ranks may have computed something before the loss, and load a "
    "checkpoint after it. Understudy cannot observe either.",
    remedy="Change the script as US1003 explains (`understudy explain US1003`).",
)
NO_NEWCOMER = Message(
    "US4171",
    "no rank has a new worker{compared}",
    cause="All ranks recovered in place, and nothing that they redid differs from what they had done before.",
)
COMPARED = Message(
    "US4172",
    "the collective inputs of the newcomer of {ranks} match those of the lost worker{compared}",
    cause="Every rank redid the interrupted step with the same collective inputs as before the loss. The newcomer's inputs match the "
    "digests that the lost worker had sent to its buddies.",
)
DRILLED = Message(
    "US4173",
    "{drills}, and no further state has begun to change since{compared}",
    cause="There is no record of what the lost worker would have computed next, but a drill showed that a spare computes the same bits as "
    "this rank or a rank with the same role.",
)
DRILLED_LATER = Message(
    "US4174",
    "{drills}, after the incident{compared}",
    cause="When the incident ended, nothing showed what the newcomer would compute. A drill after it showed that a spare computes the same "
    "bits as this rank or a rank with the same role, and covered everything that was known to change.",
)
RAISED = Message(
    "US4175",
    "incident {number} is {grade} now: {why}",
    cause="The incident was unproven only because a drill was lacking, and the drill has passed since.",
)
DIFFERED = Message(
    "US4180",
    "a redo differs from the interrupted attempt: {found}",
    cause="A survivor or a newcomer computed a different result in the redo than was computed before the loss.",
    remedy=f"Register what the difference names. {_CHECKPOINT}",
)
DECIDED = Message(
    "US4181",
    "ranks had different state, and {who} decided which to keep",
    cause="Replicas differed, or a redo did, and the job continued with one version.",
    remedy="If the state matters, compare it with a checkpoint.",
)
CORRUPT = Message(
    "US4182",
    "rank {rank} was corrupt, and its rank-local state (random streams, data position) was taken from the corrupt worker",
    cause="A rank was replaced because its state differed from that of its replicas.",
    remedy="If the state matters, compare it with a checkpoint.",
)
UNCOVERED = Message(
    "US4183",
    "{names}: changed by the script but not carried over",
    cause="The script changes something that is not registered and that Understudy cannot carry over. A newcomer has only the value from "
    "its own setup.",
    remedy="Register it (job.register, job.state), or exclude it (job.ignore). `understudy status --state` lists all such state.",
)
DRILL_FAILED = Message(
    "US4184",
    'drill {drill} of rank {of} had the verdict "{verdict}" at step {step}{found}',
    cause="A drill showed that a recovery of this rank, or of a rank with the same role, would not be bitwise identical.",
    remedy=f"Follow the remedy that the drill reported. {_CHECKPOINT}",
)
NOT_COMPARED = Message(
    "US4185",
    "rank {rank} redid {what}, and had called no collective before the loss whose input could be compared",
    cause="The loss came before this rank had called a collective in the interrupted step, or its input cannot be read.",
    remedy=_COMPARE,
)
NOT_DRILLED = Message(
    "US4186",
    "{what}, and no passing drill of rank {rank}, or of a rank with the same role, covers everything that changes now",
    cause="Nothing shows that the newcomer computes what the lost worker would have computed.",
    remedy=_COMPARE,
)
SECTION = Message(
    "US4187",
    "in a section, {what}, and drills compare only steps",
    cause="The loss came in a section. The newcomer has redone it, and nothing shows what the lost worker would have computed.",
    remedy="If the state matters, compare the section's result with that of an undisturbed run.",
)
REGISTERED_SINCE = Message(
    "US4189",
    "{why}; the registered state has changed since, so a drill can no longer show it",
    cause="The incident lacked a drill, and the registered state has changed since the incident.",
    remedy=_CHECKPOINT,
)
WARNED = Message(
    "US4188",
    "the job warned about state that a newcomer would not have: {text}",
    cause="The job, or the newcomer itself, reported that some of the lost worker's state cannot be restored on a newcomer.",
    remedy="Follow the remedy of the code in the text.",
)
WARNING = Message(
    "US4190",
    "UNPROVEN: no comparison or drill verifies the state after incident {number}: {why}",
    cause="The recovery completed, but neither a comparison nor a drill shows that its result is bitwise identical to that of an "
    "undisturbed run.",
    remedy="Read the reason and follow the remedy listed for its code. With --unproven pause the job waits for a decision after such an "
    "incident.",
)
PAUSED = Message(
    "US4191",
    "incident {number} is unproven: {why}. The job is paused (--unproven pause). Run `understudy resolve --keep-rank RANK` to continue, or "
    "`understudy stop` to end the job",
    cause="The job was started with --unproven pause, and a recovery could not be proven.",
    remedy="If the state is right, or the difference does not matter, run `understudy resolve --keep-rank RANK` with any rank. Otherwise "
    "stop the job and start from a checkpoint.",
)
