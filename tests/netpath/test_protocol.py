"""A receiver, and a sender that is played by the test: copies in an order that no real one can be made to send, and wrong frames."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.integration.processes import wait_until
from tests.netpath.builds import Build
from tests.netpath.transfer import LONG

UNIT, SIZE = 1 << 16, 200_000  # bytes of a chunk, and of the receiver's messages
WINDOW = 8  # receives that the driver posts at once
WELCOME, GRANT, ACK, BYE = b"welc", b"gran", b"ack ", b"bye "
HANDLE, HELLO, FRAME, REPLY = "<IHBBQ16sQ", "<IBBHQ16s16s", "<4sIQQIIII", "<4sIQQ"


class Stream:
    """One connection of the sender. Waits for Welcome."""

    def __init__(self, handle: bytes, communicator: bytes, number: int) -> None:
        magic, port, _, _, listener, secret, self._answer = struct.unpack_from(HANDLE, handle)
        self._link = socket.create_connection(("127.0.0.1", port), LONG)
        self._link.sendall(struct.pack(HELLO, magic, 0, number, 0, listener, secret, communicator))
        assert self.reply() == (WELCOME, self._answer, 0)

    def reply(self) -> tuple[bytes, int, int]:
        """The next reply; an empty kind at the end of the connection."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < 24 and (more := self._link.recv(24 - len(data))):
                data += more
        if len(data) < 24:
            return b"", 0, 0
        kind, _, first, second = struct.unpack(REPLY, data)
        return kind, first, second

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def replies_for(self, seconds: float) -> list[bytes]:
        """The kinds of all replies until none has come for so long; the last one is empty if the connection has ended."""
        kinds: list[bytes] = []
        self._link.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while b"" not in kinds:
                kinds.append(self.reply()[0])
        self._link.settimeout(LONG)
        return kinds

    def frames_acknowledged(self, until: int) -> list[int]:
        """The numbers of frames in acknowledgements, without 0, up to `until` or the end of the connection."""
        found: list[int] = []
        while until not in found:
            kind, frames, _ = self.reply()
            if kind == b"":
                break
            if kind == ACK and frames:
                found.append(frames)
        return found

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False if a frame is acknowledged before."""
        return self.frames_acknowledged(-1) == []

    def close(self) -> None:
        self._link.close()


def frame(message: int, offset: int, length: int, total: int, unit: int = UNIT, kind: bytes = b"data") -> bytes:
    return struct.pack(FRAME, kind, length, message, offset, total, unit, 0, 0)


@dataclass
class Receiver:
    process: subprocess.Popen[str]
    handle: bytes
    communicator: bytes
    stack: contextlib.ExitStack

    def streams(self) -> tuple[Stream, Stream]:
        """Two streams, when the first messages are granted: earlier ones may not be sent."""
        first = self.stream(0)
        while first.reply()[:2] != (GRANT, WINDOW - 1):
            pass
        return first, self.stream(1)

    def post(self) -> None:
        """Let a driver that holds its receives back post them."""
        assert self.process.stdin is not None
        self.process.stdin.write("post\n")
        self.process.stdin.flush()

    def stream(self, number: int) -> Stream:
        return self.stack.enter_context(contextlib.closing(Stream(self.handle, self.communicator, number)))

    def end(self, stream: Stream, message: int) -> None:
        """The message of one byte at which the driver ends. Fails unless it found nothing wrong."""
        stream.send(frame(message, 0, 1, 1) + b"!")
        assert self.process.wait(LONG) == 0


@contextlib.contextmanager
def receiving(build: Build, **settings: str) -> Iterator[Receiver]:
    words = [str(build.driver), str(build.library), "receive", "12", "1", str(SIZE), str(LONG)]
    environment = {**os.environ, "UNDERSTUDY_NET_IFNAME": "lo", **settings}
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        handle = bytes.fromhex(process.stdout.readline().split()[1])
        yield Receiver(process, handle, os.urandom(16), stack)


def taken_over(receiver: Receiver) -> list[int]:
    """A copy arrives in part, a newer one begins, and the older one ends. Returns the frames of its stream that are acknowledged."""
    older, newer = receiver.streams()
    older.send(frame(0, 0, UNIT, UNIT + 5) + bytes(100))
    while older.reply() != (ACK, 0, 140):  # it has begun
        pass
    # The other chunk of the message, and then the newer copy, in one packet: the receiver reads all that is there before it acknowledges.
    newer.send(frame(0, UNIT, 5, UNIT + 5) + b"12345" + frame(0, 0, UNIT, UNIT + 5) + bytes(100))
    assert newer.frames_acknowledged(1) == [1]
    older.send(bytes(UNIT - 100))
    return older.frames_acknowledged(1)


def test_a_copy_that_was_taken_over_is_not_acknowledged(plugin: Build) -> None:
    with receiving(plugin) as receiver:
        assert taken_over(receiver) == []


def test_duplicates_are_acknowledged_and_dropped(plugin: Build) -> None:
    with receiving(plugin) as receiver:
        first, second = receiver.streams()
        first.send(frame(0, 0, 5, 5) + b"right")
        assert first.frames_acknowledged(1) == [1]
        second.send(frame(0, 0, 5, 5) + b"wrong")
        assert second.frames_acknowledged(1) == [1]
        receiver.end(second, 1)


WRONG: dict[str, bytes] = {
    "a kind that is none": frame(0, 0, 5, 5, kind=b"junk"),
    "no unit": frame(0, 0, 5, 5, unit=0),
    "a tiny unit": frame(0, 0, 5, 5, unit=4095),
    "a huge unit": frame(0, 0, 5, 5, unit=1 << 30),
    "an offset within a chunk": frame(0, 7, 5, 12),
    "an offset beyond the message": frame(0, UNIT, 5, 5),
    "a chunk that is too long": frame(0, 0, 6, 5),
    "a chunk that is too short": frame(0, 0, 4, 5),
    "nothing of something": frame(0, UNIT, 0, UNIT),
    "a message without a grant": frame(1000, 0, 5, 5),
    "more than the buffer holds": frame(0, 0, UNIT, 10 * SIZE),
    "more than can be": frame(0, 0, UNIT, 1 << 31),
    "a huge probe": frame(0, 0, 1 << 30, 0, kind=b"prob"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_frame_ends_its_stream_only(plugin: Build, name: str) -> None:
    with receiving(plugin) as receiver:
        good, bad = receiver.streams()
        bad.send(WRONG[name])
        assert bad.is_closed()
        receiver.end(good, 0)


def test_chunks_of_one_message_have_one_size(plugin: Build) -> None:
    with receiving(plugin) as receiver:
        good, bad = receiver.streams()
        good.send(frame(0, 0, UNIT, UNIT + 5) + bytes(UNIT))
        assert good.frames_acknowledged(1) == [1]
        bad.send(frame(0, UNIT, 6, UNIT + 6))
        assert bad.is_closed()
        good.send(frame(0, UNIT, 5, UNIT + 5) + b"12345")
        receiver.end(good, 1)


def test_the_end_of_the_sender_is_an_error_of_open_receives(plugin: Build) -> None:
    with receiving(plugin) as receiver:
        stream, _ = receiver.streams()
        stream.send(frame(0, 0, 0, 0, kind=b"bye "))
        assert receiver.process.wait(LONG) == 4


def test_grants_are_repeated_on_a_new_stream(plugin: Build) -> None:
    with receiving(plugin) as receiver:
        _, second = receiver.streams()
        assert [second.reply() for _ in range(WINDOW)] == [(GRANT, number, SIZE + 512) for number in range(WINDOW)]
        receiver.end(second, 0)


@pytest.mark.whole
def test_silence_counts_from_the_first_receive(plugin: Build) -> None:
    """An idle time beyond the limit, which is 3 s here, is no reason to fail a receive that is posted after it."""
    with receiving(plugin, UNDERSTUDY_NET_GIVE_UP_S="3", NETPATH_HOLD="1") as receiver:
        stream = receiver.stream(0)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 4, "more idle time than the limit", LONG)
        receiver.post()
        assert set(stream.replies_for(1)) == {GRANT}
        receiver.end(stream, 0)


@pytest.mark.whole
def test_strangers_leave_most_descriptors_alone(plugin: Build) -> None:
    """They connect and say nothing: an eighth of what the process may have is theirs, and a sender gets in nevertheless."""
    limit, many = 128, 300
    with receiving(plugin) as receiver, contextlib.ExitStack() as stack:
        pid = receiver.process.pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        before = descriptors(pid)
        _, port, *_ = struct.unpack_from(HANDLE, receiver.handle)
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), LONG)) for _ in range(many)]
        closed = select.poll()
        for stranger in strangers:
            closed.register(stranger, select.POLLIN)
        seen: list[int] = []

        def most_have_left() -> bool:
            seen.append(descriptors(pid))
            return len(closed.poll(0)) >= many - limit // 8

        wait_until(most_have_left, "the end of most strangers", LONG)
        assert max(seen) <= before + limit // 8 + 2  # and one that is just being accepted or closed
        stream, _ = receiver.streams()
        receiver.end(stream, 0)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
