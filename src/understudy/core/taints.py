"""Taints: who does not trust a node, why, and until when. And leaving such a node before it fails.

A tainted node still works. It gets no new spares, and a spare there takes a rank only where the job has no other; of a job that has no
other node it keeps nothing away. A node may have several taints, one of each source for each of its parts, and is trusted again when the
last one is gone.

    node_tainted    a taint comes, says something else than before, or goes. A person's word that a node is trusted takes all of them away,
                    and what was seen before it counts no more
    expired         those whose time is over go
    leave           in plain training: a rank on a node that is to be left moves to a spare on a node that is trusted, one rank after the
                    other, as if somebody had asked for it (`migration`). If it is lost first, the spare that sets up takes it

A rank whose move has failed twice stays where it is until another taint, or a person, asks for the same: it would be tried for ever.

Known limits: nothing moves while there is no warm spare on a trusted node, and nobody starts one there for this; a spare on a tainted node
stays there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from understudy.core.assignment import choose_spare
from understudy.core.events import MigrationAsked, NodeTainted
from understudy.core.migration import asked
from understudy.core.quiesce import want_more
from understudy.core.state import JobState, Node, Taint
from understudy.core.transitions import Phase, Why

OPERATOR = "operator"  # source of what a person says
TIMER = "taint"
ATTEMPTS = 2  # to move a rank


def node_tainted(state: JobState, event: NodeTainted) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        state.refuse(event, Why.UNKNOWN)
        return
    if event.reason:
        taint(state, node.name, Taint(event.source, event.reason, event.part, event.until, event.leave))
        leave(state)
        return
    every = event.source == OPERATOR
    if every:
        node.trusted_at = state.now
    _lift(state, node, [key for key in node.taints if every or key == (event.source, event.part)])


def taint(state: JobState, name: str, new: Taint) -> None:
    if 0 < new.until <= state.now:
        return
    node = state.nodes[name]
    key = new.source, new.part
    known = node.taints.get(key)
    if known is not None and new.source != OPERATOR:
        new = replace(new, reason=known.reason)  # a detector says it again, in other figures
    if new.leave and (known is None or not known.leave or new.source == OPERATOR):
        for rank in _ranks(state, node):
            state.unmoved.pop(rank, None)
    if known == new:
        return
    node.taints[key] = new
    if known is None or known.reason != new.reason:
        state.tell(f"node {name} is tainted: {new.reason}")
    _set_timer(state)


def expired(state: JobState) -> None:
    for node in state.nodes.values():
        _lift(state, node, {key for key, known in node.taints.items() if 0 < known.until <= state.now})
    _set_timer(state)


def _lift(state: JobState, node: Node, keys: Iterable[tuple[str, str]]) -> None:
    gone = list(keys)
    for key in gone:
        del node.taints[key]
    if not gone:
        return
    _set_timer(state)
    if node.taints:
        return
    state.tell(f"node {node.name} is trusted again")
    if state.phase not in (Phase.FORMING, Phase.ENDED):
        want_more(state)


def _set_timer(state: JobState) -> None:
    """To the next end of a taint."""
    if state.phase is Phase.ENDED:
        return
    ends = [known.until for node in state.nodes.values() for known in node.taints.values() if known.until > 0]
    if ends:
        state.timer(TIMER, max(0.0, min(ends) - state.now) + 0.001)  # a timer of no seconds would be none
    else:
        state.cancel(TIMER)


def leave(state: JobState) -> None:
    """The next rank of a node that is to be left moves, if one can."""
    if state.phase in (Phase.FORMING, Phase.ENDED) or state.incident is not None or state.unsettled():
        return
    for node in state.nodes.values():
        why = next((known for known in node.taints.values() if known.leave), None)
        for rank in _ranks(state, node) if why is not None else ():
            if state.unmoved.get(rank, 0) >= ATTEMPTS:
                continue
            spare = choose_spare(state, rank)
            if spare is None or state.nodes[spare.node].taints or spare.node == node.name:
                continue
            state.unmoved[rank] = state.unmoved.get(rank, 0) + 1
            asked(state, MigrationAsked(rank, f"node {node.name} is tainted: {why.reason}" if why is not None else ""))
            return


def _ranks(state: JobState, node: Node) -> list[int]:
    return sorted(rank for rank in state.ranks if state.holder(rank).node == node.name)
