"""What the detector of the kernel's log reports."""

from __future__ import annotations

from understudy.messages.base import Message

RECORD = Message(
    "US3050",
    "{record}{again}",
    cause="The kernel's log has a record that speaks of the node's hardware. The text is the kernel's own; the kind of the evidence "
    "(such as xid-79 or io-error) says what it was recognised as.",
    remedy="Look at the log around it with dmesg. Repair or replace what it names. For an Xid, NVIDIA's catalogue says what to do.",
)
BEFORE = Message(
    "US3051",
    "the kernel's log tells of trouble from before the job began here, which counts for nothing: {records}{more}",
    cause="The kernel's log has records of broken hardware that are older than this job. They may be of something that was repaired since, "
    "so they do not count.",
    remedy="If it was not repaired, repair it. If it was, clear the log with dmesg --clear. With history = true in the detectors' file old "
    "records count, too.",
)
OVERWRITTEN = Message(
    "US3052",
    "{count} records of the kernel's log were overwritten before they were read: it may have said more of this node's hardware",
    cause="The kernel wrote more records than its buffer holds between two looks.",
    remedy="Look at the system's own log (journalctl -k) for the time in question. A larger buffer (log_buf_len) avoids it.",
)
MORE = Message(
    "US3053",
    "{count} more kinds and parts in the kernel's log at the same time, which are left out here: see dmesg",
    cause="One look found more different kinds of trouble than are reported at a time. The gravest were reported.",
    remedy="Look at all of it with dmesg.",
)

ABSENT = Message(
    "US3060",
    "there is no {path}: into a container it has to be mounted from the host",
    cause="The kernel's log is read from this device, and it does not exist here, as in most containers.",
    remedy="Mount it from the host into the container, read-only, or run the agent on the host.",
)
FORBIDDEN = Message(
    "US3061",
    "no permission to read {path}: it takes root, or CAP_SYSLOG if kernel.dmesg_restrict is 1",
    cause="The user of this process may not read the kernel's log.",
    remedy="Run the agent as root or with the capability CAP_SYSLOG, or leave the detector out (off in the detectors' file).",
)
UNREADABLE = Message(
    "US3062",
    "{path} cannot be opened: {reason}",
    cause="The system refused to open the kernel's log.",
    remedy="The reason is the system's own. Without this log, broken hardware is noticed later, by its effects.",
)
NO_LOG = Message(
    "US3063",
    "{path} is not the kernel's log: a container may have its console in that place, or nothing",
    cause="What lies under this name is another device or a folder. Some container runtimes put the console there.",
    remedy="Mount /dev/kmsg of the host into the container.",
)
