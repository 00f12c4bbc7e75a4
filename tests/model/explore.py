"""Explore every interleaving, within bounds: breadth first, so that an error is shown on the shortest way to it. Or drawn ways,
where the bounds are too large for that.
"""

from __future__ import annotations

import gc
import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.moves import Moves
from tests.model.state import State
from tests.model.world import Wrong
from understudy.core import events
from understudy.messages import recoveries
from understudy.messages.base import code_of

_WORKER = re.compile(r"\bw\d+")


@dataclass
class Found:
    """The result of an exploration. `trace`: the way to an error, if there is one."""

    states: int = 0
    transitions: int = 0
    deepest: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    wrong: str = ""
    trace: list[str] = field(default_factory=list)
    events: list[events.Event] = field(default_factory=list)
    complete: bool = True
    leads_to: dict[int, list[int]] = field(default_factory=dict)  # if asked for: the states that each state is followed by


class Explorer(Moves):
    def explore(self, limit: int = 10_000_000, graph: bool = False) -> Found:
        """At most `limit` states; with `graph`, how they follow each other is kept."""
        gc.disable()  # nothing here is a cycle worth looking for, and there is much of it
        try:
            return self._explore(limit, graph)
        finally:
            gc.enable()

    def _explore(self, limit: int, graph: bool) -> Found:
        found = Found()
        first = self.start()
        parents: dict[int, tuple[int, str]] = {}
        root = self.key(first)
        parents[root] = (0, "")
        queue = deque([(root, first, 0)])
        while queue:
            name, state, depth = queue.popleft()
            found.states += 1
            found.deepest = depth
            if found.states > limit:
                found.complete = False
                break
            step = "looks at what can happen"
            try:
                following = list(self.after(state))
            except Wrong as error:
                return self._show(found, parents, name, step, str(error))
            if not following:
                why = self._end(state)
                if why.startswith("WRONG"):
                    return self._show(found, parents, name, "nothing more happens", why)
                found.ends[why] = found.ends.get(why, 0) + 1
            for step, make in following:
                found.transitions += 1
                try:
                    after = self.tidied(make())
                except (Wrong, AssertionError, KeyError) as error:
                    return self._show(found, parents, name, step, f"{type(error).__name__}: {error}")
                key = self.key(after)
                if graph:
                    found.leads_to.setdefault(name, []).append(key)
                if key not in parents:
                    parents[key] = (name, step)
                    queue.append((key, after, depth + 1))
        return found

    def walk(self, chance: random.Random, look: Callable[[State], None] = lambda state: None) -> Found:
        """One way to an end, drawn: for jobs that have too many states. Each worker is slow or fast on it, by up to 300 times, so that some
        ways come where most do not. `look` sees every state."""
        found, state, pace = Found(complete=False), self.start(), dict[str, float]()
        step = "looks at what can happen"
        try:
            while options := self.after(state):
                weights = [pace.setdefault(_who(step), 10 ** chance.uniform(-2.5, 0)) for step, _ in options]
                step, make = chance.choices(options, weights)[0]
                found.trace.append(step)
                state = self.tidied(make())
                found.states += 1
                look(state)
            end = self._end(state)
        except (Wrong, AssertionError, KeyError) as error:
            end = f"WRONG: {type(error).__name__}: {error}"
        if end.startswith("WRONG"):
            found.wrong, found.events = end, self.replayed(found.trace)
        found.transitions = found.deepest = found.states
        found.ends[end] = 1
        return found

    def _show(self, found: Found, parents: dict[int, tuple[int, str]], name: int, step: str, why: str) -> Found:
        steps = [step]
        while parents[name][1]:
            name, step = parents[name]
            steps.append(step)
        found.trace = steps[::-1]
        found.wrong = why
        found.events = self.replayed(found.trace)
        return found

    def replayed(self, trace: list[str]) -> list[events.Event]:
        """The events that the machine handles on this way, from the very start."""
        state = self.start()
        handled = list(self.opening)
        self.log = handled
        for step in trace:
            try:
                make = dict(self.after(state)).get(step)
                state = self.tidied(make()) if make is not None else state
            except (Wrong, AssertionError, KeyError):
                break
        self.log = None
        return handled

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self, state: State) -> str:
        """Describe a state in which nothing more happens."""
        machine = state.machine
        ended = machine.state.ended
        if ended is None:
            timers = f", or until the timer {min(machine.state.timers)} runs out" if machine.state.timers else ""
            return f"WRONG: everybody waits, in phase {machine.state.phase}, for ever{timers}"
        if not ended.message:
            return "WRONG: it ended and does not say why"
        if code_of(ended.message) == recoveries.IMPOSSIBLE_POSITIONS.code:
            return f"WRONG: {ended.message}"
        if ended.exit_code == 0:
            holders = [state.world.of(name) for name in machine.state.ranks.values()]
            short = [w.name for w in holders if w.alive and w.applied != self.bounds.transactions]
            if machine.state.incident is not None:
                return "WRONG: it ended well in the middle of an incident"
            return f"WRONG: it ended well, and {short} have not done everything" if short else "finished"
        return f"held: {_words(ended.message)}"


def _who(step: str) -> str:
    """The worker that does it, or to whom it happens."""
    return next(iter(_WORKER.findall(step)), "")


def _words(message: str) -> str:
    """A reason without its numbers."""
    return "".join(character for character in message if not character.isdigit())[:60]
