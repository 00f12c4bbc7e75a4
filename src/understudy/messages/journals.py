"""Messages of `understudy journal`."""

from __future__ import annotations

from understudy.messages.base import Message

NO_JOURNAL = Message(
    "US5061",
    "there is no journal at {path}",
    cause="The folder is not a run directory or the state of a service, or its journal is in a PostgreSQL database.",
    remedy="Give the folder that has `journal.db`. For PostgreSQL use `pg_dump`.",
)
VERIFIED = Message(
    "US5062",
    "jobs read: {jobs}; unusable jobs: {damaged}",
    cause="The whole journal was read, and every job replayed.",
)
NOT_REPLAYED = Message(
    "US5063",
    "job {job} cannot be replayed: {error}",
    cause="The events can be read, but contradict each other: some were changed or are missing.",
    remedy="Restore a copy of the journal.",
)
NOT_READ = Message(
    "US5069",
    "{path} cannot be read: {reason}",
    cause="The file is locked, or there is no space or no permission to read it.",
    remedy="Check the disk and the permissions, and try again.",
)
EMPTY = Message(
    "US5070",
    "{path} contains no job",
    cause="The file is empty, or a journal in which no job has begun.",
    remedy="Give another one.",
)
COPY_EXISTS = Message(
    "US5064",
    "{path} already exists",
    cause="A copy never overwrites another file.",
    remedy="Give another name.",
)
NOT_COPIED = Message(
    "US5065",
    "{path} was not copied to {copy}: {reason}",
    cause="The journal could not be read, or the copy could not be written.",
    remedy="Check the disk, and the permissions of both folders.",
)
COPIED = Message(
    "US5066",
    "copied to {copy}; jobs: {jobs}; unusable jobs: {damaged}",
    cause="The copy is complete as of one point in time, and was read back.",
)
IN_USE = Message(
    "US5067",
    "an orchestrator is running in {path}",
    cause="The journal of a running orchestrator cannot be replaced.",
    remedy="Stop the orchestrator first. Jobs continue to train.",
)
RESTORED = Message(
    "US5068",
    "{path} is restored from {copy}; the previous content: {kept}",
    cause="A copy has replaced the journal.",
    remedy="Start the orchestrator.",
)
