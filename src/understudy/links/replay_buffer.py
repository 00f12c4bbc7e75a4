"""What a worker has said in the present generation and may have to say again: to an orchestrator, or to an agent, that was started again.

Phases and notices are not among it: they would count twice.
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


# A redo that differs is not found again in a later generation: if nobody hears of it there, it counts.
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
        self.events: list[events.Event] = []  # in the order in which they were said

    def enter(self, generation: int) -> None:
        """A command of `generation`: what was said in older ones counts no more."""
        if generation > self.generation:
            self.generation = generation
            self.events = [event for event in self.events if isinstance(event, _TRUE_FOR_EVER)]

    def remember(self, event: events.Event) -> None:
        if isinstance(event, _REPEATED):
            self.events.append(event)
