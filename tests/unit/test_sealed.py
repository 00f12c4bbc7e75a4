"""What is handed over arrives whole: bytes that were there before do not travel again, and any other content is refused."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from understudy.core.buddies import Place
from understudy.worker.buddies import Channel
from understudy.worker.codec import encode
from understudy.worker.copies import Boundary, LocalCopy
from understudy.worker.errors import NotTheSame
from understudy.worker.peers import Peers
from understudy.worker.rendezvous import Rendezvous, StoreServer
from understudy.worker.sealed import LONG, Sealed, seal, unseal


def made(transaction: int, torch_state: bytes) -> LocalCopy:
    python, start = b"p" * LONG, b"s" * 4000
    position = {"epoch": 0, "index": transaction, "start": {"torch": start, "python": python}, "generators": [start, b"short"]}
    streams = {"torch": torch_state, "python": python}
    boundary = Boundary(0, transaction, position, {"torch": start, "python": python}, batch=7)
    return LocalCopy(transaction, [0, transaction, 0], transaction, streams, boundary, {"count/value": b"v"}, {}, {}, {"count/value": 5})


def content(copy: LocalCopy) -> object:
    return encode([str(replace(copy, tensors={})), {name: tensor.tolist() for name, tensor in copy.tensors.items()}])


def test_what_is_sealed_is_unsealed() -> None:
    copy = replace(made(3, b"t" * 5056), tensors={"buffer": torch.arange(4)}, results={"0.3.0": b"r" * LONG})
    sealed = seal(copy)
    assert len(sealed.parts) == 3  # each long value of the streams once
    assert content(unseal(Sealed.unpacked(sealed.packed()))) == content(copy)


def test_one_bit_is_seen_wherever_it_is() -> None:
    sealed = seal(made(3, b"t" * 5056))
    changed = [replace(sealed, body=flipped(sealed.body, at)) for at in (0, 9, len(sealed.body) - 1)]
    for number, part in enumerate(sealed.parts):
        changed.append(replace(sealed, parts=[*sealed.parts[:number], flipped(part, len(part) // 2), *sealed.parts[number + 1 :]]))
    changed += [replace(sealed, parts=sealed.parts[::-1]), replace(sealed, parts=sealed.parts[:-1])]
    for one in changed:
        with pytest.raises(NotTheSame):
            unseal(one)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_parts_that_were_there_before_do_not_travel_again() -> None:
    copies = [made(0, b"a" * 5056), made(1, b"b" * 5056), made(2, b"b" * 5056), made(3, b"a" * 5056)]
    server = StoreServer("127.0.0.1")
    heard: dict[int, list[LocalCopy]] = {0: [], 1: []}
    sizes: list[int] = []

    def rank(number: int) -> None:
        meeting = Rendezvous(server.address, 0, lambda: False)
        peers = Peers(meeting, number)
        channel = Channel(peers, number, [Place("a", "a"), Place("b", "b")])
        if number == 0:
            send = channel.hand_over
            channel.hand_over = lambda data: sizes.append(len(data)) or send(data)  # type: ignore[method-assign, func-returns-value]
        for copy in copies:
            heard[number] += map(unseal, channel.hand_over_copy(seal(replace(copy, step=number))).values())
        channel.agree([0])
        peers.close()

    threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number, found in heard.items():
        assert [content(copy) for copy in found] == [content(replace(copy, step=1 - number)) for copy in copies]
    assert sizes[0] > 9000 and 5056 < sizes[1] < 6000 and sizes[2] < 1000 and 5056 < sizes[3] < 6000
