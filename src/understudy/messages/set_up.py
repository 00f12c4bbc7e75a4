"""Messages about the setup of a worker that takes over a rank: the collectives that it repeats and the files that it reads."""

from __future__ import annotations

from understudy.messages.base import Message

SET_UP_TOO_LARGE = Message(
    "US1601",
    "collective number {number} of the setup, {operator} on group {group!r}, gave {megabytes:.1f} MB ({shapes}) that are not in "
    "registered state, and a spare would have to receive the same data. The memory for such data is limited to {limit:.1f} MB in total: "
    "register the tensor with job.register, let each rank load the data itself, or raise UNDERSTUDY_SETUP_LIMIT (bytes) on every rank",
    cause="Before its first transaction the script received large tensors from other ranks that are not registered. They are kept in "
    "memory for a newcomer, whose setup must receive the same data.",
    remedy="Register the tensor, or load the data on each rank; a higher UNDERSTUDY_SETUP_LIMIT costs that memory on every rank.",
)
COLLECTIVE_ON_THE_WAY = Message(
    "US1611",
    "rank {rank}: {operator} on group {group!r} outside any transaction, on a newcomer that has not yet reached the place where the job "
    "continues: wrap it in @job.section",
    cause="A newcomer completed its setup and reached a collective between transactions. The other ranks have already executed this one, "
    "and do not take part again.",
    remedy="Put the collective into a function decorated with @job.section.",
)
COLLECTIVE_TOO_MANY = Message(
    "US1612",
    "rank {rank}: this newcomer calls {operator} on group {group!r} as collective number {number} of its setup, but the lost rank issued "
    "only {count} before its first transaction: the setup of the script is not reproducible",
    cause="The newcomer's setup issues more collectives than the lost rank's did: a branch or a loop depends on something that differs "
    "between workers, such as a file, the time or the environment.",
    remedy="Make the setup issue the same collectives on every worker, whenever the worker starts.",
)
COLLECTIVE_DIFFERS = Message(
    "US1613",
    "rank {rank}: collective number {number} of this newcomer's setup is {here}, the lost rank's was {there}: the setup of the script is "
    "not reproducible",
    cause="The newcomer's setup issues a different collective than the lost rank's did, or one of a different size: a branch or a size "
    "depends on something that differs between workers.",
    remedy="Make the setup issue the same collectives on every worker, whenever the worker starts.",
)
COLLECTIVE_MISSING = Message(
    "US1614",
    "rank {rank}: this newcomer's setup issued {issued} collectives, the lost rank's {count}; the first one missing is {operator} on "
    "group {group!r}: the setup of the script is not reproducible",
    cause="The newcomer's setup issues fewer collectives than the lost rank's did: a branch or a loop depends on something that differs "
    "between workers.",
    remedy="Make the setup issue the same collectives on every worker, whenever the worker starts.",
)
FILES_WRITTEN_SINCE = Message(
    "US1621",
    "This newcomer's setup read {files}{more}, which this job has written since its own setup: the first workers found different content "
    "there, or none, so everything that is derived from it (a model, the first epoch) differs from theirs. Let every worker of a job set "
    "up from the same data: pass the snapshot and its epoch at the start (an argument, an environment variable) and save to other files",
    cause="The script resumes from a file if it exists, and the running job writes the same file. A newcomer finds a newer version than "
    "the first workers did.",
    remedy="Pass the snapshot to resume from as an argument or an environment variable, and save to files of other names.",
)
NOT_SAVED = Message(
    "US1622",
    "the newcomer does not save {file}. {reason}",
    cause="A newcomer whose setup read newer files than the first workers' (US1621) tried to save a checkpoint in its setup. Its content "
    "would be wrong, so the file is not written.",
    remedy="Let every worker of a job set up from the same files, and save inside a @job.section.",
)
PORT_TAKEN = Message(
    "US1624",
    "{error}. The script opens a port in its setup, and while the rank is running, its own worker uses that port: a spare that runs "
    "the setup at the same time cannot open it. After a loss the port is free, so this is not evidence against the rank. To let spares "
    "complete the setup in the meantime, open the port with SO_REUSEPORT, or continue without it if it is in use",
    cause="A spare that ran the setup before a loss, for a drill or to be prepared, found an address in use: most likely by the worker "
    "whose rank it would take over.",
    remedy="Open the port with SO_REUSEPORT, or catch the OSError if job.newcomer.",
)
RESTARTS = Message(
    "US1623",
    "the job restarts from the beginning",
    cause="A rank was lost before anything was trained. The orchestrator ends all workers and starts new ones.",
)
