"""The same under the sanitizers of addresses, undefined behaviour and threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.netpath.builds import Build
from tests.netpath.hosts import RECEIVER, SENDER, Hosts
from tests.netpath.test_tables import run
from tests.netpath.transfer import transfer

SANITIZERS = {
    "address": ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-O1", "-g", "-fsanitize=thread"),
}
OPTIONS = {"TSAN_OPTIONS": "halt_on_error=1 die_after_fork=0", "ASAN_OPTIONS": "halt_on_error=1"}

pytestmark = [pytest.mark.whole, pytest.mark.parametrize("sanitizer", SANITIZERS), pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", ["tables", "fork", "midway", "churn"])
def test_lives(builder: Callable[..., Build], sanitizer: str, mode: str) -> None:
    if (sanitizer, mode) == ("thread", "fork"):
        pytest.skip("this sanitizer ends a process that starts threads after a fork")
    done = run(builder(sanitizer, *SANITIZERS[sanitizer]), mode, **OPTIONS)
    assert done.returncode == 0, done.stderr[-5000:]
    assert "Sanitizer" not in done.stderr


@pytest.mark.parametrize("checksum", ["0", "1"])
def test_failover(builder: Callable[..., Build], hosts: Callable[[int], Hosts], tmp_path: Path, sanitizer: str, checksum: str) -> None:
    two = hosts(3)
    build = builder(sanitizer, *SANITIZERS[sanitizer])
    with transfer(build, two, tmp_path, "random:5:1000000", comms=4, UNDERSTUDY_NET_CRC=checksum, **OPTIONS) as running:
        running.wait_for_messages(50)
        two.drop(SENDER, 0)
        running.wait_for("failovers", 0, interface="r0")
        two.link(RECEIVER, 1, "down")
        running.wait_for("failovers", 0, interface="r1")
        two.pass_again(SENDER, 0)
        before = running.total("chunks", interface="r0")
        running.wait_for("chunks", before, interface="r0")
        two.link(RECEIVER, 1, "up")
        running.wait_for_messages(50)
        running.stop()
        assert "Sanitizer" not in running.errors()
