"""Messages of a member about another one that it cannot reach."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.message_texts import has
from websockets.asyncio.server import ServerConnection, serve

from understudy.messages import quorums
from understudy.orchestrator.agent_link import POLICY_VIOLATION
from understudy.orchestrator.quorum.roster import MemberHello
from understudy.orchestrator.quorum.transport import Dial, Member

LIMIT = 30.0


class Alone:
    def hello(self, to: int) -> MemberHello:
        return MemberHello(0, "disk 0", ())


def test_one_of_another_version_is_named() -> None:
    async def refuse(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.close(POLICY_VIOLATION, "not a message between members")

    async def run() -> str:
        reported: asyncio.Queue[str] = asyncio.Queue()
        async with serve(refuse, "127.0.0.1", 0) as server:
            host, port = next(iter(server.sockets)).getsockname()[:2]
            member = cast("Member", cast("Any", Alone()))
            dialling = asyncio.create_task(Dial(1, f"http://{host}:{port}", "secret", None, member, reported.put_nowait).run())
            try:
                return await asyncio.wait_for(reported.get(), LIMIT)
            finally:
                dialling.cancel()
                await asyncio.gather(dialling, return_exceptions=True)

    assert has(asyncio.run(run()), quorums.MEMBER_OTHER_VERSION)
