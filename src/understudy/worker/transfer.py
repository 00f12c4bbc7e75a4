"""State on its way from donors to a newcomer: memory to memory, striped over all donors that have it, in chunks.

A chunk that lies in one tensor on the host is sent from and received into that tensor's own memory. Small tensors are packed
together, and memory of an accelerator passes through the host; both through a buffer of one chunk, so that neither side ever
holds a second copy of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from understudy.core.coverage import Message, Replicas, stripe
from understudy.core.judgement import sides_of
from understudy.worker.copies import Digests, LocalCopy
from understudy.worker.digests import flat_bytes
from understudy.worker.errors import DonorsDiffer, UnderstudyError
from understudy.worker.tensors import Description, local_tensor, size_of
from understudy.worker.transport.peers import Buffers, Peers, frame, read_frame

CHUNK = 4 << 20  # bytes of one message
SMALL = 256 << 10  # bytes below which tensors are packed together


class _Donor(Protocol):
    descriptions: dict[str, Description]
    digests: dict[str, int]
    values: dict[str, bytes]
    versions: list[Digests]


@dataclass(frozen=True)
class Plan:
    """What one newcomer gets."""

    descriptions: dict[str, Description]  # of every tensor that it will have
    expected: dict[str, int]  # digest of every tensor and value that comes from donors
    values: dict[str, bytes]
    messages: list[Message]
    local: set[str]  # entries that come from the copy instead

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
) -> Plan:
    """Works out the sources of every entry of `rank`. `local`: entries that only its copy has. `leaver`: its old worker's number.

    Raises `UnderstudyError` where an entry has no source, `DonorsDiffer` where those of one do not agree.
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
        if description is None and entry in copy.value_digests:  # those that never had this value since the last vote are no replicas
            who = [m for m in who if any(v.get(entry) == copy.value_digests[entry] for v, _ in donors[m].versions)]
        elif entry in copy.tensor_digests:  # nor those with another buffer, or, with equal parameters, another gradient
            who = [m for m in who if any(t.get(entry) == copy.tensor_digests[entry] for _, t in donors[m].versions)]
        if not who:
            missing.append(entry)
            continue
        found = {donors[m].digests[entry] for m in who}
        if len(found) > 1:
            raise DonorsDiffer(
                f"{entry}, which rank {rank} is to get, is not the same on its replicas: one of them is silently corrupted, or the value "
                "differs from rank to rank since the last comparison",
                sides_of({m: donors[m].digests[entry] for m in who}),
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
    return Plan(descriptions, expected, values, stripe(rank, sizes, sources, CHUNK, SMALL), local)


def knock(peers: Peers, plans: Mapping[int, Plan], member: int) -> None:
    """On a donor: opens the connections that `send` will use. Raises `PeerLost` or `GenerationAborted`, as all that follow do."""
    peers.exchange({rank: frame(b"") for rank, plan in plans.items() if _between(plan, member)}, {})


def answer(peers: Peers, plan: Plan) -> None:
    """On the newcomer: lets its donors in."""
    found: dict[int, bytes] = {}
    peers.exchange({}, {donor: read_frame(found, donor) for donor in _donors(plan)})


def send(peers: Peers, tensors: Mapping[str, torch.Tensor], plans: Mapping[int, Plan], member: int) -> None:
    """On a donor: sends its part of the plans of all newcomers, by rank."""
    peers.exchange({rank: _leaving(tensors, parts) for rank, plan in plans.items() if (parts := _between(plan, member))}, {})


def receive(peers: Peers, tensors: Mapping[str, torch.Tensor], plan: Plan) -> None:
    """On the newcomer: receives its whole plan into `tensors`."""
    peers.exchange({}, {donor: _arriving(tensors, _between(plan, donor)) for donor in _donors(plan)})


def _donors(plan: Plan) -> set[int]:
    return {message.donor for message in plan.messages}


def _between(plan: Plan, donor: int) -> list[Message]:
    return [message for message in plan.messages if message.donor == donor]


def _parts(tensors: Mapping[str, torch.Tensor], message: Message) -> tuple[list[torch.Tensor], bool]:
    """What a message consists of, and whether that is one piece of the host's memory."""
    parts = [flat_bytes(local_tensor(tensors[p.entry]))[p.start : p.stop] for p in message.pieces]
    return parts, len(parts) == 1 and parts[0].device.type == "cpu"


def _leaving(tensors: Mapping[str, torch.Tensor], messages: Sequence[Message]) -> Buffers:
    for message in messages:
        parts, direct = _parts(tensors, message)
        buffer = parts[0] if direct else torch.cat([part.cpu() for part in parts])
        yield buffer.numpy().data


def _arriving(tensors: Mapping[str, torch.Tensor], messages: Sequence[Message]) -> Buffers:
    for message in messages:
        parts, direct = _parts(tensors, message)
        buffer = parts[0] if direct else torch.empty(message.size, dtype=torch.uint8)
        yield buffer.numpy().data
        if not direct:
            for part, content in zip(parts, torch.split(buffer, [part.numel() for part in parts]), strict=True):
                part.copy_(content)
