"""What an agent finds of the workers of the one before it, and who may introduce himself as one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from understudy.agent import adoption
from understudy.agent.adoption import IntroducedWorker, Reception, abandoned, has_workers
from understudy.agent.output import Route
from understudy.common.bounds import known_pid
from understudy.common.page_view import Activity
from understudy.links import reattach
from understudy.links.page import PageWriter
from understudy.links.reattach import Introduction
from understudy.messages import agents

WHO = Introduction("w1", 3, 2, {"RANK": "3"}, False)
PAGE = "from pathlib import Path; import sys; from understudy.links.page import Activity, PageWriter as P; "
PAGE += "p = P(Path(sys.argv[1])); p.assigned(3); p.enter(Activity.VOTED, 7)"


def test_the_living_and_the_dead(tmp_path: Path) -> None:
    PageWriter(tmp_path / "w0.page").assigned(0)
    subprocess.run([sys.executable, "-c", PAGE, str(tmp_path / "w1.page")], check=True)
    (tmp_path / "w2.page").write_bytes(bytes(4096))  # not a worker yet
    (tmp_path / "w3.page").write_bytes(b"")
    living, dead = abandoned(tmp_path)
    assert (living.worker, living.pid) == ("w0", os.getpid())
    worker = living.taken_up("node0", Route(""))
    assert worker.alive and worker.rank == 0 and worker.lost is None and not worker.ours
    os.close(worker.pidfd)
    assert (dead.worker, dead.pidfd) == ("w1", None)
    worker = dead.taken_up("node0", Route(""))
    assert not worker.alive and worker.page is None
    assert worker.lost is not None
    assert worker.lost.detail == agents.ENDED_MEANWHILE(node="node0", where=", in the vote of transaction 7")
    assert has_workers(tmp_path)
    (tmp_path / "w0.page").unlink()
    assert not has_workers(tmp_path)


def test_a_number_that_another_process_has_by_now(tmp_path: Path) -> None:
    page = PageWriter(tmp_path / "w0.page")
    page.enter(Activity.IDLE, 1)
    page._integers[10] -= 1
    assert not has_workers(tmp_path)


async def _heard(guest: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await asyncio.get_running_loop().sock_recv(guest, 1)
    return b""


async def _meet(folder: Path, said: list[bytes], *, fds: int = 2) -> IntroducedWorker | None:
    """The result of this message."""
    met: asyncio.Future[IntroducedWorker] = asyncio.get_running_loop().create_future()
    reception = Reception(folder, met.set_result)
    guest = socket.socket(socket.AF_UNIX)
    guest.connect(str(folder / reattach.FILE))
    pipes = [fd for _ in range(fds) for fd in os.pipe()]
    try:
        socket.send_fds(guest, said[:1], pipes[::2])
        guest.setblocking(False)
        with contextlib.suppress(ConnectionError):  # it had enough
            for part in said[1:]:
                await asyncio.get_running_loop().sock_sendall(guest, part)
        gone = asyncio.ensure_future(_heard(guest))
        either: set[asyncio.Future[Any]] = {met, gone}
        await asyncio.wait(either, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert met.done() or gone.result() == b""
        gone.cancel()
        return met.result() if met.done() else None
    finally:
        reception.close()
        guest.close()
        for fd in pipes:
            os.close(fd)


def test_an_introduction_in_pieces(tmp_path: Path) -> None:
    line = WHO.encode()
    met = asyncio.run(_meet(tmp_path, [line[:5], line[5:20], line[20:]]))
    assert met is not None
    assert (met.introduction, met.pid) == (WHO, os.getpid())
    for fd in (met.stdout, met.stderr):
        assert not os.get_inheritable(fd)
        os.close(fd)
    met.link.close()


@pytest.mark.parametrize("said", [b"{}\n", b"\n", b"\xff\xfe\n", b'{"worker": 1}\n', WHO.encode() + b"{}\n", b"x" * (3 << 19)])
def test_what_is_no_introduction(tmp_path: Path, said: bytes) -> None:
    assert asyncio.run(_meet(tmp_path, [said[: 1 << 16], *([said[1 << 16 :]] if len(said) > 1 << 16 else [])])) is None


@pytest.mark.parametrize("fds", [0, 1])
def test_an_introduction_without_outputs(tmp_path: Path, fds: int) -> None:
    assert asyncio.run(_meet(tmp_path, [WHO.encode()], fds=fds)) is None


def test_an_introduction_from_another_process_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has no number for it here, and reports 0: to refuse it by kill(0) would end the agent with its whole group."""
    monkeypatch.setattr(adoption, "known_pid", lambda value: known_pid(0))
    assert asyncio.run(_meet(tmp_path, [WHO.encode()])) is None


def test_only_its_user_reaches_an_agent_and_the_way_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name " * 10) / ("and another one " * 10)
    folder.mkdir(parents=True)
    with reattach.listen(folder):
        assert (folder / reattach.FILE).stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConnectionRefusedError):
        reattach.meet(folder, WHO, (0, 0))
