"""The transfer of state from donors to a newcomer: memory to memory, striped over all donors that have it, in chunks.

A chunk that lies in one tensor on the host is sent from and received into that tensor's own memory. Small tensors are packed together,
and memory of an accelerator passes through the host; both through a buffer of one chunk, so that neither side ever has a second copy of
the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from understudy.core.coverage import TransferMessage
from understudy.worker import hooks
from understudy.worker.encoding.digests import flat_bytes
from understudy.worker.generation.plan import Plan
from understudy.worker.state.tensors import local_tensor
from understudy.worker.transport.peers import Buffers, Peers, frame, read_frame


def connect(peers: Peers, plans: Mapping[int, Plan], member: int) -> None:
    """Open, on a donor, the connections that `send` will use. Raises `PeerLost` or `GenerationAborted`, as all functions below do."""
    peers.exchange({rank: frame(b"") for rank, plan in plans.items() if _between(plan, member)}, {})


def accept(peers: Peers, plan: Plan) -> None:
    """Accept, on the newcomer, the connections of its donors."""
    found: dict[int, bytes] = {}
    peers.exchange({}, {donor: read_frame(found, donor) for donor in _donors(plan)})


def send(peers: Peers, tensors: Mapping[str, torch.Tensor], plans: Mapping[int, Plan], member: int) -> None:
    """Send, on a donor, its part of the plans of all newcomers, by rank."""
    peers.exchange({rank: outgoing(tensors, parts) for rank, plan in plans.items() if (parts := _between(plan, member))}, {})


def receive(peers: Peers, tensors: Mapping[str, torch.Tensor], plan: Plan) -> None:
    """Receive, on the newcomer, its whole plan into `tensors`."""
    peers.exchange({}, {donor: incoming(tensors, _between(plan, donor)) for donor in _donors(plan)})


def _donors(plan: Plan) -> set[int]:
    return {message.donor for message in plan.messages}


def _between(plan: Plan, donor: int) -> list[TransferMessage]:
    return [message for message in plan.messages if message.donor == donor]


def _parts(tensors: Mapping[str, torch.Tensor], message: TransferMessage) -> tuple[list[torch.Tensor], bool]:
    """Return the parts of a message, and whether that is one piece of the host's memory."""
    parts = [flat_bytes(local_tensor(tensors[p.entry]))[p.start : p.stop] for p in message.pieces]
    return parts, len(parts) == 1 and parts[0].device.type == "cpu"


def outgoing(tensors: Mapping[str, torch.Tensor], messages: Sequence[TransferMessage]) -> Buffers:
    for message in messages:
        parts, direct = _parts(tensors, message)
        buffer = parts[0] if direct else torch.cat([part.cpu() for part in parts])
        yield buffer.numpy().data


def incoming(tensors: Mapping[str, torch.Tensor], messages: Sequence[TransferMessage]) -> Buffers:
    for number, message in enumerate(messages, 1):
        parts, direct = _parts(tensors, message)
        buffer = parts[0] if direct else torch.empty(message.size, dtype=torch.uint8)
        yield buffer.numpy().data
        if not direct:
            for part, content in zip(parts, torch.split(buffer, [part.numel() for part in parts]), strict=True):
                part.copy_(content)
        if number == max(1, len(messages) // 2):
            hooks.fire("transfer")
