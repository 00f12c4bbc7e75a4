"""The library as NCCL's loader uses it: every version of the tables, forks, communicators that are closed early, strangers."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.netpath.builds import Build
from tests.netpath.hosts import RECEIVER, SENDER, Hosts
from tests.netpath.transfer import LONG, transfer

VERSIONS = range(8, 13)


def run(plugin: Build, mode: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UNDERSTUDY_NET_IFNAME": "lo", **settings}
    return subprocess.run([plugin.driver, plugin.library, mode], env=environment, capture_output=True, text=True, timeout=LONG)


def test_every_table_can_be_called(plugin: Build) -> None:
    done = run(plugin, "tables")
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[f"v{version}", "Understudy"] for version in VERSIONS]


def test_both_names_lead_to_the_library(plugin: Build) -> None:
    assert (plugin.library.parent / "librccl-net-understudy.so").resolve() == plugin.library


@pytest.mark.parametrize("mode", ["fork", "midway", "churn"])
def test_lives(plugin: Build, mode: str) -> None:
    done = run(plugin, mode)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name, value",
    [
        ("UNDERSTUDY_NET_SOCKETS", "0"),
        ("UNDERSTUDY_NET_THREADS", "many"),
        ("UNDERSTUDY_NET_GIVE_UP_S", "-1"),
        ("UNDERSTUDY_NET_CRC", "2"),
        ("UNDERSTUDY_NET_STATS", "/no/such/folder"),
        ("UNDERSTUDY_NET_IFNAME", "=nosuch"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(plugin: Build, name: str, value: str) -> None:
    done = run(plugin, "midway", **{name: value})
    assert done.returncode == 4
    assert f"{name}={value}" in done.stderr


@pytest.mark.whole
@pytest.mark.parametrize("version", VERSIONS)
def test_every_table_between_two_hosts(plugin: Build, hosts: Callable[[int], Hosts], tmp_path: Path, version: int) -> None:
    with transfer(plugin, hosts(2), tmp_path, "random:3:1000000", version=version) as running:
        running.wait_for_messages(50)
        running.stop()


@pytest.mark.whole
def test_many_communicators(plugin: Build, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    with transfer(plugin, hosts(2), tmp_path, "random:3:100000", comms=64) as running:
        running.wait_for_messages(2000)
        running.stop()


@pytest.mark.whole
def test_a_message_of_a_gigabyte(plugin: Build, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    with transfer(plugin, hosts(2), tmp_path, str(1 << 30), comms=1, limit=200) as running:
        running.wait_for_messages(1)
        assert running.stop()["bytes"] >= 1 << 30


def refused(stats: Path) -> int:
    lines = [line for file in stats.glob("*.jsonl") for line in file.read_text().splitlines() if "refused" in line]
    return sum(int(line.partition(":")[2].strip(" }")) for line in lines)


@pytest.mark.whole
def test_strangers_do_no_harm(plugin: Build, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """They meet the port: with noise, other protocols, wrong secrets; and one that knows the secret, with wrong frames."""
    two = hosts(2)
    with transfer(plugin, two, tmp_path, "random:3:300000", comms=1) as running:
        running.wait_for_messages(20)
        magic, port, _, _, listener, secret, _ = struct.unpack_from("<IHBBQ16sQ", bytes.fromhex(running.handles()[0]))
        hello = struct.pack("<IBBHQ16s16s", magic, 0, 0, 0, listener, secret, os.urandom(16))
        wrong = {
            "noise": os.urandom(4096),
            "http": b"GET / HTTP/1.1\r\n\r\n",
            "another magic": struct.pack("<I", magic + 1) + hello[4:],
            "another secret": hello[:16] + os.urandom(16) + hello[32:],
            "another listener": hello[:8] + os.urandom(8) + hello[16:],
            "a rail that cannot be": hello[:4] + b"\xff" + hello[5:],
            "half a greeting": hello[:20],
            "wrong frames": hello + os.urandom(4096),
        }
        namespace = f"/run/netns/{two.names[SENDER]}"
        for words in wrong.values():
            answer = stranger(namespace, "10.71.0.2", port, words)
            assert words == wrong["wrong frames"] or answer == b""
        running.wait_for_messages(100)
        running.stop()
        assert refused(running.stats_folder) >= len(wrong) - 1
        assert {line["corrupt"] for line in running.stats(RECEIVER)} == {0}


def stranger(namespace: str, host: str, port: int, words: bytes) -> bytes:
    """Say `words` from within the namespace, end the own half, and return the answer."""
    program = (
        "import ctypes, os, socket, sys\n"
        "space = os.open(sys.argv[1], os.O_RDONLY)\n"
        "assert ctypes.CDLL(None, use_errno=True).setns(space, 0) == 0\n"
        "link = socket.create_connection((sys.argv[2], int(sys.argv[3])), 60)\n"
        "try:\n"
        "    link.sendall(bytes.fromhex(sys.argv[4])); link.shutdown(socket.SHUT_WR)\n"
        "    while data := link.recv(4096): sys.stdout.buffer.write(data)\n"
        "except OSError: pass\n"  # it was closed
    )
    words_of_command = ["python3", "-c", program, namespace, host, str(port), words.hex()]
    done = subprocess.run(words_of_command, capture_output=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    return done.stdout
