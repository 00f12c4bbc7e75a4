"""The grade of an incident: what shows that its result is bitwise what it would have been, or why nothing does."""

from __future__ import annotations

from understudy.messages.base import Message

_COMPARE = "Run `understudy drill` for this rank now: a drill that passes shows whether a newcomer computes the same."

STARTED_OVER = Message(
    "US4170",
    "no transaction had been committed, and all ranks have started from the beginning",
    cause="The loss came before anything had been computed, so there is nothing that could be wrong.",
)
NOBODY_NEW = Message(
    "US4171",
    "no rank has a new worker{compared}",
    cause="All ranks recovered in place, and nothing that they redid differs from what they had done before.",
)
COMPARED = Message(
    "US4172",
    "the newcomer of {ranks} gave what the lost worker had given{compared}",
    cause="Every rank has redone the interrupted step, and has put the same into its collectives as before the loss. The newcomer has put "
    "into them what the lost worker had told its buddies.",
)
DRILLED = Message(
    "US4173",
    "{drills}, and nothing new has been seen to change since then{compared}",
    cause="Nothing shows what the lost worker would have computed next. But a drill has shown that a spare computes the same bits as this "
    "rank, or as one with its role.",
)
DIFFERED = Message(
    "US4180",
    "a redo is not what it redoes: {found}",
    cause="A survivor had computed something else before the loss than in its redo.",
    remedy="Register what the difference names. If the state matters, go back to a checkpoint from before this incident.",
)
DECIDED = Message(
    "US4181",
    "ranks held different state, and {who} decided which is right",
    cause="Replicas differed, or a redo did, and the job went on with one side.",
    remedy="If the state matters, compare it with a checkpoint.",
)
CORRUPT = Message(
    "US4182",
    "rank {rank} was corrupt, and what only this rank has (random streams, data position) comes from its worker",
    cause="A rank was replaced because its state differed from that of its replicas.",
    remedy="If the state matters, compare it with a checkpoint.",
)
UNCOVERED = Message(
    "US4183",
    "{names}: changed by the script, and not carried over",
    cause="The script changes something that is not registered and that Understudy cannot carry over. A newcomer has what its set-up made.",
    remedy="Register it (job.register, job.state), or say that it does not matter (job.ignore). `understudy status --state` lists all.",
)
DRILL_FAILED = Message(
    "US4184",
    "drill {drill} of rank {of} had found at step {step} that it is {verdict}{found}",
    cause="A drill had shown before the loss that a recovery of this rank would not be bitwise.",
    remedy="Do what the drill says. If the state matters, go back to a checkpoint from before this incident.",
)
NOT_COMPARED = Message(
    "US4185",
    "rank {rank} has redone {what}, and had put nothing into a collective before the loss that could be compared",
    cause="The loss came before this rank had called a collective in the interrupted step, or what it put in cannot be read.",
    remedy=_COMPARE,
)
NOT_DRILLED = Message(
    "US4186",
    "{what}, and no drill of rank {rank}, or of one with its role, has passed that has seen all that changes now",
    cause="Nothing shows that the newcomer computes what the lost worker would have computed.",
    remedy=_COMPARE,
)
SECTION = Message(
    "US4187",
    "{what} in a section, and drills compare steps only",
    cause="The loss came in a section. The newcomer has redone it, and nothing shows what the lost worker would have computed.",
    remedy="If the state matters, compare what the section gave with what it gives in an undisturbed run.",
)
WARNING = Message(
    "US4190",
    "UNPROVEN: nothing shows that the state is right after incident {number}: {why}",
    cause="A recovery was made, and neither a comparison nor a drill shows that its result is bitwise what it would have been.",
    remedy="Read the reason, and do what its entry says. With --unproven pause the job waits for a decision after such an incident.",
)
PAUSED = Message(
    "US4191",
    "incident {number} is unproven: {why}. The job is held because of --unproven pause. `understudy believe --rank RANK` goes on, "
    "`understudy stop` ends the job",
    cause="The job was started with --unproven pause, and a recovery could not be proven.",
    remedy="If the state is right, or the difference does not matter, run `understudy believe --rank RANK` with any rank. Otherwise stop "
    "the job and start from a checkpoint.",
)
