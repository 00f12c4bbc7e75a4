"""Messages about the set-up of a worker that takes over a rank: the collectives that it repeats and the files that it reads."""

from __future__ import annotations

from understudy.messages.base import Message

SET_UP_TOO_LARGE = Message(
    "US1601",
    "collective number {number} of the set-up, {operator} on group {group!r}, gave {megabytes:.1f} MB ({shapes}) that are not in "
    "registered state, and a spare would have to be given the same. What is kept for that is limited to {limit:.1f} MB in all: register "
    "the tensor with job.register, let each rank load the data itself, or raise UNDERSTUDY_SETUP_LIMIT (bytes) on every rank",
    cause="Before its first transaction the script received large tensors from other ranks that are not registered. They are kept in "
    "memory for a replacement, whose set-up must receive the same.",
    remedy="Register the tensor, or load the data on each rank; a higher UNDERSTUDY_SETUP_LIMIT costs that memory on every rank.",
)
COLLECTIVE_ON_THE_WAY = Message(
    "US1611",
    "rank {rank}: {operator} on group {group!r} outside any transaction, on a newcomer that is still on its way: wrap it in @job.section",
    cause="A replacement ran past its set-up and reached a collective between transactions. The other ranks have done this one already, "
    "and do not take part again.",
    remedy="Put the collective into a function decorated with @job.section.",
)
COLLECTIVE_TOO_MANY = Message(
    "US1612",
    "rank {rank}: this newcomer calls {operator} on group {group!r} as collective number {number} of its set-up, but the lost rank had "
    "issued only {count} before its first transaction: the script does not set up the same way twice",
    cause="The replacement's set-up issues more collectives than the lost rank's did: a branch or a loop depends on something that "
    "differs between workers, such as a file, the time or the environment.",
    remedy="Let the set-up issue the same collectives on every worker, whenever it is started.",
)
COLLECTIVE_DIFFERS = Message(
    "US1613",
    "rank {rank}: collective number {number} of this newcomer's set-up is {here}, the lost rank's was {there}: the script does not set "
    "up the same way twice",
    cause="The replacement's set-up issues another collective than the lost rank's did, or one with another size: a branch or a size "
    "depends on something that differs between workers.",
    remedy="Let the set-up issue the same collectives on every worker, whenever it is started.",
)
COLLECTIVE_MISSING = Message(
    "US1614",
    "rank {rank}: this newcomer's set-up issued {issued} collectives, the lost rank's {count}; the first one missing is {operator} on "
    "group {group!r}: the script does not set up the same way twice",
    cause="The replacement's set-up issues fewer collectives than the lost rank's did: a branch or a loop depends on something that "
    "differs between workers.",
    remedy="Let the set-up issue the same collectives on every worker, whenever it is started.",
)
FILES_WRITTEN_SINCE = Message(
    "US1621",
    "This newcomer's set-up has read {files}{more}, which this job has written since its set-up: the first workers had another content "
    "there, or none, and what follows from it (a model, the epoch to begin with) is not theirs. Let every worker of a job set up from "
    "the same: give the snapshot and its epoch at the start (an argument, an environment variable) and save to other files",
    cause="The script resumes from a file if it exists, and the running job writes the same file. A replacement finds a newer one than "
    "the first workers did.",
    remedy="Pass the snapshot to resume from as an argument or an environment variable, and save to files of other names.",
)
NOT_SAVED = Message(
    "US1622",
    "{file} is not saved by a newcomer. {reason}",
    cause="A replacement whose set-up has read newer files than the first workers' (US1621) was about to save a checkpoint in its "
    "set-up. Its content would be wrong, so the file is left alone.",
    remedy="Let every worker of a job set up from the same files, and save inside a @job.section.",
)
PORT_TAKEN = Message(
    "US1624",
    "{error}. The script opens a port in its set-up, and while the rank is there, its own worker has that one: a spare beside it cannot "
    "have it. After a loss it is free, so that nothing speaks against the rank. To have spares come through the set-up beside it, open "
    "the port with SO_REUSEPORT, or go on without it where it is taken",
    cause="A spare that went through the set-up ahead of a loss, for a drill or to be prepared, has met an address that is in use: most "
    "likely by the worker whose rank it would take.",
    remedy="Open the port with SO_REUSEPORT, or catch the OSError if job.newcomer.",
)
STARTS_ANEW = Message(
    "US1623",
    "the job starts anew",
    cause="A rank was lost before anything was trained. The orchestrator ends all workers and starts others in their place.",
)
