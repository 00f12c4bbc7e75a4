"""How a rank stands at three moments of a step that a spare computes beside it, as digests by name; and in what two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.worker.encoding.codec import Unencodable, decode, encode
from understudy.worker.encoding.contents import content_of
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.encoding.messages import DrilledMoment
from understudy.worker.protocol.rank_state import RankState
from understudy.worker.state.tensors import digest_of

BEGIN, VOTE, END = "begin", "vote", "end"
_SHOWN = 64  # bytes of an encoding that is told to a person
_MANY = 8  # values in a container that is
ARGUMENTS, RESULT = "the arguments of the step", "the result of the step"


def at_begin(held: RankState, arguments: Any) -> DrilledMoment:
    """What a step begins with beside the state that is proven otherwise: every attribute of the modules, and its arguments."""
    attributes = held.state.attributes.everything()
    digests = {name: digest_bytes(data) for name, data in attributes.items()}
    return DrilledMoment(BEGIN, digests | _content(ARGUMENTS, arguments), _short(attributes | _encoded(ARGUMENTS, arguments)), 0, 0, {}, 0)


def at_vote(held: RankState) -> DrilledMoment:
    """What an attempt has made: gradients, buffers, values, streams, and what it changes before its vote."""
    state = held.state
    found = dict(state.mutable_tensors()) | dict(state.gradients())
    found |= {entry: tensor for entry, tensor in (*state.parameters(), *state.moments()) if entry in held.pre_vote.entries}
    return _moment(VOTE, held, {entry: digest_of(tensor) for entry, tensor in found.items()})


def at_end(held: RankState, result: Any) -> DrilledMoment:
    """Everything, behind the step."""
    tensors = held.state.all_tensors() | dict(held.state.gradients())
    digests = {entry: digest_of(tensor) for entry, tensor in tensors.items()} | _content(RESULT, result)
    return _moment(END, held, digests, _encoded(RESULT, result))


def _moment(moment: str, held: RankState, digests: dict[str, int], more: Mapping[str, bytes] | None = None) -> DrilledMoment:
    """`more`: encodings of what is in `digests`."""
    values = held.state.encoded_values()
    streams = {f"the random stream {name!r}": digest_bytes(data) for name, data in held.state.randomness.capture().items()}
    digests = digests | {name: digest_bytes(data) for name, data in values.items()} | streams
    return DrilledMoment(moment, digests, _short({**values, **(more or {})}), 0, 0, {}, 0)


def _content(name: str, thing: Any) -> dict[str, int]:
    content = content_of(thing)
    return {} if content.opaque else {name: content.all}


def _encoded(name: str, thing: Any) -> dict[str, bytes]:
    try:
        return {name: encode([thing])} if _is_brief(thing) else {}
    except (Unencodable, ValueError):  # a string or a number that cannot be moved
        return {}


def _is_brief(thing: Any) -> bool:
    """Whether a person could read it: numbers and strings, a few of them."""
    if isinstance(thing, dict):
        return len(thing) <= _MANY and all(isinstance(key, str) and _is_brief(value) for key, value in thing.items())
    if isinstance(thing, list | tuple):
        return len(thing) <= _MANY and all(map(_is_brief, thing))
    return thing is None or isinstance(thing, bool | int | float | str)


def _short(values: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in values.items() if len(data) <= _SHOWN}


def differences(here: DrilledMoment, there: DrilledMoment) -> list[str]:
    """What is not the same, by name; of short values with both. `here` is the spare's."""
    mine, theirs = here.digests, there.digests
    names = [name for name in theirs if mine.get(name) != theirs[name]] + [name for name in mine if name not in theirs]
    return [_told(name, here, there) for name in names]


def _told(name: str, here: DrilledMoment, there: DrilledMoment) -> str:
    plain = name.replace("/attribute/", ".").replace(".:", ".").replace(":", ".") if "/attribute/" in name else name
    what, verb = f"module attribute {plain}" if "/attribute/" in name else plain, "are" if name == ARGUMENTS else "is"
    if name not in there.digests:
        return f"{what} {verb} there on the spare only"
    if name not in here.digests:
        return f"{what} {verb} missing on the spare"
    if name in here.shown and name in there.shown:
        return f"{what} {verb} {_value(there.shown[name])} on the rank and {_value(here.shown[name])} on the spare"
    return f"{what} {verb} not the same"


def _value(data: bytes) -> str:
    """Of an attribute, arguments or a result: its encoding is that of a list with it."""
    try:
        found = decode(data)
    except (ValueError, TypeError):
        return "something else"
    return repr(found[0]) if isinstance(found, list) and len(found) == 1 else repr(found)


def is_value(text: str) -> bool:
    """Whether that is of something registered that is no module, optimizer or tensor."""
    return text.partition(" ")[0].endswith("/value")


def is_result(text: str) -> bool:
    return text.startswith(RESULT)
