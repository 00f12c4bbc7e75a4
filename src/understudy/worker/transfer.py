"""State on its way from donors to a newcomer: memory to memory, striped over all donors that have it, in chunks.

A chunk that lies in one tensor on the host is sent from and received into that tensor's own memory. Small tensors are packed
together, and memory of an accelerator passes through the host; both through a buffer of one chunk, so that neither side ever
holds a second copy of the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from understudy.core.coverage import Message, Replicas, stripe
from understudy.worker.copies import LocalCopy
from understudy.worker.digests import flat_bytes
from understudy.worker.errors import UnderstudyError
from understudy.worker.state import Description, local_tensor, size_of

CHUNK = 4 << 20  # bytes of one message
SMALL = 256 << 10  # bytes below which tensors are packed together
WINDOW = 4  # messages under way to or from one member
_TAGS = 1 << 20  # tags for one newcomer


class _Donor(Protocol):
    descriptions: dict[str, Description]
    digests: dict[str, int]
    values: dict[str, bytes]
    voted: tuple[dict[str, int], dict[str, int]]


@dataclass(frozen=True)
class Plan:
    """What one newcomer gets."""

    descriptions: dict[str, Description]  # of every tensor that it will have
    expected: dict[str, int]  # digest of every tensor and value that comes from donors
    values: dict[str, bytes]
    messages: list[Message]
    local: set[str]  # entries that come from the copy instead
    first_tag: int

    @property
    def size(self) -> int:
        return sum(message.size for message in self.messages)


def make_plan(
    rank: int,
    replicas: Replicas,
    donors: Mapping[int, _Donor],
    copy: LocalCopy,
    local: set[str],
    leaver: int | None,
    number: int,
) -> Plan:
    """Works out the sources of every entry of `rank`. `local`: entries that only its copy has. `leaver`: its old worker's number.

    Raises `UnderstudyError` where an entry has no source, or where its donors do not agree.
    """
    descriptions: dict[str, Description] = {}
    sources: dict[str, list[int]] = {}
    missing: list[str] = []
    expected: dict[str, int] = {}
    values: dict[str, bytes] = {}
    entries: dict[str, Description | None] = {}
    for donor in donors.values():
        entries |= {e: d for e, d in donor.descriptions.items() if e not in entries}
        entries |= {e: None for e in donor.values if e not in entries}
    for entry, description in entries.items():
        if entry in local:
            continue
        gradient = entry.endswith("/gradient") and description is not None
        if gradient and entry not in copy.tensor_digests:
            continue  # this rank had none
        row = entry if entry in replicas.classes and not gradient else (description[4] if description else "")
        if row in replicas.classes:
            if replicas.classes[row][rank] < 0:
                continue  # this rank does not have it
            who = [m for m in replicas.of(row, rank) if m in donors and entry in donors[m].digests]
        else:
            who = [m for m in donors if entry in donors[m].digests]  # too new to be known: all must agree
        if leaver is not None and entry in donors[leaver].digests:
            who.append(leaver)
        if description is None and entry in copy.value_digests:  # those that had another value at the last vote are no replicas
            who = [m for m in who if donors[m].voted[0].get(entry) == copy.value_digests[entry]]
        elif entry in copy.tensor_digests:  # nor those with another buffer, or, with equal parameters, another gradient
            who = [m for m in who if donors[m].voted[1].get(entry) == copy.tensor_digests[entry]]
        if not who:
            missing.append(entry)
            continue
        found = {donors[m].digests[entry] for m in who}
        if len(found) > 1:
            raise UnderstudyError(
                f"rank {rank}: {entry} is not the same on its replicas, members {who}: one of them is silently corrupted, or the value "
                "differs from rank to rank since the last comparison. It cannot be told which one is right"
            )
        expected[entry] = found.pop()
        if description is None:
            values[entry] = donors[who[0]].values[entry]
        else:
            descriptions[entry] = donors[who[0]].descriptions[entry]
            sources[entry] = who
    if missing:
        raise UnderstudyError(
            f"rank {rank} held state that no surviving rank has ({len(missing)} entries, {missing[0]} for one), and no copy of it exists. "
            "It would have been saved by a replica: one more rank with the same shard (HSDP), or not losing all replicas at once"
        )
    sizes = {entry: size_of(descriptions[entry]) for entry in sources}
    local = {e for e in local if e in entries or not e.endswith("/gradient")}  # gradients that were dropped after the vote
    return Plan(descriptions, expected, values, stripe(rank, sizes, sources, CHUNK, SMALL), local, (number + 1) * _TAGS)


def _flat(tensors: Mapping[str, torch.Tensor], message: Message) -> list[torch.Tensor]:
    return [flat_bytes(local_tensor(tensors[p.entry]))[p.start : p.stop] for p in message.pieces]


def send(backend: Any, tensors: Mapping[str, torch.Tensor], messages: Sequence[Message], member: int, first_tag: int) -> None:
    """On a donor: sends its part of a plan. Raises `RuntimeError` when the connection breaks."""
    under_way: deque[tuple[Any, torch.Tensor]] = deque()
    for number, message in enumerate(messages):
        if message.donor != member:
            continue
        parts = _flat(tensors, message)
        direct = len(parts) == 1 and parts[0].device.type == "cpu"
        buffer = parts[0] if direct else torch.cat([part.cpu() for part in parts])
        if len(under_way) == WINDOW:
            under_way.popleft()[0].wait()
        under_way.append((backend.send([buffer], message.newcomer, first_tag + number), buffer))
    for work, _ in under_way:
        work.wait()


def receive(backend: Any, tensors: Mapping[str, torch.Tensor], messages: Sequence[Message], first_tag: int) -> None:
    """On the newcomer: receives the whole plan into `tensors`. Raises `RuntimeError` when a connection breaks."""
    queues: dict[int, deque[tuple[int, Message]]] = {}
    for number, message in enumerate(messages):
        queues.setdefault(message.donor, deque()).append((number, message))
    under_way: deque[tuple[Any, torch.Tensor, list[torch.Tensor]]] = deque()
    while queues or under_way:
        for donor in list(queues):
            if len(under_way) >= WINDOW * max(len(queues), 1):
                break
            number, message = queues[donor].popleft()
            if not queues[donor]:
                del queues[donor]
            parts = _flat(tensors, message)
            direct = len(parts) == 1 and parts[0].device.type == "cpu"
            buffer = parts[0] if direct else torch.empty(message.size, dtype=torch.uint8)
            under_way.append((backend.recv([buffer], donor, first_tag + number), buffer, [] if direct else parts))
        work, buffer, parts = under_way.popleft()
        work.wait()
        offset = 0
        for part in parts:
            part.copy_(buffer[offset : offset + part.numel()])
            offset += part.numel()
