"""Schedulers in general, and the one that starts processes on this machine."""

from __future__ import annotations

from understudy.messages.base import Message

NO_SUCH_SCHEDULER = Message(
    "US6000",
    "there is no scheduler {scheduler!r}; known schedulers: {known}",
    cause="--scheduler names a scheduler that is neither built in nor installed.",
    remedy="Use one of the listed names, or install the package that adds it.",
)
RUNS_ALREADY = Message(
    "US6001",
    "{name} is already running",
    cause="A process of this name was started and has not ended. Only one process at a time can have a name.",
    remedy="Wait for its end, stop it, or use another name.",
)
NO_DESCRIPTORS = Message(
    "US6002",
    "{name}: a process that {scheduler} starts on another machine cannot inherit descriptors",
    cause="A process was to be started on another machine with open files of this one.",
    remedy="Report this as a bug, unless you start processes through this interface yourself.",
)
