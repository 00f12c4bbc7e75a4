"""Digests by name of a rank at three moments of a step that is computed twice, and the differences between two of them. The step is
computed by a spare in parallel with the rank, in a drill; or by the rank itself, before a loss and in the redo.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from understudy.worker.encoding.codec import Unencodable, decode, encode
from understudy.worker.encoding.contents import content_of
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.encoding.messages import DrilledMoment
from understudy.worker.generation.rank_state import RankState
from understudy.worker.state.tensors import digest_of
from understudy.worker.state.unregistered import is_unregistered

BEGIN, VOTE, END = "begin", "vote", "end"
_SHOWN = 64  # bytes of an encoding that is shown to a person
NAMED = 3  # differences that are named
_MANY = 8  # values in a container that counts as long
ARGUMENTS, RESULT = "the arguments of the step", "the result of the step"


class Whose(NamedTuple):
    """The words for the two places whose results are compared."""

    there: str
    here: str


DRILLED = Whose("on the rank", "on the spare")
REDONE = Whose("before the loss", "in the redo")


def at_begin(rank_state: RankState, arguments: Any) -> DrilledMoment:
    """Return what a step begins with in addition to the otherwise proven state: all attributes of the modules, and its arguments."""
    attributes = rank_state.state.attributes.everything()
    digests = {name: digest_bytes(data) for name, data in attributes.items()}
    return DrilledMoment(BEGIN, digests | _content(ARGUMENTS, arguments), _short(attributes | encoded(ARGUMENTS, arguments)), 0, 0, {}, 0)


def at_vote(rank_state: RankState, written: Collection[str] | None = None) -> DrilledMoment:
    """Return the results of an attempt: gradients, buffers, values, streams, and what it changes before its vote: `written`, or all that
    is known now.
    """
    state = rank_state.state
    changed = rank_state.pre_vote.entries if written is None else written
    found = dict(state.mutable_tensors()) | state.made_gradients()
    found |= {entry: tensor for entry, tensor in (*state.parameters(), *state.moments()) if entry in changed}
    return _moment(VOTE, rank_state, {entry: digest_of(tensor) for entry, tensor in found.items()})


def at_end(rank_state: RankState, result: Any) -> DrilledMoment:
    """Return everything, after the step."""
    tensors = rank_state.state.all_tensors() | rank_state.state.made_gradients()
    digests = {entry: digest_of(tensor) for entry, tensor in tensors.items()} | _content(RESULT, result)
    return _moment(END, rank_state, digests, encoded(RESULT, result))


def _moment(moment: str, rank_state: RankState, digests: dict[str, int], more: Mapping[str, bytes] | None = None) -> DrilledMoment:
    """Make the moment. `more`: encodings of the values in `digests`."""
    values = rank_state.state.encoded_values()
    streams = {stream(name): digest_bytes(data) for name, data in rank_state.state.randomness.capture().items()}
    digests = digests | {name: digest_bytes(data) for name, data in values.items()} | streams
    return DrilledMoment(moment, digests, _short({**values, **(more or {})}), 0, 0, {}, 0)


def _content(name: str, thing: Any) -> dict[str, int]:
    content = content_of(thing)
    return {} if content.opaque else {name: content.all}


def stream(name: str) -> str:
    """Return the name of a random stream."""
    return f"the random stream {name!r}"


def encoded(name: str, thing: Any) -> dict[str, bytes]:
    """Return the encoding by name, if a person could read it."""
    try:
        return {name: encode([thing])} if _is_brief(thing) else {}
    except (Unencodable, ValueError):  # a string or a number that cannot be moved
        return {}


def _is_brief(thing: Any) -> bool:
    """Return whether a person could read it: numbers and strings, a few of them."""
    if isinstance(thing, dict):
        return len(thing) <= _MANY and all(isinstance(key, str) and _is_brief(value) for key, value in thing.items())
    if isinstance(thing, list | tuple):
        return len(thing) <= _MANY and all(map(_is_brief, thing))
    return thing is None or isinstance(thing, bool | int | float | str)


def _short(values: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in values.items() if len(data) <= _SHOWN}


def texts(values: Mapping[str, bytes]) -> dict[str, str]:
    """Return those of `values` that a person could read."""
    return {name: _value(data) for name, data in _short(values).items()}


def differences(here: DrilledMoment, there: DrilledMoment, whose: Whose = DRILLED, without: Collection[str] = ()) -> list[str]:
    """Return the differences by name, short values with both. `here` is the spare's, or the redo's. `without`: names that do not count."""
    mine, theirs = here.digests, there.digests
    names = [name for name in theirs if mine.get(name) != theirs[name]] + [name for name in mine if name not in theirs]
    return [_text(name, here, there, whose) for name in names if name not in without and not is_unregistered(name)]


def aside(here: DrilledMoment, there: DrilledMoment) -> list[str]:
    """Return differences of unregistered values of the script: possible causes, and no differences by themselves."""
    both = here.digests.keys() & there.digests.keys()
    return [
        _text(name, here, there, DRILLED) for name in sorted(both) if is_unregistered(name) and here.digests[name] != there.digests[name]
    ]


def joined(texts: list[str]) -> str:
    """Join the first texts, and the number of the others."""
    return "; ".join(texts[:NAMED]) + (f"; and {len(texts) - NAMED} more" if len(texts) > NAMED else "")


def _text(name: str, here: DrilledMoment, there: DrilledMoment, whose: Whose) -> str:
    if is_unregistered(name):
        return f"{name.rpartition(':')[2]} of the script is not the same"
    plain = name.replace("/attribute/", ".").replace(".:", ".").replace(":", ".") if "/attribute/" in name else name
    what, verb = f"module attribute {plain}" if "/attribute/" in name else plain, "are" if name == ARGUMENTS else "is"
    if name not in there.digests:
        return f"{what} {verb} there {whose.here} only"
    if name not in here.digests:
        return f"{what} {verb} missing {whose.here}"
    if name in here.shown and name in there.shown:
        return f"{what} {verb} {_value(there.shown[name])} {whose.there} and {_value(here.shown[name])} {whose.here}"
    return f"{what} {verb} not the same"


def _value(data: bytes) -> str:
    """Return the value of an attribute, arguments or a result: it is encoded as a list with it."""
    try:
        found = decode(data)
    except (ValueError, TypeError):
        return "something else"
    return repr(found[0]) if isinstance(found, list) and len(found) == 1 else repr(found)


def is_value(text: str) -> bool:
    """Return whether `text` names something registered that is no module, optimizer or tensor."""
    return text.partition(" ")[0].endswith("/value")


def is_result(text: str) -> bool:
    return text.startswith(RESULT)
