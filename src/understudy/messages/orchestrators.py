"""Messages of an orchestrator's process: its start, who may use it, its journal, and which of several leads."""

from __future__ import annotations

from understudy.messages.base import Message

FOLDER_TAKEN = Message(
    "US5000",
    "another orchestrator uses {folder}: several orchestrators with one state need a PostgreSQL database (--database)",
    cause="The folder is locked by a running orchestrator. Two of them would make conflicting decisions.",
    remedy="End the other one, give another folder, or let both use one database.",
)

TOKEN_NEEDED = Message(
    "US5001",
    "listening on {host} needs a token or mutual TLS, because other hosts can reach it: write a long random text into a file that only you "
    "can read, and pass it with --token-file (or in UNDERSTUDY_TOKEN); `understudy token` derives tokens for agents and users from it. Or "
    "create certificates with `understudy certs`, and pass them with --tls",
    cause="The address can be reached from other hosts, and no setting restricts who may use the orchestrator.",
    remedy="Give --token-file or --tls, or listen on 127.0.0.1.",
)

SECRET_TOO_SHORT = Message(
    "US5002",
    "the secret in --token-file or UNDERSTUDY_TOKEN is too easy to guess: at least {least} characters",
    cause="Other hosts can reach the address, and a short secret can be found by trying.",
    remedy="Generate one, for example with `openssl rand -hex 32`.",
)

SECRET_FILE_EMPTY = Message(
    "US5003",
    "{path} is empty: write a long random text into it",
    cause="The file that should hold the secret is empty or holds only white space.",
    remedy="Write a secret into it, for example with `openssl rand -hex 32`.",
)

SETTINGS_NEEDED = Message(
    "US5004",
    "--spec-json is needed: {folder} has no journal",
    cause="An orchestrator of one job was started without the job's settings, and the folder has no journal that holds them.",
    remedy="Start jobs with `understudy run`, which passes the settings, or give the folder of an existing run.",
)

SETTINGS_REFUSED = Message(
    "US5005",
    "not the settings of a job: {reason}",
    cause="The text of --spec-json, or the settings in the journal, lack something or hold a value that is not allowed.",
    remedy="Start jobs with `understudy run`. If the journal is meant, use the Understudy that wrote it.",
)

CERTIFICATE_FOLDER_INCOMPLETE = Message(
    "US5006",
    "{folder} has no {file}: create such a folder with `understudy certs`",
    cause="A folder for --tls needs tls.crt, tls.key and ca.crt.",
    remedy="Give a folder that `understudy certs server` created, or put the file there.",
)

TLS_HALVES = Message(
    "US5007",
    "--tls-cert and --tls-key must be given together",
    cause="A certificate was given without its key, or a key without its certificate.",
    remedy="Give both.",
)

TLS_TWICE = Message(
    "US5008",
    "--tls names a folder with the certificate and its key: leave out --tls-cert and --tls-key",
    cause="Two server certificates were given.",
    remedy="Give --tls, or --tls-cert and --tls-key.",
)

MEMBERS_OF_SERVICE = Message(
    "US5009",
    "--members is for --run-dir: for a service use --database",
    cause="--members belongs to the orchestrators of a single job, which `understudy run` starts with --run-dir and which share nothing. "
    "Those of a service share a database.",
    remedy="Leave out --members and give --database.",
)

DATABASE_FORM = Message(
    "US5010",
    "--database takes a URL such as postgresql://user@host/name; without it the journal is an SQLite file",
    cause="The value is not the address of a PostgreSQL database.",
    remedy="Correct --database or UNDERSTUDY_DATABASE.",
)

ADDRESS_UNUSABLE = Message(
    "US5011",
    "{address}: {reason}",
    cause="The orchestrator cannot listen on this address: another process uses it, or the host does not have it.",
    remedy="Give another port, or the address of this host.",
)

UNUSABLE = Message(
    "US5012",
    "{reason}",
    cause="A file or the address that the orchestrator needs could not be used.",
    remedy="Correct what the reason names.",
)

CERTIFICATE_NAME_REFUSED = Message(
    "US5013",
    "{name!r} cannot be a name: use letters, digits, dots, dashes, at most 64 characters, and not {authority!r}",
    cause="The name becomes a folder and the common name of a certificate.",
    remedy="Choose another name.",
)

AUTHORITY_KEY_REFUSED = Message(
    "US5014",
    "{path} is not a key that `understudy certs init` created",
    cause="The key of the authority has a different type.",
    remedy="Give the folder of an authority that `understudy certs init` created, or sign with the tool that created this one.",
)

SERVING = Message(
    "US5020",
    "serving at {url}",
    cause="The orchestrator can be reached at this address.",
)

SERVICE_ENDS = Message(
    "US5021",
    "{signal} received: the orchestrator ends, its jobs continue; start it again with the same --state-dir",
    cause="The orchestrator of a service was requested to end. Its jobs continue to train without it.",
)

SERVER_STOPPED = Message(
    "US5022",
    "the orchestrator's server has stopped",
    cause="The HTTP server could not start or failed; without it nothing can be controlled.",
    remedy="Read the output above. If it does not show the reason, report it as a bug.",
)

ADDRESS_UNWRITTEN = Message(
    "US5023",
    "{path} cannot be written ({reason}): it still has the address of the previous orchestrator",
    cause="The disk is full or cannot be written. Agents and commands find the orchestrator by this file.",
    remedy="Free space on the disk. If the port has changed, restart the orchestrator afterwards.",
)

JOURNAL_UNREADABLE_NOW = Message(
    "US5030",
    "the journal {path} cannot be read ({reason}); training continues, retrying",
    cause="The file cannot be read at the moment, often because SQLite finds no space on the disk.",
    remedy="Free space on the disk of the journal.",
)

JOURNAL_UNWRITTEN = Message(
    "US5031",
    "the journal {path} cannot be written ({reason}); training continues, retrying. Until then, ranks that are lost are not recovered",
    cause="The disk or the database of the journal rejects new events. They are kept in memory until they can be written.",
    remedy="Free space on the disk, or bring the database back. Do not end the orchestrator before it reports that the journal is "
    "complete (US5032).",
)

JOURNAL_WRITTEN_AGAIN = Message(
    "US5032",
    "the journal {path} can be written again, and is complete",
    cause="Events that could not be written for a while have been written.",
)

JOURNAL_BUG = Message(
    "US5033",
    "{error}; please report this as a bug",
    cause="Writing the journal failed for a reason that is not a fault of the disk or the database.",
    remedy="Report it with the orchestrator's output.",
)

JOURNAL_NEWER = Message(
    "US5034",
    "the journal has version {found}, and this Understudy supports versions up to {known}: use the Understudy that wrote it or a newer "
    "one, or give another folder (or database) for a new journal",
    cause="A newer Understudy wrote this journal, and this one would misread it.",
    remedy="Install the version that wrote it, or use another folder or database.",
)

JOURNAL_UPGRADED = Message(
    "US5035",
    "the journal {path} had version {found} and has been upgraded to version {known}: an older Understudy can no longer use it",
    cause="The journal of an older version was opened for writing, and its tables were brought up to date.",
)

JOB_UNREADABLE = Message(
    "US5036",
    "the record of job {job} in the journal {path} cannot be read: {reason}",
    cause="The record of this job holds data that this version does not understand, or it is damaged.",
    remedy="Use the Understudy that wrote it. Other jobs are not affected.",
)

EVENT_UNREADABLE = Message(
    "US5037",
    "event {number}: {reason}",
    cause="This event of a job's journal is not known to this version.",
    remedy="Use the Understudy that wrote the journal.",
)

EVENTS_MISSING = Message(
    "US5046",
    "event {number} is missing; restore a copy of the journal (`understudy journal restore`) and start the orchestrator again",
    cause="Rows of this job's journal are missing, so the state of the job cannot be computed from the others.",
    remedy="Restore the journal from a backup, or cancel the job. Until then, its workers continue to train.",
)

EVENT_DAMAGED = Message(
    "US5056",
    "event {number} is not the one that was written: it, or its checksum, was changed; restore a copy of the journal "
    "(`understudy journal restore`) and start the orchestrator again",
    cause="The checksum of this row does not match its content and the row before it. One of the two rows was changed, by a faulty disk "
    "or a person.",
    remedy="Restore the journal from a backup, or cancel the job. Until then, its workers continue to train.",
)

JOB_ROW_DAMAGED = Message(
    "US5057",
    "the row with which it begins is missing, or is not the one that was written; restore a copy of the journal "
    "(`understudy journal restore`) and start the orchestrator again",
    cause="The job's name, its settings, its request or their checksum were changed, or the row in the table `jobs` is gone.",
    remedy="Restore the journal from a backup, or cancel the job. Until then, its workers continue to train.",
)

JOURNAL_BEHIND = Message(
    "US5058",
    "node {node} knows event {number}, which is not in the journal: the journal lacks its last events, or is an older copy; restore the "
    "newest copy (`understudy journal restore`) and start the orchestrator again",
    cause="An orchestrator wrote this event before it sent commands to the workers of this job. Continuing without the event could end "
    "workers that are training.",
    remedy="Restore a newer copy of the journal (`understudy journal restore`), or cancel the job. Until then, its workers continue to "
    "train.",
)

TABLES_DIFFER = Message(
    "US5059",
    "its tables are not those of version {version}: {reason}",
    cause="According to its version number, an earlier version wrote the journal, but the tables are not those of that version. The "
    "number or a table was changed.",
    remedy="Restore the journal from a backup.",
)

SCHEMA_NOT_TEXT = Message(
    "US5071",
    "its schema is not text: {error}",
    cause="The file of the journal was changed: the bytes that describe its tables are not text.",
    remedy="Restore the journal from a backup.",
)

VERSION_MISSING = Message(
    "US5060",
    "it contains jobs, but its version is not recorded",
    cause="The table `version`, or its row, is missing.",
    remedy="Restore the journal from a backup.",
)

JOURNAL_DAMAGED = Message(
    "US5047",
    "the journal {path} is damaged: {reason}. Nothing was changed. Jobs of a service continue to train as long as they lose no rank. "
    "Restore a copy (`understudy journal restore`) and restart the orchestrator; or move the file and its -wal file to another folder: "
    "jobs that are still training are then put aside, and `understudy cancel` ends them",
    cause="The file is not an SQLite file, or a part of it was overwritten or is missing.",
    remedy="Check the disk, and restore the file, or move it to another folder.",
)

NO_JOURNAL_OF_RUN = Message(
    "US5038",
    "no journal of a run in {folder}",
    cause="The folder has no journal, or its journal contains no job.",
    remedy="Give the folder of a run.",
)

NO_JOURNAL_OF_JOB = Message(
    "US5039",
    "no journal of job {job} in {folder}",
    cause="The journal in this folder does not contain this job.",
    remedy="Correct the name, or leave out --job for all jobs.",
)

NO_JOURNAL = Message(
    "US5040",
    "no journal in {folder}",
    cause="The folder has no journal, or its journal contains no job.",
    remedy="Give the folder of a run, or of a service's state.",
)

UNSURE_JOURNAL = Message(
    "US5041",
    "the journal cannot be written: an orchestrator that is started now would not know the latest decisions",
    cause="The disk or the database of the journal rejects new events.",
    remedy="Free space on the disk, or bring the database back.",
)

JOBS_ASIDE = Message(
    "US5042",
    "{count} jobs are put aside: their records in the journal cannot be read, are missing, or lack events that their nodes know",
    cause="The records of these jobs are not supported by this version, damaged or missing, or the journal is an older copy. The "
    "orchestrator does not manage these jobs; their workers continue to train.",
    remedy="Run `understudy jobs`, which lists these jobs and the reasons. Use the Understudy that wrote the journal, or restore a copy.",
)

EVENTS_UNREADABLE_NOW = Message(
    "US5043",
    "the journal, which holds the events, cannot be read now; try again",
    cause="The disk or the database of the journal does not respond.",
    remedy="Try again later.",
)

JOURNAL_TROUBLE = Message(
    "US5044",
    "the journal cannot be written: {reason}",
    cause="The disk or the database of the journal rejects new events.",
    remedy="Free space on the disk, or bring the database back.",
)

ANOTHER_LEADS = Message(
    "US5050",
    "another orchestrator leads: this one takes over when it is gone",
    cause="Several orchestrators share a database, and another one holds the lease.",
)

DATABASE_UNUSABLE = Message(
    "US5051",
    "{database} cannot be used: {reason}; retrying",
    cause="The database does not respond, or refuses this user.",
    remedy="Bring the database back, or correct its URL and its permissions.",
)

LEAD_LOST = Message(
    "US5052",
    "{reason}: this orchestrator no longer leads, and waits",
    cause="The orchestrator could no longer be sure that no other one leads. It restarts and waits. Training continues.",
)

OVERTAKEN = Message(
    "US5053",
    "another orchestrator has taken over",
    cause="Another orchestrator holds the lease, because this one did not renew it in time.",
)

LEASE_UNRENEWED = Message(
    "US5054",
    "the lease in {database} could not be renewed: {reason}",
    cause="The database did not respond before the lease expired.",
    remedy="Check the database and the network to it.",
)

LEASE_OVER = Message(
    "US5055",
    "the lease expired while this process was stopped or the database was unreachable",
    cause="The process was stopped, for example with the whole host, or the database was unreachable for longer than the lease.",
)

JOB_PAUSED = Message(
    "US5024",
    "the job pauses until the orchestrator's decision is in the journal: {reason}. Its ranks keep their state, and the job continues by "
    "itself afterwards",
    cause="The decision cannot be written, and an orchestrator that is restarted would not know it.",
    remedy="Free space on the disk of the journal, or bring the database or the other orchestrators back.",
)

JOB_GOES_ON = Message(
    "US5025",
    "the decision is in the journal: the job continues",
    cause="The journal has accepted the decision for which the job was waiting.",
)

DISK_REFUSES = Message(
    "US5026",
    "the journal {path} does not accept it ({reason}). {free:.1f} MiB are free on its disk: free more space there",
    cause="The disk of the journal is full, fails, or does not respond.",
    remedy="Free space on this disk, or find out why it does not respond.",
)

JOURNAL_SILENT = Message(
    "US5027",
    "the journal {journal} does not accept it: check its disk, or bring its database back",
    cause="The disk or the database of the journal does not respond, or rejects the decision.",
    remedy="Check the disk, or bring the database back.",
)

RESERVE_USED = Message(
    "US5028",
    "the disk of {folder} is full ({free:.1f} MiB are free): the journal uses its reserve, and progress is not recorded. When the "
    "reserve is used up, recoveries wait: free space there",
    cause="The disk of the journal is full. Decisions are written into space that was reserved for them.",
    remedy="Free space on this disk.",
)

RESERVE_WHOLE = Message(
    "US5029",
    "the disk of {folder} has free space again",
    cause="The disk of the journal was full, and space on it has been freed.",
)

NO_RESERVE = Message(
    "US5080",
    "the disk of {folder} has no space for the journal's reserve ({wanted:.0f} MiB; {free:.1f} MiB are free): if it is full when a rank "
    "is lost, the recovery waits until there is space",
    cause="The disk of the journal was nearly full when the orchestrator was started, or its file system cannot reserve space.",
    remedy="Free space on this disk. The reserve is then created.",
)
