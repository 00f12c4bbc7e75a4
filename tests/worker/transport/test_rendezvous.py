"""What the members of a generation put into its store and find there, with real stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from understudy.worker.errors import GenerationAborted, PeerLost
from understudy.worker.transport.rendezvous import PART, Rendezvous, StoreServer

LIMIT = 60.0  # seconds


@pytest.fixture
def server() -> Iterator[StoreServer]:
    yield StoreServer("127.0.0.1")


def client(server: StoreServer, generation: int = 0) -> Rendezvous:
    return Rendezvous(server.address, generation, lambda: False)


def content(size: int, start: int = 0) -> bytes:
    return (bytes((start + number * 7) % 251 for number in range(997)) * (size // 997 + 1))[:size]


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, (64 << 20) + 5])
def test_a_value_of_any_size_arrives(server: StoreServer, size: int) -> None:
    value = content(size)
    client(server).put("key", value)
    assert client(server).get("key") == value


def test_who_waits_for_a_large_value_sees_all_of_it(server: StoreServer) -> None:
    value = content(5 * PART)
    waiting, writing = client(server), client(server)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(waiting.get, "key")
        writing.put("key", value)
        assert found.result(LIMIT) == value


def test_several_that_put_under_one_key_leave_one_of_their_values(server: StoreServer) -> None:
    values = [content(3 * PART + number, number) for number in range(3)]
    clients = [client(server) for _ in values]
    together = threading.Barrier(len(values))

    def put(number: int) -> None:
        together.wait(LIMIT)
        clients[number].put("key", values[number])

    with ThreadPoolExecutor(len(values)) as threads:
        for done in [threads.submit(put, number) for number in range(len(values))]:
            done.result(LIMIT)
    assert client(server).get("key") in values


def test_parts_without_their_list_are_not_seen(server: StoreServer) -> None:
    """As when the worker that puts a value is lost in the middle of it."""
    writing = client(server)
    put, written = writing._set, list[str]()

    def until_the_list(key: str, value: bytes) -> None:
        if key == "key":
            raise RuntimeError("lost")
        written.append(key)
        put(key, value)

    writing._set = until_the_list  # type: ignore[method-assign]
    with pytest.raises(PeerLost):
        writing.put("key", content(2 * PART))
    assert len(written) == 2
    with pytest.raises(PeerLost):
        client(server).get("key", timedelta(milliseconds=50))


def test_generations_do_not_see_each_other(server: StoreServer) -> None:
    client(server, 1).put("key", content(PART + 1))
    client(server, 2).put("key", b"two")
    assert client(server, 1).get("key") == content(PART + 1)
    assert client(server, 2).get("key") == b"two"


def test_a_read_without_waiting_returns_what_exists(server: StoreServer) -> None:
    one, other = client(server), client(server)
    assert not one.has("key")
    one.put("key", b"a")
    other.put("more", b"")
    assert other.has("key") and one.get_all(["key", "more"]) == [b"a", b""]
    assert [one.count("how many"), other.count("how many"), one.count("how many")] == [1, 2, 3]
    assert [one.claim("mine", b"one"), other.claim("mine", b"other"), other.get("mine")] == [b"one"] * 3


def test_who_asks_in_a_generation_that_is_over_hears_that(server: StoreServer) -> None:
    late = Rendezvous(server.address, 0, lambda: True)
    for ask in (late.has, late.count, lambda key: late.claim(key, b""), lambda key: late.get_all([key])):
        with pytest.raises(GenerationAborted, match="generation 0 ended while requesting key"):
            ask("key")
    late.close()
