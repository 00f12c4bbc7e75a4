"""The network check and its other side: which clients are admitted, secrets that are never sent, what is noticed, and that everything has
an end.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.message_texts import codes, has, refused

from understudy.checks import peers, serving, stream
from understudy.checks.base import Result, Verdict
from understudy.checks.network import Network
from understudy.checks.options import Options, address
from understudy.checks.peers import Blocks, Broken, Line, Received, Request
from understudy.checks.serving import Serving
from understudy.messages import network_check, node_checks

TOKEN = "a long text of this test"
LONG = 60.0  # seconds; for what ends sooner
SHORT = 0.02  # seconds of sending: some blocks

Side = Callable[[socket.socket], object]


@contextlib.contextmanager
def other(side: Side) -> Iterator[socket.socket]:
    """Our end of a connection, at whose other end `side` is."""
    ours, theirs = socket.socketpair()
    with ours:
        running = threading.Thread(target=_quietly, args=(side, theirs))
        running.start()
        try:
            yield ours
        finally:
            ours.close()
            running.join(LONG)


def _quietly(side: Side, connection: socket.socket) -> None:
    with connection, contextlib.suppress(Broken, OSError):
        side(connection)


@contextlib.contextmanager
def listening(*sides: Side) -> Iterator[str]:
    """HOST:PORT, where each connection gets the next of `sides`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            for side in sides:
                with contextlib.suppress(OSError):
                    _quietly(side, listener.accept()[0])

        running = threading.Thread(target=run)
        running.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            running.join(LONG)


def measured(*sides: Side, token: str = TOKEN, **options: float) -> Result:
    with listening(*sides) as peer:
        return Network(Options(peers=(peer,) * len(sides), network_seconds=SHORT, **options), token).run()  # type: ignore[arg-type]


def serves(*tokens: str) -> Side:
    return lambda connection: serving.serve(connection, tokens or (TOKEN,))


def test_a_peer_that_works() -> None:
    found = measured(serves(), serves("another one", TOKEN))
    assert found.verdict is Verdict.PASSED, found.detail
    assert [figure.unit for figure in found.figures] == ["Gbit/s"] * 4
    assert all(figure.value > 0 for figure in found.figures)


def test_no_peer() -> None:
    assert "--peer" in Network(Options()).missing()
    assert Network(Options(peers=("a:1",))).missing() == ""


def test_too_slow() -> None:
    found = measured(serves(), min_gbits=1e6)
    assert found.verdict is Verdict.FAILED
    assert codes(found.detail) == [network_check.SLOW.code] * 2 and has(found.detail, network_check.SLOW, wanted=1e6)


@pytest.mark.parametrize("tokens", [("another",), ("",)])
def test_another_token(tokens: tuple[str, ...]) -> None:
    found = measured(serves(*tokens))
    assert found.verdict is Verdict.FAILED
    assert has(found.detail, network_check.WRONG_TOKEN)


def test_who_lets_everybody_in_without_the_token_is_not_believed() -> None:
    """Something in the place of the peer, which cannot prove that it has the token."""

    def pretends(connection: socket.socket) -> None:
        line = Line(connection, LONG)
        line.send(peers.GREETING + bytes(peers.NONCE))
        shown = line.receive(peers.NONCE + Request.form.size + peers.PROOF)
        line.send(peers.YES + shown[-peers.PROOF :])  # the client's own proof sent back is none

    assert has(measured(pretends).detail, network_check.NO_TOKEN_THERE)


def test_something_else_listens() -> None:
    assert has(measured(lambda c: c.sendall(b"220 smtp ready")).detail, network_check.NOT_OURS)


def test_the_token_never_travels() -> None:
    sent = bytearray()

    def heard(connection: socket.socket) -> None:
        with socket.create_connection(address(real)) as beyond:
            back = threading.Thread(target=_copied, args=(beyond, connection, sent))
            back.start()
            _copied(connection, beyond, sent)
            back.join(LONG)

    with listening(serves()) as real:
        assert measured(heard).verdict is Verdict.PASSED
    assert peers.GREETING in sent and len(sent) > 4 * stream.BLOCK
    assert TOKEN.encode() not in sent


def _copied(one: socket.socket, another: socket.socket, seen: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            seen += data
            another.sendall(data)
        another.shutdown(socket.SHUT_WR)


def test_a_proof_is_good_once() -> None:
    """A recorded proof is useless: the next server has another nonce. A changed request does not pass either."""
    nonces, asked = (bytes([1]) * 32, bytes([2]) * 32), Request(1.0, 5).packed()
    proofs = {
        peers.proof(token, label, *between, request)
        for token in (TOKEN, "another")
        for label in (b"client", b"server")
        for between in (nonces, nonces[::-1])
        for request in (asked, Request(60.0, 5).packed())
    }
    assert len(proofs) == 16

    def replays(connection: socket.socket) -> None:
        line = Line(connection, LONG)
        line.receive(len(peers.GREETING) + peers.NONCE)
        line.send(nonces[1] + asked + peers.proof(TOKEN, b"client", *nonces, asked))
        assert line.receive(1) == peers.NO

    with other(replays) as connection, refused(Broken, network_check.UNKNOWN_TOKEN):
        serving.serve(connection, (TOKEN,))


def spoils(connection: socket.socket) -> None:
    """A peer behind a network that changes a bit of the second block that it sends."""
    line = Line(connection, LONG)
    request = peers.admit(line, (TOKEN,))
    upwards, downwards = peers.both(request.seed)
    line.send(upwards.receive(line).packed())
    second = bytearray(downwards._blocks[1])
    second[12345] ^= 4
    downwards._blocks[1] = bytes(second)
    for count in range(3):
        line.send(b"B" + downwards._blocks[count])
    line.send(b"E")


def test_what_arrives_otherwise_here() -> None:
    found = measured(spoils)
    assert found.verdict is Verdict.FAILED
    assert has(found.detail, network_check.CORRUPT, wrong=1, count=3) and "from 127.0.0.1:" in found.detail


def test_what_arrives_otherwise_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends data that does not belong to its seed."""
    send = Blocks.send
    monkeypatch.setattr(Blocks, "send", lambda self, line, seconds: send(Blocks(7), line, seconds))
    found = measured(serves())
    assert found.verdict is Verdict.FAILED
    assert has(found.detail, network_check.CORRUPT) and "to 127.0.0.1:" in found.detail


def test_one_that_closes_in_the_middle() -> None:
    def closes(connection: socket.socket) -> None:
        line = Line(connection, LONG)
        peers.admit(line, (TOKEN,))
        line.receive(1 + 1000)

    assert has(detail := measured(closes).detail, network_check.BROKEN) or has(detail, network_check.CLOSED)


def test_a_peer_that_sends_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "STALL", 2.0)
    over = threading.Event()

    def stops(connection: socket.socket) -> None:
        line = Line(connection, LONG)
        request = peers.admit(line, (TOKEN,))
        upwards, downwards = peers.both(request.seed)
        line.send(upwards.receive(line).packed() + b"B" + downwards._blocks[0][:5000])
        over.wait(LONG)

    with listening(stops) as peer:
        found = Network(Options(peers=(peer,), network_seconds=SHORT), TOKEN).run()
        over.set()
    assert found.detail == f"{peer}: {network_check.SENDS_NOTHING(seconds=2)}"


def test_one_that_never_ends() -> None:
    def goes_on(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"B" + bytes(stream.BLOCK))

    with other(goes_on) as connection, refused(Broken, network_check.ENDLESS, seconds=0.3):
        Blocks(1).receive(Line(connection, 0.3))


def test_more_bytes_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST_BYTES", 2 * stream.BLOCK)
    three = (b"B" + bytes(stream.BLOCK)) * 3
    with other(lambda connection: connection.sendall(three)) as connection, refused(Broken, network_check.TOO_MUCH_SENT, most=2097152):
        Blocks(1).receive(Line(connection, LONG))


def test_the_other_peers_are_measured_all_the_same() -> None:
    found = measured(serves("another"), serves())
    assert found.verdict is Verdict.FAILED
    assert len(found.figures) == 2


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0, 61.0])
def test_requests_have_bounds(seconds: float) -> None:
    with refused(Broken, network_check.BAD_REQUEST, seconds=seconds):
        Request.read(struct.pack("!dQ", seconds, 1))
    assert Request.read(Request(60.0, (1 << 64) - 1).packed()) == Request(60.0, (1 << 64) - 1)


@pytest.mark.parametrize(("count", "wrong", "seconds"), [(1, 2, 1.0), (1 << 40, 0, 1.0), (1, 0, math.nan), (1, 0, math.inf), (1, 0, -1.0)])
def test_answers_have_bounds(count: int, wrong: int, seconds: float) -> None:
    with refused(Broken, network_check.BAD_COUNT, count=count, wrong=wrong, seconds=seconds):
        Received.read(struct.pack("!QQd", count, wrong, seconds))
    assert Received.read(Received(2, 1, 0.0).packed()).gbits > 0


@pytest.fixture
def served() -> Iterator[tuple[str, list[str], threading.Event]]:
    """A running `Serving`: its address, its messages, and an event that is set at each message."""
    reported, something = list[str](), threading.Event()

    def tell(text: str) -> None:
        reported.append(text)
        something.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = threading.Thread(target=_served, args=(Serving(listener, [TOKEN], tell),))
        running.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", reported, something
        listener.shutdown(socket.SHUT_RDWR)
        running.join(LONG)


def _served(serving: Serving) -> None:
    with contextlib.suppress(OSError):
        serving.run(LONG)


def test_a_client_is_notified_when_all_places_are_taken(served: tuple[str, list[str], threading.Event]) -> None:
    peer, reported, something = served
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_connection(address(peer))) for _ in range(serving.AT_ONCE)]
        for connection in taken:
            Line(connection, LONG).receive(len(peers.GREETING) + peers.NONCE)  # it is being served
        found = Network(Options(peers=(peer,), network_seconds=SHORT), TOKEN).run()
        assert has(found.detail, network_check.BUSY)
    assert something.wait(LONG)  # the first of those above has gone
    assert has(reported[0], network_check.CLOSED)
    assert Network(Options(peers=(peer,), network_seconds=SHORT), TOKEN).run().verdict is Verdict.PASSED


def test_serving_ends_by_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Serving(listener, [TOKEN], print).run(0.05)


@pytest.mark.parametrize(
    ("peer", "found"), [("host-1:80", ("host-1", 80)), ("[::1]:65535", ("::1", 65535)), ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1))]
)
def test_addresses(peer: str, found: tuple[str, int]) -> None:
    assert address(peer) == found


@pytest.mark.parametrize("peer", ["", "host", "host:", "host:0", "host:65536", "::1:80", ":80", "a b:80", "host:80\n", "host:８０"])
def test_no_addresses(peer: str) -> None:
    with refused(ValueError, node_checks.NO_PEER_ADDRESS):
        address(peer)
