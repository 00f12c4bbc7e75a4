"""Messages of several orchestrators of one job: which of them takes part, and which leads."""

from __future__ import annotations

from understudy.messages.base import Message

MEMBER_REPLACED = Message(
    "US5100",
    "the other orchestrators know a different one at this address, with other data on its disk: this one does not participate. The job "
    "continues with the others, which also serve this node",
    cause="This node's orchestrator has lost its disk since the job began. Its vote could undo earlier decisions, so it does not vote.",
    remedy="Use a persistent disk for the run directory. This job continues, but tolerates the loss of fewer orchestrators.",
)

MEMBER_UNKNOWN = Message(
    "US5101",
    "the orchestrator at {url} is not the one that was there before: it does not participate",
    cause="The orchestrator at this address has a different identity than at the job's beginning, as after the loss of its disk.",
    remedy="Use a persistent disk for the run directory. This job continues, but tolerates the loss of fewer orchestrators.",
)

LOG_UNWRITTEN = Message(
    "US5102",
    "the log of this orchestrator cannot be written ({reason}): it does not participate until it can",
    cause="The disk with the run directory is full or fails.",
    remedy="Free space on the disk.",
)

MEMBER_REFUSES = Message(
    "US5103",
    "the orchestrator at {url} refuses this one (HTTP status {status})",
    cause="The other orchestrator does not accept this one's secret.",
    remedy="Give every node the same secret.",
)

MEMBER_UNTRUSTED = Message(
    "US5104",
    "the certificate of {url} is not trusted: {reason}",
    cause="The certificate of the other orchestrator is not signed by the certificate or authority in --tls or --tls-cert on this node.",
    remedy="Give every node the same certificate, or certificates of one authority.",
)

MEMBER_OTHER_VERSION = Message(
    "US5105",
    "{url} does not understand this orchestrator: install the same version of Understudy on every node",
    cause="The two orchestrators have different versions.",
    remedy="Install the same version on every node.",
)

MEMBER_UNREACHED = Message(
    "US5106",
    "no connection to the orchestrator at {url}: {error}",
    cause="The connection failed for an unusual reason.",
    remedy="Report it as a bug if it persists.",
)

MEMBER_NUMBERED_OTHERWISE = Message(
    "US5107",
    "{url} is orchestrator number {there} by its own count, but number {here} in --rdzv-endpoint of this node: is the option the same "
    "on every node?",
    cause="The nodes were given the addresses of the orchestrators in different orders, or different addresses.",
    remedy="Give every node the same --rdzv-endpoint.",
)

NOT_OF_MEMBERS = Message(
    "US5108",
    "not a message between members: {frame}",
    cause="An orchestrator of another version, or another program, sent this.",
    remedy="Install the same version of Understudy on every node.",
)

FORGOT = Message(
    "US5131",
    "according to the orchestrator at {url}, this one has lost data from its disk, as after an older copy was restored: it no longer "
    "participates in this job. The job continues with the others, which also serve this node",
    cause="The disk with this node's run directory is in an earlier state, for example from a snapshot of the host or the volume. The "
    "vote of this orchestrator could undo earlier decisions, so it does not vote.",
    remedy="No action for this job, which now tolerates the loss of fewer orchestrators. Never restore `quorum.db` alone: use a new run "
    "directory for the next job.",
)

MEMBER_FORGOT = Message(
    "US5132",
    "the orchestrator at {url} no longer participates: the data on its disk contradicts that of the others. Its output gives the reason",
    cause="The disk of that orchestrator, or of others, is in an earlier state, as after an older copy was restored.",
    remedy="No action for this job, which now tolerates the loss of fewer orchestrators.",
)

CONTRADICTED = Message(
    "US5133",
    "the other orchestrators have lost data that a majority had written to disk. This one still has it, and no longer participates. "
    "Training continues, and the journal in this run directory has the events that are missing in theirs",
    cause="The disks of a majority of the orchestrators are in an earlier state, or orchestrators with such disks came back while the "
    "others were unreachable.",
    remedy="Compare the journals (`understudy events` in each run directory). Let the job finish if it can, and start it again from a "
    "checkpoint if a rank is lost.",
)

LEADS = Message(
    "US5110",
    "the orchestrator of this node leads (term {term})",
    cause="The orchestrators have elected this one.",
)

LEADS_NO_MORE = Message(
    "US5111",
    "{reason}: the orchestrator of this node no longer leads",
    cause="Another one may lead, so this one restarts as a follower. Training continues.",
)

DEPOSED = Message(
    "US5112",
    "another orchestrator leads, or no majority of them has answered for too long",
    cause="A majority of the other orchestrators did not respond to this one in time.",
    remedy="Check the network between the nodes that run orchestrators if it happens again.",
)

LOG_OVERTAKEN = Message(
    "US5113",
    "another orchestrator has written to the job's log",
    cause="The orchestrator of another pod leads now.",
)

LOCK_TAKEN = Message(
    "US5114",
    "another orchestrator has the job's lock",
    cause="This pod's orchestrator did not renew the job's lease in time, and another one has acquired it.",
)

LOG_UNREADABLE = Message(
    "US5115",
    "{reason}: no orchestrator can lead the job any longer. Its workers continue until one of them is lost or all finish",
    cause="The record of this job that the orchestrators keep in the cluster is damaged or incomplete.",
    remedy="Let the job finish if it can, and start it again.",
)

STORAGE_DAMAGED = Message(
    "US5118",
    "{path} is damaged: {reason}. It is kept as {kept}. The orchestrator of this host no longer participates in decisions; the others "
    "continue, as long as they are a majority",
    cause="The file of one of several orchestrators was changed, overwritten or truncated, so the orchestrator no longer knows its "
    "earlier votes.",
    remedy="Check the disk. The next job has all its orchestrators again.",
)

MEMBER_ROW_DAMAGED = Message(
    "US5119",
    "the row with its identity, term and vote is not the one that was written",
    cause="The checksum of this row does not match its content.",
)

ENTRY_DAMAGED = Message(
    "US5120",
    "entry {number} of the log is missing, or is not the one that was written",
    cause="The checksum of this entry does not match its content and the entry before it.",
)

MEMBER_JOURNAL_DAMAGED = Message(
    "US5121",
    "{reason}. It is kept as {kept}, and written again from the log of the orchestrators",
    cause="One of several orchestrators has found that its own copy of the journal is damaged. The shared log is complete.",
    remedy="Check the disk of this host.",
)

LOG_AWAY = Message(
    "US5116",
    "the job's log and lock cannot be used: {reason}. Training continues, retrying",
    cause="The API server of Kubernetes does not respond, or refuses the request.",
    remedy="Check the API server, and the role of the job's service account.",
)

LOG_BACK = Message(
    "US5117",
    "the API server answers again",
    cause="Requests that the API server of Kubernetes could not answer for a while have been completed.",
)

LOG_WAITS = Message(
    "US5130",
    "no majority of the orchestrators has the decision on its disk (with Kubernetes: the API server has not accepted it). Bring their "
    "hosts back, or free space on their disks",
    cause="Too many orchestrators of the job are unreachable or cannot write to their disks. With Kubernetes, the API server is "
    "unreachable.",
    remedy="Bring their hosts back, free space on their disks, or check the API server.",
)
