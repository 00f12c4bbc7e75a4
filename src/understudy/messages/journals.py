"""What `understudy journal` says."""

from __future__ import annotations

from understudy.messages.base import Message

NO_JOURNAL = Message(
    "US5061",
    "there is no journal at {path}",
    cause="The folder is not that of a run or of a service's state, or its journal is in a PostgreSQL database.",
    remedy="Give the folder that has `journal.db`. For PostgreSQL use `pg_dump`.",
)
VERIFIED = Message(
    "US5062",
    "jobs read: {jobs}; of these cannot be used: {damaged}",
    cause="The whole journal was read, and every job replayed.",
)
NOT_REPLAYED = Message(
    "US5063",
    "job {job} cannot be replayed: {error}",
    cause="The events can be read, but do not follow from each other: some were changed or are missing.",
    remedy="Restore a copy of the journal.",
)
NOT_READ = Message(
    "US5069",
    "{path} cannot be read: {reason}",
    cause="The file is locked, or there is no room or no right to read it.",
    remedy="Check the disk and the rights, and try again.",
)
EMPTY = Message(
    "US5070",
    "{path} tells of no job",
    cause="The file is empty, or a journal in which no job has begun.",
    remedy="Give another one.",
)
COPY_EXISTS = Message(
    "US5064",
    "{path} exists already",
    cause="A copy never takes the place of another file.",
    remedy="Give another name.",
)
NOT_COPIED = Message(
    "US5065",
    "{path} was not copied to {copy}: {reason}",
    cause="The journal could not be read, or the copy could not be written.",
    remedy="Check the disk, and the rights of both folders.",
)
COPIED = Message(
    "US5066",
    "copied to {copy}; jobs: {jobs}; of these cannot be used: {damaged}",
    cause="The copy is complete as of one moment, and was read again.",
)
IN_USE = Message(
    "US5067",
    "an orchestrator runs in {path}",
    cause="The journal of an orchestrator that runs cannot be replaced.",
    remedy="Stop the orchestrator first. Jobs train on meanwhile.",
)
RESTORED = Message(
    "US5068",
    "{path} is that of {copy} now; what was there: {kept}",
    cause="A copy was put in the place of the journal.",
    remedy="Start the orchestrator.",
)
