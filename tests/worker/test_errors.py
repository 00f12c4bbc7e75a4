"""What an exception of a script means."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from torch._C._distributed_c10d import TCPStore

from understudy.worker.errors import is_port_taken


def by_a_socket(port: int) -> None:
    socket.create_server(("127.0.0.1", port))


def by_a_store(port: int) -> None:
    TCPStore("127.0.0.1", port, is_master=True)


def after_another(port: int) -> None:
    try:
        by_a_socket(port)
    except OSError as error:
        raise RuntimeError("no metrics") from error


@pytest.mark.parametrize("take", [by_a_socket, by_a_store, after_another])
def test_a_port_that_another_process_has(take: Callable[[int], object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises((OSError, RuntimeError)) as error:
        take(taken.getsockname()[1])
    assert is_port_taken(error.value)


def test_another_error_does_not_mention_ports() -> None:
    with pytest.raises(OSError) as error:
        open("/does/not/exist")  # noqa: SIM115
    assert not is_port_taken(error.value)
