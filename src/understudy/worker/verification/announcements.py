"""The properties of a collective on which the members of a group have to agree before they run it together, and the message if they do
not.

Each member announces what it is about to issue: the operator, its root and reduction, and the sizes that must be the same on all
members (`alike`), or those of what it gives to each other member and takes from it (`gives`, `takes`). What may legally differ between
members is left out: what is gathered in parts of several sizes, the parts of an all-to-all, what only the root gives. Where an
operation adds up, types must agree; where it only moves bytes, only their number.

Pure: no I/O, no groups, no state.

Known limits: of coalesced operations the tensors are compared one by one, of sparse ones the dense size. Of a message between two ranks
only whether it fits into the memory that waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from understudy.messages import calls
from understudy.worker.encoding.messages import Announced, CallSequences

Sizes = list[tuple[str, list[int]]]  # type and shape of each tensor

_INPUTS, _OUTPUTS = "inputs", "outputs"
# operator -> whose sizes are the same on all members; operators that are not here have separate sizes for each pair of members, or none
_ALIKE = {
    "allreduce_": (_INPUTS,),
    "allreduce_coalesced_": (_INPUTS,),
    "broadcast_": (_INPUTS,),
    "reduce_": (_INPUTS,),
    "allgather_": (_OUTPUTS,),
    "_allgather_base_": (_INPUTS, _OUTPUTS),
    "allgather_coalesced_": (_OUTPUTS,),
    "allgather_into_tensor_coalesced_": (_INPUTS, _OUTPUTS),
    "reduce_scatter_": (_INPUTS,),
    "_reduce_scatter_base_": (_INPUTS, _OUTPUTS),
    "reduce_scatter_tensor_coalesced_": (_INPUTS, _OUTPUTS),
}
_NONE = -1  # bytes: nothing goes there
_REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")  # by their number in torch


def announce(
    who: tuple[int, str], operator: str, arguments: Mapping[str, Any], inputs: Sizes, outputs: Sizes, index: int, members: int
) -> Announced:
    """Return what member `index` of `members` announces of its call. `who`: rank and worker. `arguments`: those that are numbers, or lists
    of them.
    """
    settings = []
    if "root_rank" in arguments:
        settings.append(f"root {arguments['root_rank']}")
    if "reduce_op" in arguments:
        number = int(arguments["reduce_op"])
        settings.append(_REDUCTIONS[number] if 0 <= number < len(_REDUCTIONS) else f"reduction {number}")
    sizes = {_INPUTS: inputs, _OUTPUTS: outputs}
    adds_up = "reduce_op" in arguments
    alike = [_amount(size, adds_up) for which in _ALIKE.get(operator, ()) for size in sizes[which]]
    if operator in ("send", "recv_"):
        alike = [("", sum(_bytes(size) for size in inputs + outputs))]
    gives, takes = _parts(operator, arguments, inputs, outputs, index, members)
    settings_text = ", ".join(settings)
    shown = f"{operator.strip('_')}{f' ({settings_text})' if settings_text else ''} of {_shown(inputs or outputs)}"
    return Announced(*who, operator, settings_text, alike, gives, takes, shown)


def _parts(
    operator: str, arguments: Mapping[str, Any], inputs: Sizes, outputs: Sizes, index: int, members: int
) -> tuple[list[int], list[int]]:
    """Return the bytes that this member gives to each other, and takes from each."""
    is_root = arguments.get("root_rank") == index
    if operator == "gather_":
        gives = [_bytes(inputs[0]) if member == arguments["root_rank"] else _NONE for member in range(members)] if inputs else []
        return gives, [_bytes(size) for size in outputs] if is_root else []
    if operator == "scatter_":
        takes = [_bytes(outputs[0]) if member == arguments["root_rank"] else _NONE for member in range(members)] if outputs else []
        return [_bytes(size) for size in inputs] if is_root else [], takes
    if operator == "alltoall_":
        return [_bytes(size) for size in inputs], [_bytes(size) for size in outputs]
    if operator == "alltoall_base_":
        given, taken = arguments.get("input_split_sizes") or [], arguments.get("output_split_sizes") or []
        return _split(inputs[0], given, members), _split(outputs[0], taken, members)
    return [], []


def _split(size: tuple[str, list[int]], rows: Sequence[int], members: int) -> list[int]:
    """Return the bytes of each part of a tensor that is cut along its first dimension: into so many `rows`, or evenly."""
    first = size[1][0] if size[1] else 1
    if not first:
        return [0] * members
    row = _bytes(size) // first
    return [row * count for count in rows] if rows else [_bytes(size) // members] * members


def _bytes(size: tuple[str, list[int]]) -> int:
    return math.prod(size[1]) * int(getattr(torch, size[0]).itemsize)


def _amount(size: tuple[str, list[int]], adds_up: bool) -> tuple[str, int]:
    return (size[0], math.prod(size[1])) if adds_up else ("", _bytes(size))


def _shown(sizes: Sizes) -> str:
    shown = ", ".join(f"{kind} {tuple(shape)}" for kind, shape in sizes[:3])
    return (shown + (f" and {len(sizes) - 3} more" if len(sizes) > 3 else "")) or "nothing"


def unlike(members: Sequence[Announced]) -> str:
    """Return what does not match, among the calls that the members of a group issue at the same place, in their order in it; "" if all
    match.
    """
    sides: dict[tuple[str, str, str], list[Announced]] = {}
    for member in members:
        sides.setdefault((member.operator, member.settings, str(list(map(tuple, member.alike)))), []).append(member)
    if len(sides) > 1:
        first, *others = [f"{_who(side)} {'issue' if len(side) > 1 else 'issues'} {side[0].shown}" for side in sides.values()]
        return calls.CALLS_DIFFER(first=first, others=", while ".join(others))
    for giver, one in enumerate(members):
        for taker, other in enumerate(members):
            given = one.gives[taker] if taker < len(one.gives) else _NONE
            taken = other.takes[giver] if giver < len(other.takes) else _NONE
            if _NONE not in (given, taken) and given != taken:
                return calls.PARTS_DIFFER(
                    giver=_who([one]),
                    given_call=one.shown,
                    given=given,
                    taker_rank=other.rank,
                    taker=_who([other]),
                    taken_call=other.shown,
                    taken=taken,
                    giver_rank=one.rank,
                )
    return ""


def too_long(sent: Announced, expected: Announced) -> str:
    """Return how a message does not fit into the memory that waits for it; "" if it does."""
    if sent.alike[0][1] <= expected.alike[0][1]:
        return ""
    return calls.MESSAGE_TOO_LONG(
        sender=_who([sent]),
        sent=sent.alike[0][1],
        sent_call=sent.shown,
        receiver_rank=expected.rank,
        receiver=_who([expected]),
        expected=expected.alike[0][1],
        expected_call=expected.shown,
    )


def unlike_sequences(found: Sequence[CallSequences]) -> str:
    """Return what does not match, among the collectives that the ranks, in their order, have issued on their groups; "" if all match."""
    for lane in sorted({lane for sequences in found for lane in sequences.lanes}):
        ranks = next(sequences.lanes[lane][0] for sequences in found if lane in sequences.lanes)
        issued = {rank: tuple(found[rank].lanes.get(lane, (ranks, 0, 0)))[1:] for rank in ranks}
        for one, other in pairwise(ranks):
            if issued[one] != issued[other]:
                few = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
                differ = calls.SEQUENCES_DIFFER if issued[one][0] == issued[other][0] else calls.COUNTS_DIFFER
                return differ(
                    group=lane.split("|")[0],
                    ranks=few,
                    rank=one,
                    worker=found[one].worker,
                    count=issued[one][0],
                    other_rank=other,
                    other_worker=found[other].worker,
                    other_count=issued[other][0],
                )
    return ""


def _who(side: Sequence[Announced]) -> str:
    named = ", ".join(f"{member.rank} ({member.worker})" for member in side[:8]) + (f" and {len(side) - 8} more" if len(side) > 8 else "")
    return f"rank{'s' * (len(side) > 1)} {named}"
