"""Announces collectives before they run: in the first transaction after a recovery, over the generation's store.

If a newcomer's collective does not match the survivors', the library may end the process that receives it. So every member of a group
announces what it is about to issue; the last one to do so compares (`verification.announcements`) and reports the result to the others,
which wait for it. Either all of them run the collective, or all raise an `UnderstudyError` that names both sides. `deadlocks` handles
waits that are not over at once.

    first/LANE/NUMBER/RANK       what a rank issues as number NUMBER on a group
    first/LANE/NUMBER            how many have announced theirs
    first/LANE/NUMBER/verdict    that it matches, or what does not

Messages between two ranks are announced, too, without waiting: the second of the two compares.

Known limits: only the first `MOST` collectives of a group, and messages of a pair, are checked. What a receive from any rank takes is
not compared, nor are other messages to that rank with the same tag.

The last member compares because it never waits. With a fixed member there would be one more message between the last one and the others.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.distributed import Work

from understudy.messages import newcomers
from understudy.worker.collectives.interception import BETWEEN_TWO, Collective, Kernels, work_of
from understudy.worker.encoding.messages import Announced, AwaitedCall, pack, unpack
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification.announcements import too_long, unlike
from understudy.worker.verification.call_sequences import Lane, Lanes, announced
from understudy.worker.verification.deadlocks import FITS, UNLIKE, BlockedCalls

MOST = 2000


class Announcing(Kernels):
    """Announces the collectives of one attempt of one transaction, on every rank of the generation."""

    def __init__(self, who: tuple[int, str], calls: BlockedCalls, connect: Callable[[], Rendezvous]) -> None:
        """Take the calls of the attempt. `who`: rank and worker. `connect` returns another client of the generation's store."""
        super().__init__()
        self._who = who
        self._rank = who[0]
        self._calls = calls
        self._connect = connect
        self._clients = threading.local()  # one for each thread: while one waits in a client, no other can use it
        self._lanes = Lanes()
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._messages: dict[int, tuple[Work, AwaitedCall]] = {}  # by the identity of a Work, which is referenced so that it stays

    def wait(self, work: Work, wait: Callable[[], Any]) -> Any:
        if id(work) not in self._messages:
            return wait()
        with self._calls.hold(self._messages[id(work)][1]):
            return wait()

    def let_go(self) -> None:
        """Release Works: a check before a vote that counts references to them finds only the script's."""
        self._messages.clear()

    def remove(self) -> None:
        self.let_go()
        super().remove()

    def vote(self) -> None:
        """Announce that all is issued. Raises `GenerationAborted` or `PeerLost`."""
        self._calls.vote(self._client)

    @property
    def _client(self) -> Rendezvous:
        if not hasattr(self._clients, "own"):
            self._clients.own = self._connect()
        own: Rendezvous = self._clients.own
        return own

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        self._calls.refuse()
        lane = None if self._calls.over else self._lanes.of(collective.group)
        if lane is None:
            return operate()
        if collective.operator in BETWEEN_TWO:
            return self._message(lane, collective, operate)
        with self._lock:
            number = self._numbers[lane.name]
            self._numbers[lane.name] += 1
        if number < MOST:
            self._agree(lane, number, collective)
        return operate()

    def _agree(self, lane: Lane, number: int, collective: Collective) -> None:
        client, place = self._client, f"first/{lane.name}/{number}"
        this = announced(collective, self._who)
        keys = {rank: f"{place}/{rank}" for rank in lane.ranks}
        client.put(keys[self._rank], pack(this))
        if client.count(place) == len(keys):
            found = unlike([unpack(Announced, data) for data in client.get_all(list(keys.values()))])
            verdict = FITS
            if found:
                verdict = self._calls.verdict(UNLIKE, newcomers.UNLIKE_CALL(found=found, number=number, group=lane.shown))
            client.put(f"{place}/verdict", verdict)
            self._calls.read(verdict)
            return
        del keys[self._rank]
        # A synchronous collective is waited for by its caller at once, but on an accelerator only by its stream.
        bound = not collective.arguments.get("async_op", True) and not any(tensor.is_cuda for tensor in collective.inputs)
        awaited = AwaitedCall(keys, "", bound, f"{this.shown}, number {number} on {lane.shown}")
        with self._calls.hold(awaited, f"{place}/verdict") as due:
            if due:
                self._calls.read(client.get(f"{place}/verdict"))

    def _message(self, lane: Lane, collective: Collective, operate: Callable[[], Any]) -> Any:
        client, given, operator = self._client, collective.arguments, collective.operator
        tag = given.get("tag", 0)
        if operator == "recv_any_source_":
            client.put(_from_any(lane, self._rank, tag), b"")
            return operate()
        sends = operator == "send"
        peer = lane.ranks[given["dst" if sends else "src"]]
        taker = peer if sends else self._rank
        way = f"first/{lane.name}/{self._rank}-{peer}/{tag}" if sends else f"first/{lane.name}/{peer}-{self._rank}/{tag}"
        with self._lock:
            number = self._numbers[way + operator]
            self._numbers[way + operator] += 1
        if number >= MOST:
            return operate()
        mine, theirs = (f"{way}/{number}/{which}" for which in (("sent", "expected") if sends else ("expected", "sent")))
        this = announced(collective, self._who)
        client.put(mine, pack(this))
        from_any = _from_any(lane, taker, tag)
        if client.has(theirs):
            other = unpack(Announced, client.get(theirs))
            found = too_long(this, other) if sends else too_long(other, this)
            if found and not client.has(from_any):
                text = newcomers.UNLIKE_MESSAGE(found=found, number=number, group=lane.shown, tag=tag)
                self._calls.read(self._calls.verdict(UNLIKE, text))
        result = operate()
        if (held := work_of(result)) is not None:
            shown = f"{this.shown}, message {number} on {lane.shown} with tag {tag}"
            self._messages[id(held)] = held, AwaitedCall({peer: theirs}, from_any, False, shown)
        return result


def _from_any(lane: Lane, rank: int, tag: int) -> str:
    """Return the key that exists if `rank` receives messages with this tag from any rank: then it is unknown which one it takes."""
    return f"first/{lane.name}/anybody/{rank}/{tag}"
