"""The plan of a newcomer's state: which entries it gets, and from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understudy.core.coverage import TransferMessage, stripe
from understudy.messages import newcomers
from understudy.worker.encoding.messages import TensorDescription
from understudy.worker.errors import UnderstudyError
from understudy.worker.state.sources import DonorView, EntryHolders, StateSource
from understudy.worker.state.tensors import size_of
from understudy.worker.state.unregistered import is_unregistered

CHUNK = 4 << 20  # bytes of one message
SMALL = 256 << 10  # bytes below which tensors are packed together


@dataclass(frozen=True)
class Plan:
    """The plan of one newcomer."""

    descriptions: dict[str, TensorDescription]  # of every tensor that it will have
    expected: dict[str, int]  # digest of every tensor and value that comes from donors
    values: dict[str, bytes]
    messages: list[TransferMessage]
    local: set[str]  # entries that come from the copy

    @property
    def size(self) -> int:
        return sum(message.size for message in self.messages)


def make_plan(rank: int, donors: Mapping[int, DonorView], sources: Sequence[StateSource], local: set[str]) -> Plan:
    """Choose the sources of every entry of `rank`. `local`: entries that only its copy has.

    Raises `UnderstudyError` if an entry has no source, `DonorMismatch` if those of one do not agree.
    """
    entries: dict[str, TensorDescription | None] = {}
    for donor in donors.values():
        entries |= {e: d for e, d in donor.descriptions.items() if e not in entries}
        entries |= {e: None for e in donor.values if e not in entries}
    plan = Plan({}, {}, {}, [], {e for e in local if e in entries or not e.endswith("/gradient")})  # not those dropped after the vote
    givers: dict[str, Sequence[int]] = {}
    missing: list[str] = []
    for entry, description in entries.items():
        found = next((there for source in sources if (there := source.find(entry, description)) is not None), None)
        if found is None and not is_unregistered(entry):
            missing.append(entry)
        if isinstance(found, EntryHolders):
            donor = donors[found.numbers[0]]
            plan.expected[entry] = found.digest
            if description is None:
                plan.values[entry] = donor.values[entry]
            else:
                plan.descriptions[entry] = donor.descriptions[entry]
                givers[entry] = found.numbers
    if missing:
        raise UnderstudyError(newcomers.STATE_NOWHERE(rank=rank, count=len(missing), entry=missing[0]))
    sizes = {entry: size_of(plan.descriptions[entry]) for entry in givers}
    plan.messages.extend(stripe(rank, sizes, givers, CHUNK, SMALL))
    return plan
