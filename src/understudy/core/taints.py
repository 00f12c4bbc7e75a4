"""Taints: who does not trust a node, why, and until when. And leaving such a node before it fails.

A tainted node still works. It gets no new spares, and a spare there takes a rank only where the job has no other; of a job that has no
other node it keeps nothing away. A node may have several taints, one of each source for each of its parts, and is trusted again when the
last one is gone.

    node_tainted    a taint comes, says something else than before, or goes. A person's word that a node is trusted takes all of them away,
                    and what was seen before it counts no more
    expired         those whose time is over go
    node_checked    a node that was to pass a check has (`admission.py`): then it is trusted, and its ranks may go home (`home.py`)
    leave           in plain training: a rank on a node that is to be left moves to a spare on a node that is trusted, one rank after the
                    other, as if somebody had asked for it (`migration`). If it is lost first, the spare that sets up takes it

A rank whose move has failed twice stays where it is until another taint, or a person, asks for the same: it would be tried for ever.

Where all spares elsewhere are prepared for other ranks, one of them is started over (`preparation.make_room`).

Known limits: nothing moves while there is no warm spare on a trusted node. Nobody starts one there for this, but a node may be claimed
(`floating.py`). A spare on a tainted node stays there, unless that is drained (`drain.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from understudy.core import admission, drain, floating, home, preparation
from understudy.core.assignment import choose_spare
from understudy.core.drain import ATTEMPTS
from understudy.core.events import MigrationAsked, NodeChecked, NodeTainted
from understudy.core.migration import asked
from understudy.core.quiesce import want_more
from understudy.core.state import CHECK, DRAIN, OPERATOR, JobState, Node, Taint, Worker
from understudy.core.transitions import Phase, Why
from understudy.messages import moves

TIMER = "taint"


def node_tainted(state: JobState, event: NodeTainted) -> None:
    node = state.nodes.get(event.node)
    if node is None or (node.gone and node.claim < 0):  # what was claimed may come again
        state.refuse(event, Why.UNKNOWN if node is None else Why.OVER)
        return
    if event.reason:
        new = Taint(event.source, event.reason, event.part, event.until, event.leave, event.deadline, event.lose)
        taint(state, node.name, new)
        leave(state)
        return
    every, key = event.source == OPERATOR, (event.source, event.part)
    if every:
        node.trusted_at = state.now
    _lift(state, node, [known for known in node.taints if every or known == key], believed=every or key == CHECK)


def node_checked(state: JobState, event: NodeChecked) -> None:
    node = admission.passed(state, event)
    if node is not None:
        _lift(state, node, [CHECK], believed=True)


def taint(state: JobState, name: str, new: Taint) -> None:
    if 0 < new.until <= state.now:
        return
    node = state.nodes[name]
    key = new.source, new.part
    known = node.taints.get(key)
    person = new.source == OPERATOR or key == DRAIN
    if known is not None and not person:
        new = replace(new, reason=known.reason)  # a detector says it again, in other figures
    if new.leave and (known is None or not known.leave or person):
        for rank in drain.ranks_on(state, node):
            state.unmoved.pop(rank, None)
    if known == new:
        return
    node.taints[key] = new
    home.doubted(state, node)
    if known is None or known.reason != new.reason:
        state.tell((moves.DRAINED if key == DRAIN else moves.TAINTED)(node=name, reason=new.reason))
    _set_timers(state)


def expired(state: JobState) -> None:
    for node in state.nodes.values():
        _lift(state, node, {key for key, known in node.taints.items() if 0 < known.until <= state.now})
    _set_timers(state)


def lift(state: JobState, node: Node, source: str, part: str) -> None:
    """What `source` has said of `part` of the node counts no more, and needs no check."""
    _lift(state, node, {(source, part)} & node.taints.keys(), believed=True)


def _lift(state: JobState, node: Node, keys: Iterable[tuple[str, str]], *, believed: bool = False) -> None:
    """`believed`: without a check."""
    gone = list(keys)
    for key in gone:
        node.taints.pop(key, None)
    if not gone:
        return
    _set_timers(state)
    admission.settle(state)
    if node.taints or (not believed and state.phase is not Phase.ENDED and admission.begin(state, node)):
        return
    state.tell(moves.TRUSTED_AGAIN(node=node.name))
    home.trusted(state, node)
    if state.phase not in (Phase.FORMING, Phase.ENDED):
        want_more(state)
    leave(state)  # its spares may take ranks of others


def _set_timers(state: JobState) -> None:
    """To the next end of a taint, and the next deadline of a drain."""
    if state.phase is Phase.ENDED:
        return
    known = [taint for node in state.nodes.values() for taint in node.taints.values()]
    for timer, times in ((TIMER, [taint.until for taint in known]), (drain.TIMER, [taint.deadline for taint in known])):
        if any(times):
            state.timer(timer, max(0.0, min(filter(None, times)) - state.now) + 0.001)  # a timer of no seconds would be none
        else:
            state.cancel(timer)


def overdue(state: JobState) -> list[Worker]:
    """The deadline of a drain is over: workers that are given up for it."""
    gone = drain.overdue(state)
    _set_timers(state)
    return gone


def leave(state: JobState) -> None:
    """The next rank of a node that is to be left moves, if one can; if none has to, the next one that can goes home. Nodes are claimed, and
    given back.
    """
    if state.phase in (Phase.FORMING, Phase.ENDED) or state.incident is not None:
        return
    drain.settle(state)
    if state.unsettled():
        return
    for node in state.nodes.values():
        why = next((known for known in node.taints.values() if known.leave), None)
        for rank in drain.ranks_on(state, node) if why is not None else ():
            if state.unmoved.get(rank, 0) >= ATTEMPTS:
                continue
            spare = choose_spare(state, rank)
            if spare is None or state.nodes[spare.node].taints or spare.node == node.name:
                if preparation.make_room(state, rank):
                    return
                continue
            state.unmoved[rank] = state.unmoved.get(rank, 0) + 1
            doubt = moves.DRAINED if node.drain is not None else moves.TAINTED
            asked(state, MigrationAsked(rank, doubt(node=node.name, reason=why.reason) if why is not None else ""))
            return
    home.go(state)
    floating.settle(state)
