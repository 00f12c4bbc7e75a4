"""Messages of a member to others that may be of an older version."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from understudy.orchestrator.quorum.member import Member
from understudy.orchestrator.quorum.memory import NOTHING, Known
from understudy.orchestrator.quorum.raft import HEARTBEAT, Raft
from understudy.orchestrator.quorum.roster import MemberHello
from understudy.orchestrator.quorum.storage import Storage
from understudy.orchestrator.quorum.transport import decode

OLDER = '["MemberHello",{"member":1,"identity":"disk 1","roster":[]}]'


def test_one_of_an_older_version_is_not_sent_what_makes_it_hang_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = decode(OLDER)
    assert isinstance(older, MemberHello)

    async def run() -> None:
        sent: list[tuple[int, object]] = []
        storage = Storage(tmp_path / "quorum.db")
        member = Member(0, ["http://a", "http://b", "http://c"], storage, "secret", None, lambda text: None, lambda texts: None)
        for number, dial in member._dials.items():
            monkeypatch.setattr(dial, "send", partial(lambda number, message: sent.append((number, message)), number))
        raft = Raft(0, 3, time.monotonic(), lambda: 0.0)
        raft._lead(time.monotonic())

        async def reported() -> set[int]:
            """The members that are informed in a turn about the others."""
            sent.clear()
            member._shared -= HEARTBEAT
            await member._turn(raft)
            return {number for number, message in sent if isinstance(message, Known)}

        assert await reported() == set(), "no member has introduced itself"
        member.greeted(older)
        member.greeted(MemberHello(2, "disk 2", (), NOTHING))
        assert await reported() == {2}
        member.greeted(MemberHello(1, "disk 1", (), NOTHING))
        assert await reported() == {1, 2}, "it was upgraded"
        member.greeted(older)
        assert await reported() == {2}, "and put back"
        assert member.hello(1).acknowledged is not None and member._roster.hello().acknowledged is None
        member._disk.shutdown()
        storage.close()

    asyncio.run(run())
