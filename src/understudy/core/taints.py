"""Taints: which nodes are not trusted, why and until when; and moving ranks off such nodes before they fail.

A tainted node still works. It gets no new spares, and a spare there takes a rank only if the job has no other. If all nodes of the job are
tainted, taints have no effect. A node may have several taints, one of each source for each of its parts, and is trusted again when the last
one has ended.

    node_tainted    a taint is set, changed or ended. An operator who marks a node as trusted ends all of them, and earlier evidence
                    no longer counts
    expired         taints whose time is over end
    node_checked    a node has passed the check that it had to pass (`admission.py`): it is trusted, and its ranks may return (`home.py`)
    leave           in plain training: the ranks on nodes that must be left move to spares on trusted nodes. All that have a spare move at
                    the same boundary (`migration`), the others when more spares are warm. If such a rank is lost first, the spare that is
                    setting up for it takes it

A rank whose move has failed twice stays until another taint, or an operator, asks for the same; otherwise it would be tried forever.

If all spares elsewhere are prepared for other ranks, one of them is started over (`preparation.make_room`).

A taint of a device that ranks compute on is kept separately (`devices.py`): it applies to the ranks on it, and the node stays trusted.

Known limits: nothing moves while there is no warm spare on a trusted node. No spare is started for this, but a node may be claimed
(`floating.py`). A spare on a tainted node stays there, unless the node is drained (`drain.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from understudy.core import admission, devices, drain, floating, home, preparation
from understudy.core.assignment import choose_spare
from understudy.core.drain import ATTEMPTS
from understudy.core.events import NodeChecked, NodeTainted
from understudy.core.migration import begin, most, move_of
from understudy.core.quiesce import want_more
from understudy.core.state import BY_JOB, CHECK, DRAIN, OPERATOR, JobState, Move, Node, Taint, Worker
from understudy.core.transitions import Phase, RefusalReason
from understudy.messages import moves
from understudy.messages.base import Text

TIMER = "taint"


def node_tainted(state: JobState, event: NodeTainted) -> None:
    node = state.nodes.get(event.node)
    if node is None or (node.gone and node.claim < 0):  # a claimed node may come back
        state.ignore(event, RefusalReason.UNKNOWN if node is None else RefusalReason.OVER)
        return
    if event.reason:
        new = Taint(event.source, event.reason, event.part, event.until, event.leave, event.deadline, event.lose, by=event.by)
        for name in (node.name, *event.also):
            if name in state.nodes:
                taint(state, name, new)
        leave(state)
        return
    every, key = event.source == OPERATOR, (event.source, event.part)
    if every and not event.part:
        node.trusted_at = state.now
    meant = [one for one in (*node.taints, *node.device_taints) if one == key or (every and _speaks_of(node, one, event.part))]
    _lift(state, node, meant, believed=every or key == CHECK)


def _speaks_of(node: Node, key: tuple[str, str], part: str) -> bool:
    """Return whether this taint concerns the part, under any of its names; every taint concerns the node."""
    device = node.device_of(part)
    return part in ("", key[1]) or (device != "" and node.device_of(key[1]) == device)


def node_checked(state: JobState, event: NodeChecked) -> None:
    node = admission.passed(state, event)
    if node is not None:
        _lift(state, node, [CHECK], believed=True)


def taint(state: JobState, name: str, new: Taint) -> None:
    if 0 < new.until <= state.now:
        return
    node = state.nodes[name]
    key = new.source, new.part
    known = node.known(*key)
    device = node.device_of(new.part) if key not in node.taints else ""
    new = replace(new, device=device)
    person = new.source == OPERATOR or key == DRAIN
    if known is not None and not person:
        new = replace(new, reason=known.reason)  # the detector reports the same with other figures
    if new.leave and (known is None or not known.leave or person):
        for rank in drain.ranks_on(state, node):
            if not device or state.holder(rank).device == device:
                state.failed_moves.pop(rank, None)
    if known == new:
        return
    news = known is None or known.reason != new.reason
    if device:
        node.device_taints[key] = new
        if news:
            state.report(moves.DEVICE_TAINTED(device=device, node=name, reason=new.reason))
        devices.start_over_spares(state, node)
    else:
        node.taints[key] = new
        home.doubted(state, node)
        if news:
            state.report((moves.DRAINED if key == DRAIN else moves.TAINTED)(node=name, reason=new.reason))
    _set_timers(state)


def expired(state: JobState) -> None:
    for node in state.nodes.values():
        every = {**node.taints, **node.device_taints}
        _lift(state, node, [key for key, known in every.items() if 0 < known.until <= state.now])
    _set_timers(state)


def lift(state: JobState, node: Node, source: str, part: str) -> None:
    """End the taint that `source` has set on `part` of the node, without a check."""
    if node.known(source, part) is not None:
        _lift(state, node, [(source, part)], believed=True)


def _lift(state: JobState, node: Node, keys: Iterable[tuple[str, str]], *, believed: bool = False) -> None:
    """End these taints. `believed`: without a check."""
    every = list(keys)
    _lift_of_devices(state, node, [key for key in every if key in node.device_taints])
    gone = [node.taints.pop(key) for key in every if key in node.taints]
    if not gone:
        return
    _set_timers(state)
    admission.settle(state)
    by = BY_JOB if all(one.by == BY_JOB for one in gone) else ""
    if node.taints or (not believed and state.phase is not Phase.ENDED and admission.begin(state, node, by)):
        return
    state.report(moves.TRUSTED_AGAIN(node=node.name))
    home.trusted(state, node)
    if state.phase not in (Phase.FORMING, Phase.ENDED):
        want_more(state)
    leave(state)  # its spares may take ranks of others


def _lift_of_devices(state: JobState, node: Node, keys: list[tuple[str, str]]) -> None:
    """End taints of devices. The rest of the node was always trusted, so nothing has to be checked, and no rank returns."""
    lifted = dict.fromkeys(node.device_taints.pop(key).device for key in keys)
    if not lifted:
        return
    _set_timers(state)
    still = {taint.device for taint in node.device_taints.values()}
    for device in lifted:
        if device not in still:
            state.report(moves.DEVICE_TRUSTED_AGAIN(device=device, node=node.name))
    if state.phase not in (Phase.FORMING, Phase.ENDED):
        want_more(state)
    leave(state)


def _set_timers(state: JobState) -> None:
    """Set the timers for the next end of a taint and the next deadline of a drain."""
    if state.phase is Phase.ENDED:
        return
    known = [taint for node in state.nodes.values() for taint in (*node.taints.values(), *node.device_taints.values())]
    for timer, times in ((TIMER, [taint.until for taint in known]), (drain.TIMER, [taint.deadline for taint in known])):
        if any(times):
            state.timer(timer, max(0.0, min(filter(None, times)) - state.now) + 0.001)  # a timer of 0 seconds would be cancelled
        else:
            state.cancel(timer)


def overdue(state: JobState) -> list[Worker]:
    """Return the workers that are given up because the deadline of a drain has passed."""
    gone = drain.overdue(state)
    _set_timers(state)
    return gone


def leave(state: JobState) -> None:
    """Move the ranks of nodes that must be left, as many as possible; if there are none, those that can return. Claim nodes and give them
    back.
    """
    if state.phase in (Phase.FORMING, Phase.ENDED) or state.incident is not None:
        return
    drain.settle(state)
    if state.unsettled():
        return
    found: list[Move] = []
    for rank, node, why in _leavers(state):
        if len(found) == most(state):
            break
        spare = choose_spare(state, rank, {move.newcomer for move in found})
        if spare is None or state.nodes[spare.node].taints or (spare.node == node.name and not why.device):
            if not found and preparation.make_room(state, rank):
                return
            continue
        state.failed_moves[rank] = state.failed_moves.get(rank, 0) + 1
        found.append(move_of(state, rank, spare, _describe(node, why)))
    if found:
        begin(state, found)
        return
    home.go(state)
    floating.settle(state)


def _leavers(state: JobState) -> Iterator[tuple[int, Node, Taint]]:
    """Yield the ranks that must leave their node, with the taint; not those whose moves have failed too often."""
    for node in state.nodes.values():
        if not any(known.leave for known in (*node.taints.values(), *node.device_taints.values())):
            continue
        for rank in drain.ranks_on(state, node):
            why = _why_left(state, node, rank)
            if why is not None and state.failed_moves.get(rank, 0) < ATTEMPTS:
                yield rank, node, why


def _describe(node: Node, why: Taint) -> Text:
    if why.device:
        return moves.DEVICE_TAINTED(device=why.device, node=node.name, reason=why.reason)
    return (moves.DRAINED if node.drain is not None else moves.TAINTED)(node=node.name, reason=why.reason)


def _why_left(state: JobState, node: Node, rank: int) -> Taint | None:
    """Return the taint that makes this rank leave `node`; None if it need not."""
    of_node = next((known for known in node.taints.values() if known.leave), None)
    of_device = devices.taint_of(state, state.holder(rank))
    return of_node or (of_device if of_device is not None and of_device.leave else None)
