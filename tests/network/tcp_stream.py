"""Plain TCP connections that send a stream that both ends know, and check every byte of it. Run as a script by tests.

    python tcp_stream.py receive ADDRESS PORT CONNECTIONS FOLDER
    python tcp_stream.py send ADDRESS PORT CONNECTIONS FOLDER SOURCE

The receiver writes the bytes that the slowest connection has received into FOLDER/received. The sender ends when FOLDER/stop exists,
and prints what it has sent in all; the receiver prints what it has received in all. Either ends with an error if a connection breaks or a
byte is wrong.
"""

from __future__ import annotations

import random
import select
import socket
import sys
import threading
from pathlib import Path

BLOCK = 1 << 16
PAUSE_MS = 10  # between two blocks, so that the machine has time for others
PATTERN = random.Random(7).randbytes(BLOCK - 1)  # its length and that of a block differ, so a block that is lost or doubled is noticed


def stream(begin: int, length: int) -> bytes:
    offset = begin % len(PATTERN)
    return (PATTERN[offset:] + PATTERN * (length // len(PATTERN) + 1))[:length]


def receive(address: str, port: int, count: int, folder: Path) -> int:
    received = [0] * count
    wrong: list[str] = []

    def serve(number: int, connection: socket.socket) -> None:
        while data := connection.recv(BLOCK):
            if data != stream(received[number], len(data)):
                wrong.append(f"connection {number}: wrong bytes after {received[number]}")
                return
            received[number] += len(data)

    def guarded(number: int, connection: socket.socket) -> None:
        try:
            serve(number, connection)
        except OSError as error:
            wrong.append(f"connection {number}: {error}")

    with socket.create_server((address, port), backlog=count) as listener:
        (folder / "listening").touch()
        threads = [threading.Thread(target=guarded, args=(number, listener.accept()[0])) for number in range(count)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        (folder / "partial").write_text(str(min(received)))
        (folder / "partial").rename(folder / "received")
        threads[0].join(0.02)
        select.select([], [], [], 0.02)
    if wrong:
        sys.exit("; ".join(wrong))
    return sum(received)


def send(address: str, port: int, count: int, folder: Path, source: str) -> int:
    connections = [socket.create_connection((address, port), source_address=(source, 0)) for _ in range(count)]
    sent = [0] * count
    broken: list[str] = []

    def feed(number: int) -> None:
        try:
            while not (folder / "stop").exists():
                connections[number].sendall(stream(sent[number], BLOCK))
                sent[number] += BLOCK
                select.select([], [], [], PAUSE_MS / 1000)
            connections[number].shutdown(socket.SHUT_WR)
            assert connections[number].recv(1) == b""  # the other end has read everything
        except OSError as error:
            broken.append(f"connection {number}: {error}")

    threads = [threading.Thread(target=feed, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        sys.exit("; ".join(broken))
    return sum(sent)


if __name__ == "__main__":
    what, where, number, connections, place, *more = sys.argv[1:]
    if what == "receive":
        print(receive(where, int(number), int(connections), Path(place)))
    else:
        print(send(where, int(number), int(connections), Path(place), *more))
