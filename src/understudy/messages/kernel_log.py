"""Reports of the detector of the kernel log."""

from __future__ import annotations

from understudy.messages.base import Message

RECORD = Message(
    "US3050",
    "{record}{again}",
    cause="The kernel log has a record about the node's hardware. The text is the kernel's own; the kind of the evidence (such as xid-79 "
    "or io-error) says how it was classified.",
    remedy="Read the log around it with dmesg. Repair or replace what it names. For an Xid, follow NVIDIA's catalogue.",
)
BEFORE = Message(
    "US3051",
    "the kernel log reports faults from before the job began here, which are ignored: {records}{more}",
    cause="The kernel log has records of broken hardware that are older than this job. The hardware may have been repaired since, so they "
    "are ignored.",
    remedy="Repair the hardware if that has not been done. Otherwise clear the log with dmesg --clear. With history = true in the "
    "detectors' file old records count, too.",
)
OVERWRITTEN = Message(
    "US3052",
    "{count} records of the kernel log were overwritten before they were read: they may have been about this node's hardware",
    cause="The kernel wrote more records between two reads than its buffer holds.",
    remedy="Read the system's own log (journalctl -k) for that time. A larger buffer (log_buf_len) avoids this.",
)
MORE = Message(
    "US3053",
    "{count} more kinds and parts in the kernel log at the same time, which are left out here: see dmesg",
    cause="One read found more different kinds of faults than are reported at a time. The most severe were reported.",
    remedy="Read all of them with dmesg.",
)

ABSENT = Message(
    "US3060",
    "{path} does not exist: in a container it must be mounted from the host",
    cause="The kernel log is read from this device, and it does not exist here, as in most containers.",
    remedy="Mount it from the host into the container, read-only, or run the agent on the host.",
)
FORBIDDEN = Message(
    "US3061",
    "no permission to read {path}: this requires root, or CAP_SYSLOG if kernel.dmesg_restrict is 1",
    cause="The user of this process may not read the kernel log.",
    remedy="Run the agent as root or with the capability CAP_SYSLOG, or disable the detector (off in the detectors' file).",
)
UNREADABLE = Message(
    "US3062",
    "{path} cannot be opened: {reason}",
    cause="The system refused to open the kernel log.",
    remedy="Check the reason, which comes from the operating system. Without this log, broken hardware is detected later, by its effects.",
)
NO_LOG = Message(
    "US3063",
    "{path} is not the kernel log: a container may have its console there, or nothing",
    cause="The file with this name is another device or a folder. Some container runtimes put the console there.",
    remedy="Mount /dev/kmsg of the host into the container.",
)
