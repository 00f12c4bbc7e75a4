"""Keep the messages of a worker in the present generation that a restarted orchestrator or agent may need again.

Phases and notices are not kept: they would count twice.
"""

from __future__ import annotations

from understudy.core import events

_REPEATED = (
    events.CommunicationBroken,
    events.Quiesced,
    events.NewcomerReady,
    events.Prepared,
    events.Drilled,
    events.DrillBroken,
    events.Registered,
    events.StateListed,
    events.GroupsListed,
    events.Verified,
    events.VerifyFailed,
    events.Uncovered,
    events.ReplicasDiffer,
    events.RedoDiffers,
    events.SectionFailed,
    events.Committed,
    events.ScriptFailed,
    events.UsesDevice,
    events.DeviceFailed,
    events.Finished,
)


# A redo that differs is not detected again in a later generation: if it was not reported, it still counts.
_TRUE_FOR_EVER = (
    events.ScriptFailed,
    events.UsesDevice,
    events.DeviceFailed,
    events.Finished,
    events.Prepared,
    events.Drilled,
    events.RedoDiffers,
)


class ReplayBuffer:
    def __init__(self) -> None:
        self.generation = -1
        self.events: list[events.Event] = []  # in the order in which they were sent

    def enter(self, generation: int) -> None:
        """Begin `generation`: messages of older ones do not count any more."""
        if generation > self.generation:
            self.generation = generation
            self.events = [event for event in self.events if isinstance(event, _TRUE_FOR_EVER)]

    def remember(self, event: events.Event) -> None:
        if isinstance(event, _REPEATED):
            self.events.append(event)
