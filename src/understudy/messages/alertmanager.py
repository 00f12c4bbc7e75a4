"""Alerts of Prometheus' Alertmanager as evidence: what they say, and why one says nothing."""

from __future__ import annotations

from understudy.messages.base import Message

ALERT = Message(
    "US3200",
    "{summary}",
    cause="Alertmanager has sent an alert about this node or a part of it. The text is the alert's summary or description.",
    remedy="Look at the alert in Alertmanager. The policy decides what follows from it.",
)
STILL_FIRES = Message(
    "US3201",
    "it is resolved, but another alert of this name and group still fires about the same part",
    cause="Several alerts of one group differ only in labels that are not looked at, so they are the same evidence. It holds as long as "
    "one of them fires.",
)
NO_NODE_LABEL = Message(
    "US3202",
    "it has no label {labels}, which would name a node",
    cause="The alert has none of the labels from which the node would be known.",
    remedy="Add such a label to the alert's rule, or name another label with node_label in the webhook's URL.",
)
WRONG_TIME = Message(
    "US3203",
    "it began at {began}: look at the clocks",
    cause="The alert began later than now, or before 1970.",
    remedy="Synchronise the clocks of both hosts.",
)
NO_TIME = Message(
    "US3204",
    "a time is a text as 2026-01-31T12:00:00Z",
    cause="A time in the message is not written as Alertmanager writes it.",
    remedy="Send messages in Alertmanager's own format, version 4.",
)

AMBIGUOUS_NODE = Message(
    "US3210",
    "{name!a} may be {nodes}",
    cause="The name is short, and several nodes of the job have a host name or an address that fits.",
    remedy="Let the label have the full host name, or the node's own name.",
)
UNKNOWN_NODE = Message(
    "US3211",
    "no node here is called {name!a}",
    cause="No node that serves a job here has this name, this address or this host name.",
    remedy="If the node serves a job here, let the label have the name or an address that `understudy status` shows. Otherwise nothing "
    "is to be done: the alert is about another machine.",
)
