"""Schedulers in general, and what starts processes on this machine."""

from __future__ import annotations

from understudy.messages.base import Message

NO_SUCH_SCHEDULER = Message(
    "US6000",
    "there is no scheduler {scheduler!r}; there are {known}",
    cause="--scheduler names one that is neither ours nor installed.",
    remedy="Take one of the names given, or install the package that adds it.",
)
RUNS_ALREADY = Message(
    "US6001",
    "{name} is running already",
    cause="Something of this name was started and has not ended, and names are used once at a time.",
    remedy="Wait for its end, stop it, or take another name.",
)
NO_DESCRIPTORS = Message(
    "US6002",
    "{name}: what {scheduler} starts on another machine cannot inherit descriptors",
    cause="A process was to be started elsewhere with open files of this one.",
    remedy="Report this as a bug, unless you start processes by this interface yourself.",
)
