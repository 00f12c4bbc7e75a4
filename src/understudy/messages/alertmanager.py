"""Alerts of Prometheus' Alertmanager as evidence: their text, and why one has no effect."""

from __future__ import annotations

from understudy.messages.base import Message

ALERT = Message(
    "US3200",
    "{summary}",
    cause="Alertmanager sent an alert about this node or a part of it. The text is the alert's summary or description.",
    remedy="Read the alert in Alertmanager. The policy decides what follows from it.",
)
STILL_FIRES = Message(
    "US3201",
    "it is resolved, but another alert of the same name and group is still firing for the same part",
    cause="Several alerts of one group differ only in labels that are not used, so they are the same evidence. It holds as long as one of "
    "them is firing.",
)
NO_NODE_LABEL = Message(
    "US3202",
    "it has none of the labels {labels}, which name the node",
    cause="The alert has none of the labels that identify the node.",
    remedy="Add such a label to the alert's rule, or name another label with node_label in the webhook's URL.",
)
WRONG_TIME = Message(
    "US3203",
    "it began at {began}: check the clocks",
    cause="The alert began in the future, or before 1970.",
    remedy="Synchronise the clocks of both hosts.",
)
NO_TIME = Message(
    "US3204",
    "a time must be text of the form 2026-01-31T12:00:00Z",
    cause="A time in the message is not written as Alertmanager writes it.",
    remedy="Send messages in Alertmanager's own format, version 4.",
)

AMBIGUOUS_NODE = Message(
    "US3210",
    "{name!a} may be {nodes}",
    cause="The name is short, and the host names or addresses of several nodes of the job match it.",
    remedy="Use the full host name, or the node's own name, in the label.",
)
UNKNOWN_NODE = Message(
    "US3211",
    "no node here has the name {name!a}",
    cause="No node that serves a job here has this name, this address or this host name.",
    remedy="Set the label to the name or an address that `understudy status` shows, if the node serves a job here. Otherwise ignore this: "
    "the alert is about another machine.",
)
